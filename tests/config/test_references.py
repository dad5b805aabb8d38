"""A configuration holds where a secret is, and nothing that is printed holds the secret."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jackline.config import toml_writer
from jackline.config.references import path_from
from jackline.errors import BadConfigError
from tests.config.places import Machine

PLANTED = "planted-secret-0123456789"


def own_token(machine: Machine, reference: str) -> None:
    machine.write_own(f"[listen]\ntoken = '{reference}'\n")


def fault_of(machine: Machine, **variables: str) -> str:
    with pytest.raises(BadConfigError) as caught:
        machine.load(environ=variables)
    (told,) = caught.value.faults
    return told


def test_a_variable_a_file_and_a_command_can_keep_it(machine: Machine) -> None:
    kept = machine.folders.config / "token"
    kept.write_text(f"{PLANTED}\n")
    kept.chmod(0o600)
    script = machine.write_own(f"print({PLANTED!r})", "say.py")
    own_token(machine, "env:KEPT")
    assert machine.load(KEPT=f" {PLANTED} ").gateway.listen.token == PLANTED
    own_token(machine, "file:token")
    assert machine.load().gateway.listen.token == PLANTED
    own_token(machine, f"file:{kept}")
    assert machine.load().gateway.listen.token == PLANTED
    own_token(machine, f'cmd:"{sys.executable}" "{script}"')
    assert machine.load(environ=os.environ).gateway.listen.token == PLANTED


def test_a_proxy_with_a_password_is_kept_the_same_way(machine: Machine) -> None:
    machine.write_own('[[upstream]]\nproxy = "env:PROXY"\n')
    config = machine.load(PROXY=f"http://me:{PLANTED}@proxy.example:3128")
    assert config.gateway.upstream.proxy == f"http://me:{PLANTED}@proxy.example:3128"
    assert "planted" not in repr(config)
    assert toml_writer.as_json(config)["upstream.proxy"] == "env:PROXY"


def test_what_is_printed_holds_the_reference_and_never_the_secret(machine: Machine) -> None:
    own_token(machine, "env:KEPT")
    config = machine.load(KEPT=PLANTED)
    assert config.gateway.listen.token == PLANTED
    for printed in (repr(config), str(config), toml_writer.as_toml(config, origins=True)):
        assert "planted" not in printed
    assert toml_writer.as_json(config)["listen.token"] == "env:KEPT"


def test_a_missing_secret_is_a_fault_that_says_where_it_was_looked_for(machine: Machine) -> None:
    own_token(machine, "env:KEPT")
    assert fault_of(machine).endswith("the environment variable KEPT is not set")
    own_token(machine, "file:none")
    assert "none cannot be read: No such file" in fault_of(machine)
    (machine.folders.config / "none").write_text("\n")
    assert fault_of(machine).endswith("none is empty")
    own_token(machine, "cmd:no-such-command-anywhere")
    assert "no-such-command-anywhere cannot be run" in fault_of(machine)
    own_token(machine, "cmd:")
    assert "must not be written here itself" in fault_of(machine)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (f"import sys; print({PLANTED!r}, file=sys.stderr); sys.exit(3)", "ended with exit code 3"),
        ("pass", "printed nothing"),
        (f"print({PLANTED!r}); print('two')", "control characters"),
    ],
)
def test_a_failing_command_is_told_without_what_it_printed(
    machine: Machine, code: str, what: str
) -> None:
    script = machine.write_own(code, "say.py")
    own_token(machine, f'cmd:"{sys.executable}" "{script}"')
    told = fault_of(machine)
    assert what in told
    assert "planted" not in told


def test_a_command_is_run_only_for_the_users_own_words(machine: Machine, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    path = machine.write(f"[listen]\ntoken = 'cmd:touch {witness}'\n")
    assert machine.load().gateway.listen.token is None
    assert not witness.exists()
    with pytest.raises(BadConfigError, match="printed nothing"):
        machine.load(environ=os.environ, JACKLINE_CONFIG=str(path))


def test_without_secrets_nothing_is_followed(machine: Machine, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    own_token(machine, f"cmd:touch {witness}")
    config = machine.load(with_secrets=False)
    assert not witness.exists()
    assert config.shown["listen", "token"] == f"cmd:touch {witness}"


@pytest.mark.skipif(os.name == "nt", reason="access lists, not mode bits")
def test_a_file_that_others_can_read_is_warned_of(machine: Machine) -> None:
    kept = machine.write_own(PLANTED, "token")
    machine.write_own('[listen]\ntoken = "file:token"\n')
    kept.chmod(0o644)
    (warning,) = machine.load().warnings
    assert warning.startswith(f"listen.token: others on this machine can read {kept}; chmod 600")
    kept.chmod(0o600)
    assert machine.load().warnings == ()


def test_paths_are_seen_from_where_they_were_written(tmp_path: Path) -> None:
    assert path_from(tmp_path, "a/../b") == tmp_path / "b"
    assert path_from(tmp_path, "~/b") == Path.home() / "b"
    assert path_from(tmp_path, str(tmp_path / "c")) == tmp_path / "c"


def test_a_secrets_file_is_watched_too(machine: Machine) -> None:
    kept = machine.write_own(PLANTED, "token")
    kept.chmod(0o600)
    machine.write_own('[listen]\ntoken = "file:token"\n')
    assert kept in machine.load().watched


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
def test_a_pipe_keeps_no_secret(machine: Machine) -> None:
    """It would be waited for without end: an agent that edits a project can put one there."""
    kept = machine.folders.config / "token"
    os.mkfifo(kept, 0o600)
    own_token(machine, "file:token")
    assert fault_of(machine).endswith("cannot be read: is not a regular file")


def test_a_file_of_many_bytes_keeps_no_secret(machine: Machine) -> None:
    kept = machine.folders.config / "token"
    with kept.open("wb") as file:
        file.truncate(3 << 30)  # takes no place on the disk
    own_token(machine, "file:token")
    assert fault_of(machine).endswith("cannot be read: is larger than 65,536 bytes")
