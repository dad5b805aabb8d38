"""All faults are told at once, each with its place, its key and what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.config.files import FileText
from jackline.config.layers import Layer
from jackline.errors import BadConfigError, UsageError
from tests.config.places import Machine

PLANTED = "sk-ant-planted-secret"
EVERYWHERE = "0.0.0.0"  # noqa: S104 -- what the rule is about


def faults_of(machine: Machine, *, flags: dict[str, object] | None = None, **env: str) -> list[str]:
    with pytest.raises(BadConfigError) as caught:
        machine.load(flags=flags, environ=env)
    error = caught.value
    assert isinstance(error, UsageError)
    assert error.hint
    for fault in error.faults:
        assert fault in error.message
    return list(error.faults)


def test_every_fault_of_every_source_is_told_with_its_place(machine: Machine) -> None:
    own = machine.write_own(
        'stream = "blok"\n[hodl]\nquota = 1\n\n[listen]\nprot = 9000\n'
        '[hold]\nquota = "15 parsecs"\nuntil_reset = 1\n[caps.tags]\nnight = 0\n'
    )
    assert faults_of(
        machine,
        flags={"port": "many"},
        JACKLINE_HOLD_QOUTA="1",
        JACKLINE_LISTEN_PORT="70000",
    ) == [
        f"{own}:1: stream: must be one of 'auto', 'live' or 'block'",
        f"{own}:2: hodl: there is no such key; did you mean hold?",
        f"{own}:6: listen.prot: there is no such key; did you mean listen.port?",
        (
            f'{own}:8: hold.quota: "15 parsecs" is no duration;'
            ' write it like "15m", "2h30m", "90s" or as a number of seconds'
        ),
        f"{own}:9: hold.until_reset: must be true or false",
        f"{own}:11: caps.tags.night: must be at least 1",
        "JACKLINE_LISTEN_PORT: listen.port: must be at most 65535",
        "JACKLINE_HOLD_QOUTA: there is no such key; did you mean JACKLINE_HOLD_QUOTA?",
        "flag --port: listen.port: must be a whole number",
    ]


def test_the_nearest_key_is_looked_for_in_its_table_then_elsewhere(machine: Machine) -> None:
    path = machine.write_own(
        "port = 1\n[caps]\nsesion = 1\n[log]\nxyzzy = 1\n[[upstream]]\n"
        'limits = { paralell = 1 }\nmodel_limits."opus-*" = { paralel = 2 }\n'
    )
    assert set(faults_of(machine)) == {
        f"{path}:1: port: there is no such key here; did you mean listen.port?",
        f"{path}:3: caps.sesion: there is no such key; did you mean caps.session?",
        f"{path}:5: log.xyzzy: there is no such key; possible keys: level",
        (
            f"{path}:7: upstream.limits.paralell: there is no such key;"
            " did you mean upstream.limits.parallel?"
        ),
        (
            f'{path}:8: upstream.model_limits."opus-*".paralel: there is no such key;'
            ' did you mean upstream.model_limits."opus-*".parallel?'
        ),
    }


def test_faults_of_all_upstreams_are_told_with_their_places(machine: Machine) -> None:
    path = machine.write_own(
        '[[upstream]]\nurl = "ftp://x"\n[[upstream]]\nnme = "b"\n'
        '[[upstream]]\nname = "c"\nmodel_limits."opus-*" = { parallel = 0 }\n'
    )
    assert faults_of(machine) == [
        f"{path}:2: upstream.url: must be an address like https://api.anthropic.com",
        f"{path}:4: upstream[1].nme: there is no such key; did you mean upstream[1].name?",
        f'{path}:7: upstream[2].model_limits."opus-*".parallel: must be at least 1',
    ]


def test_an_upstream_in_single_brackets_is_told_how_to_be_written(machine: Machine) -> None:
    machine.write_own('[upstream]\nurl = "https://x.example"\n')
    assert "write [[upstream]] with two brackets" in faults_of(machine)[0]


def test_what_is_no_toml_is_told_with_its_line(machine: Machine) -> None:
    own = machine.write_own("[listen]\nport 3\n")
    (told,) = faults_of(machine)
    assert told.startswith(f"{own}:2: is not TOML: ")


def test_a_number_that_python_does_not_read_is_a_fault_of_its_file(machine: Machine) -> None:
    own = machine.write_own(f"x = {'9' * 5_000}\n")
    assert faults_of(machine) == [f"{own}: has a number that is too long"]


def test_such_a_number_of_a_projects_file_stops_nothing(machine: Machine) -> None:
    for name, text in (("jackline.toml", "x = "), ("pyproject.toml", "[tool.jackline]\nx = ")):
        path = machine.write(text + "9" * 5_000, name)
        (warning,) = machine.load().warnings
        assert "all of it is ignored: it has a number that is too long" in warning
        path.unlink()


def test_of_very_many_faults_the_first_are_reported(machine: Machine) -> None:
    """Each costs a search for its line and for keys like it; a clone can have 27,000 of them."""
    path = machine.write_own("\n".join(f"k{number} = 1" for number in range(5_000)))
    faults = faults_of(machine)
    assert len(faults) == 101
    assert faults[0].startswith(f"{path}:1: k0: there is no such key")
    assert faults[-1] == f"{path}: and 4,900 more"


def test_a_file_that_is_not_text_is_told(machine: Machine) -> None:
    path = machine.write_own("")
    path.write_bytes(b"\xff\xfe\x00")
    assert faults_of(machine) == [f"{path}: is not UTF-8 text"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[listen]\nhost = ""', "listen.host: must not be empty"),
        ("[listen]\nport = 1.5", "listen.port: must be a whole number"),
        ("[listen]\nport = true", "listen.port: must be a whole number"),
        ('[[upstream]]\nlimits = { requests_per_minute = "5" }', "must be a number"),
        ("[[upstream]]\nlimits = { requests_per_minute = 0 }", "must be more than 0"),
        ("[[upstream]]\nlimits = { requests_per_minute = inf }", "must be a finite number"),
        ('[[upstream]]\nname = "a b"', "letters, digits, dots"),
        ('[[upstream]]\nurl = "https://u:p@x.example"', "must not hold a user or password"),
        ('[[upstream]]\nurl = "https://x.example?a=b"', "no ? and no #"),
        ('[[upstream]]\nurl = "https://x.example:99999"', "ort"),
        ('[[upstream]]\nurl = "http://[::1"', "upstream.url"),
        ('[[upstream]]\nca_file = "none.pem"', "upstream.ca_file: there is no file"),
        ("upstream = 3", "must be a list"),
        ("listen = 3", "listen: must be a table"),
        ("[hold]\nping_every = 0.001", "hold.ping_every: must be from 1s to 4m"),
        ("[hold]\ncommit_after = '5m'", "hold.commit_after: must be from 0s to 4m"),
        ("[journal]\nsize = 'much'", "journal.size"),
    ],
)
def test_each_wrong_value_is_told_in_our_words(machine: Machine, text: str, what: str) -> None:
    path = machine.write_own(text)
    (told,) = faults_of(machine)
    assert told.startswith(f"{path}:")
    assert what in told


def test_listening_to_others_needs_a_token(machine: Machine) -> None:
    assert "listen.token" in faults_of(machine, JACKLINE_HOST=EVERYWHERE)[0]
    (told,) = faults_of(machine, JACKLINE_HOST=EVERYWHERE, JACKLINE_LISTEN_TOKEN=PLANTED)
    assert told.startswith("JACKLINE_LISTEN_TOKEN: listen.token: must not be written here itself")
    config = machine.load(
        JACKLINE_HOST=EVERYWHERE,
        JACKLINE_LISTEN_TOKEN="env:KEPT",  # noqa: S106 -- a reference
        KEPT="a-token",
    )
    assert config.gateway.listen.token == "a-token"  # noqa: S105 -- made up


def test_a_right_token_counts_even_where_its_file_has_another_fault(machine: Machine) -> None:
    machine.write_own('[listen]\ntoken = "env:KEPT"\nprot = 1\n')
    (told,) = faults_of(machine, JACKLINE_HOST=EVERYWHERE, KEPT="a-token")
    assert "listen.prot" in told


def test_a_gateway_that_would_call_itself_is_refused(machine: Machine) -> None:
    (told,) = faults_of(machine, JACKLINE_UPSTREAM="http://localhost:8766")
    assert told.startswith("JACKLINE_UPSTREAM: upstream.url: is the gateway's own address")
    machine.load(JACKLINE_UPSTREAM="http://localhost:8767")


@pytest.mark.parametrize(
    "text",
    [
        f'[listen]\ntoken = "{PLANTED}"',
        f'[listen]\ntokn = "{PLANTED}"',
        f'[listen]\nport = "{PLANTED}"',
        f'[hold]\nquota = "{PLANTED}"',
        f'[[upstream]]\nurl = "{PLANTED}"',
        f'[[upstream]]\nname = " {PLANTED}"',
        f'[[upstream]]\nurl = "https://me:{PLANTED}@x.example"',
        f'[[upstream]]\nproxy = "http://me:{PLANTED}@x.example"',
        f'[[upstream]]\nproxy = "{PLANTED}"',
        f'stream = "{PLANTED}"',
        f'[log]\nlevel = "{PLANTED}"',
        f"[listen]\ntoken = {PLANTED}",
    ],
)
def test_no_fault_repeats_a_secret_that_was_written_in_a_wrong_place(
    machine: Machine, text: str
) -> None:
    machine.write_own(text)
    with pytest.raises(BadConfigError) as caught:
        machine.load()
    assert "planted" not in caught.value.message
    assert "planted" not in repr(caught.value.to_json())


SCALARS = st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
NAMES = st.sampled_from(
    ["listen", "port", "token", "upstream", "url", "proxy", "limits", "model_limits", "parallel"]
) | st.sampled_from(
    ["hold", "quota", "caps", "tags", "body", "stream", "state", "log", "level", ""]
)
TABLES: st.SearchStrategy[dict[str, object]] = st.recursive(
    st.dictionaries(NAMES, SCALARS, max_size=4),
    lambda inner: st.dictionaries(NAMES, SCALARS | inner | st.lists(inner, max_size=2), max_size=4),
    max_leaves=6,
)


@given(TABLES)
def test_any_document_is_right_or_has_faults_and_never_crashes(table: dict[str, object]) -> None:
    layer = Layer.from_file(FileText(Path("/x/jackline.toml"), "", table, (), of_project=False))
    assert layer.values.keys() == layer.origins.keys()
    for fault in layer.faults:
        assert fault.what
