"""An admin key stands in the user's own file, by reference, and goes to the user's upstreams."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackline.config import Config
from jackline.errors import BadConfigError
from jackline.providers.settings import UpstreamKind
from tests.config.places import Machine

OWN = '[[upstream]]\ncredential = "env:KEY"\nadmin_key = "env:ADMIN"\n'
SECRET = "sk-ant-admin01-planted"  # noqa: S105 -- planted


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def load(machine: Machine, text: str = OWN, **variables: str) -> Config:
    machine.write_own(text)
    return machine.load(environ={"KEY": "sk-ant-api", **variables})


def faults(machine: Machine, text: str) -> str:
    with pytest.raises(BadConfigError) as raised:
        load(machine, text)
    return raised.value.message


def test_settings_hold_the_reference_and_never_the_key(machine: Machine) -> None:
    config = load(machine, OWN + 'workspace = "wrkspc_1"\n', ADMIN=SECRET)
    upstream = config.gateway.upstream
    assert (upstream.admin_key, upstream.workspace) == ("env:ADMIN", "wrkspc_1")
    assert SECRET not in repr(config)


def test_no_work_stops_because_the_key_is_not_to_be_had(machine: Machine) -> None:
    assert load(machine).gateway.upstream.admin_key == "env:ADMIN"
    gone = OWN.replace("env:ADMIN", "cmd:no-such-program")
    assert load(machine, gone).gateway.upstream.admin_key == "cmd:no-such-program"


def test_a_file_is_seen_from_where_it_is_written(machine: Machine) -> None:
    config = load(machine, OWN.replace("env:ADMIN", "file:admin.key"))
    assert config.gateway.upstream.admin_key == f"file:{machine.folders.config / 'admin.key'}"


def test_a_file_that_others_can_read_is_warned_of(machine: Machine) -> None:
    key = machine.folders.config / "admin.key"
    key.write_text(SECRET)
    key.chmod(0o644)
    (warning,) = load(machine, OWN.replace("env:ADMIN", f"file:{key}")).warnings
    assert f"chmod 600 {key}" in warning


def test_the_key_must_not_stand_there_itself(machine: Machine) -> None:
    told = faults(machine, OWN.replace("env:ADMIN", SECRET))
    assert "upstream.1.admin_key" in told or "admin_key" in told
    assert "must not be written here itself" in told
    assert SECRET not in told


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (OWN.replace('credential = "env:KEY"\n', ""), 'set credential = "env:NAME" too'),
        (OWN.replace("env:KEY", "pass-through"), 'set credential = "env:NAME" too'),
        (OWN + 'kind = "bedrock"\nregion = "us-east-1"\n', "kind bedrock has no API"),
        (OWN + 'url = "http://far.example"\n', "would go to far.example unencrypted"),
        (OWN + 'preset = "openai"\n', 'project = "proj_1"'),
        (OWN + 'preset = "openai"\nproject = "p"\nworkspace = "w"\n', "limits go by project"),
        ('[[upstream]]\nworkspace = "w"\n', "and there is none"),
    ],
)
def test_what_cannot_work_is_said(text: str, says: str, machine: Machine) -> None:
    assert says in faults(machine, text)


def test_openais_limits_go_by_project(machine: Machine) -> None:
    upstream = load(machine, OWN + 'preset = "openai"\nproject = "proj_1"\n').gateway.upstream
    assert (upstream.kind, upstream.project) == (UpstreamKind.OPENAI_RESPONSES, "proj_1")


@pytest.mark.parametrize("setting", ['admin_key = "env:ADMIN"', 'workspace = "w"'])
def test_a_projects_file_cannot_set_it_even_when_agreed_to(setting: str, machine: Machine) -> None:
    path = machine.write(f'[[upstream]]\nurl = "http://127.0.0.1:1"\n{setting}\n')
    machine.trust(path)
    config = machine.load(ADMIN=SECRET)
    assert [each.admin_key for each in config.gateway.upstreams] == [None]
    assert config.gateway.upstream.url == "https://api.anthropic.com"
    assert "upstream (refused" in config.warnings[0]


def test_the_users_key_does_not_stick_to_an_upstream_of_a_project(machine: Machine) -> None:
    path = machine.write('[[upstream]]\nurl = "https://stranger.example"\ncredential = "env:KEY"\n')
    machine.trust(path)
    config = load(machine, JACKLINE_UPSTREAM_ADMIN_KEY="env:ADMIN", ADMIN=SECRET)
    upstream = config.gateway.upstream
    assert (upstream.url, upstream.admin_key) == ("https://stranger.example", None)
    assert any("JACKLINE_UPSTREAM_ADMIN_KEY is ignored" in line for line in config.warnings)
