"""What holds for all verbs alike: JSON errors, exit codes, no traceback, help that fits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from jackline.cli.main import _MACHINE_VERBS, jackline, run
from jackline.drills.catalogue import all_drills
from jackline.errors import ExitCode, JacklineError

ROOT = Path(__file__).parents[2]


def _leaves(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        path = (*above, name)
        if isinstance(command, click.Group):
            yield from _leaves(command, path)
        elif command is not None:
            yield path


LEAVES = list(_leaves(jackline))
# Their words are another program's.
OWN_WORDS = [path for path in LEAVES if path[0] not in ("claude", "exec")]
IDS = [" ".join(path) for path in LEAVES]
OWN_IDS = [" ".join(path) for path in OWN_WORDS]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and no gateway."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "APPDATA", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("JACKLINE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("JACKLINE_PORT", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _error(out: str) -> dict[str, object]:
    document = json.loads(out)
    assert document["schema"] == "jackline.error/1"
    assert re.fullmatch(r"[a-z_]+", document["code"])
    assert document["message"]
    return dict(document)


@pytest.mark.parametrize("path", OWN_WORDS, ids=OWN_IDS)
def test_an_error_under_json_is_one_document_on_stdout(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code = run([*path, "--no-such-option", "--json"])
    out, err = capsys.readouterr()
    assert (code, err) == (ExitCode.USAGE, "")
    assert _error(out)["exit_code"] == ExitCode.USAGE


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["status", "--json"], ExitCode.UNREACHABLE),
        (["show", "nope", "--json"], ExitCode.USAGE),
        (["no-such-verb", "--json"], ExitCode.USAGE),
        (["why", "--json"], ExitCode.FAILED),
        (["why", "--jsonl", "x"], ExitCode.USAGE),
        (["why", "--jsonl", "--text", "x"], ExitCode.USAGE),
        (["run", "none.py", "--json", "--budget", "euros=3"], ExitCode.USAGE),
    ],
)
def test_errors_of_every_kind_are_documents(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == code
    out, err = capsys.readouterr()
    document = _error(out)
    assert (document["exit_code"], err) == (code, "")
    if words[0] != "why":
        assert document["hint"]


def test_without_json_an_error_is_a_sentence_and_a_next_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["show"]) == ExitCode.USAGE
    assert capsys.readouterr().err == "error: Missing argument 'ID'.\nhint:  jackline show --help\n"
    assert run(["exec", "--", "no-such-program", "--json"]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("error: there is no program")


UNKNOWN = [
    ("show", "nope"),
    ("logs", "nope"),
    ("resume", "nope"),
    ("resume", "nope", "--failed"),
    ("resume", "nope", "--only", "x"),
    ("fork", "nope", "--from", "x"),
    ("cancel", "nope"),
    ("cancel", "nope", "--only", "x"),
    ("rm", "nope", "--yes"),
    ("why", "nope"),
    ("drill", "nope"),
    ("upstream", "test", "nope"),
    ("upstream", "rm", "nope"),
    ("connect", "nope"),
    ("disconnect", "nope"),
    ("simulate", "nope"),
    ("run", "nope.py"),
    ("trust", "nope"),
    ("trust", "--remove", "nope"),
]


@pytest.mark.parametrize("words", UNKNOWN, ids=" ".join)
def test_a_name_that_names_nothing_is_always_the_same_exit_code(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(list(words)) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "\nhint:  " in err


@pytest.mark.parametrize("path", LEAVES, ids=IDS)
def test_the_help_fits_80_columns_and_says_something(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path, "--help"]) == ExitCode.DONE
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: jackline {' '.join(path)}")
    assert [line for line in shown.splitlines() if len(line) > 80] == []


# The others read no file of the user's, and take long or are run elsewhere.
READERS = [path for path in OWN_WORDS if path[0] not in ("simulate", "drill", *_MACHINE_VERBS)]


@pytest.mark.parametrize("path", READERS, ids=" ".join)
def test_no_verb_ends_with_a_bug_where_files_are_not_what_they_should_be(
    path: tuple[str, ...],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (place / "state").write_text("not a folder")
    (place / "junk.toml").write_bytes(b"\xff\xfe[[[")
    for name in ("settings.json", "config.toml"):
        (place / "home" / name).write_bytes(b"\xff{[")
    command: click.Command = jackline
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    needed = [
        one.type.choices[0] if isinstance(one.type, click.Choice) else "x"
        for one in command.params
        if isinstance(one, click.Argument) and one.required
    ]
    options = [
        word
        for one in command.params
        if isinstance(one, click.Option) and one.required
        for word in (one.opts[0], "x")
    ]
    for config in ("junk.toml", "none.toml"):
        monkeypatch.setenv("JACKLINE_CONFIG", str(place / config))
        code = run([*path, *needed, *options])
        out, err = capsys.readouterr()
        assert code in set(ExitCode)
        assert "a bug in Jackline" not in err
        assert "Traceback" not in out + err


@pytest.mark.parametrize("path", [("upstream", "add", "x"), ("upstream", "add", "x", "--first")])
def test_an_upstream_needs_an_address(
    path: tuple[str, ...], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(list(path)) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "--url or --preset is missing" in err
    assert not list((place / "home").iterdir()), "nothing was written"


@pytest.mark.parametrize("budget", ["euros=3", "dollars", "dollars=much", "", "dollars=1,cents=2"])
def test_a_bad_budget_lists_the_limits(budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "flow.py", "--budget", budget]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "is no budget" in err
    assert "the limits are tokens, dollars, agents, turns, seconds, and strict" in err


def test_drill_alone_lists_the_drills(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drill"]) == ExitCode.DONE
    lines = capsys.readouterr().out.splitlines()
    names = [each.name for each in all_drills()]
    assert [line.split()[0] for line in lines] == names
    assert run(["drill", "--json"]) == ExitCode.DONE
    listed = json.loads(capsys.readouterr().out)["drills"]
    assert [each["name"] for each in listed] == names
    assert all(each["about"] for each in listed)


# --- exit codes -----------------------------------------------------------------------------------


def test_the_tables_of_exit_codes_are_those_of_the_code() -> None:
    docs = (ROOT / "docs" / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", docs, re.MULTILINE)
    assert rows == [(str(int(code)), code.meaning) for code in ExitCode]
    readme = (
        (ROOT / "README.md").read_text("utf-8").partition("## Exit codes")[2].partition("##")[0]
    )
    assert re.findall(r"`(\d+)`", readme) == [str(int(code)) for code in ExitCode]


def test_every_error_exits_with_one_of_them() -> None:
    kinds = [JacklineError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert kind.exit_code in set(ExitCode)
