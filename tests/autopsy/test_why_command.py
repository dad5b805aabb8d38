"""Rules for `jackline why` as a user meets it: streams, exit codes, bad input, no tracebacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from jackline.autopsy.replica import SESSION_ID, write_replica
from jackline.cli.main import run
from jackline.transcripts import reader
from tests.cli.commands import Answer, jackline

if TYPE_CHECKING:
    from pathlib import Path

VERDICT = (
    "37 of 98 agents were stopped by one cause: the account's session limit (HTTP 429), which "
    "resets 22:10 Europe/Kiev (19:10 UTC)."
)
NOW = "2026-06-18T20:50:00+03:00"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_replica(folder)
    return folder


def why(home: Path, *arguments: str | Path) -> Answer:
    moved = {"CLAUDE_CONFIG_DIR": str(home / ".claude"), "CODEX_HOME": str(home / ".codex")}
    return jackline("why", *arguments, env=moved)


def test_the_demo_shows_the_incident_and_says_that_it_is_synthetic() -> None:
    answer = jackline("why", "--demo")
    assert answer.code == 0
    assert answer.err == ""
    first, second, *_ = answer.out.splitlines()
    assert first == VERDICT
    assert "synthetic" in second


def test_the_demo_is_the_same_every_time() -> None:
    assert jackline("why", "--demo").out == jackline("why", "--demo").out


@pytest.mark.parametrize("wanted", [[], [SESSION_ID[:8]], ["{home}"]])
def test_nothing_named_an_id_or_a_folder_all_find_the_session(
    home: Path, wanted: list[str]
) -> None:
    answer = why(home, "--now", NOW, *(word.format(home=home) for word in wanted))
    assert answer.code == 0
    assert answer.out.splitlines()[0] == VERDICT


def test_stdout_holds_one_json_document_and_nothing_else(home: Path) -> None:
    answer = why(home, "--json", "--now", NOW)
    document = json.loads(answer.out)
    assert document["schema"] == "jackline.why/2"
    assert document["verdict"] == VERDICT
    assert answer.err == ""


def test_the_page_is_written_and_the_verdict_printed(home: Path, tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    answer = why(home, "--html", page, "--now", NOW)
    assert answer.out == f"{VERDICT}\n"
    assert "wrote" in answer.err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_table_counts_stopped_agents_and_reports(home: Path) -> None:
    answer = why(home, "--since", "24h", "--now", "2026-07-30T12:00:00+00:00")
    assert answer.code == 1
    assert "No agent was stopped" in answer.out
    recent = why(home, "--since", "24h", "--now", NOW)
    assert recent.code == 0
    assert recent.out.startswith("37 of 98 agents in 1 session were stopped")
    row = json.loads(why(home, "--since", "24h", "--json", "--now", NOW).out)["rows"][0]
    assert (row["agents"], row["reported_error"], row["not_reported"]) == (37, 15, 22)


def test_prompts_appear_only_when_asked_for(home: Path) -> None:
    assert "audit:module" not in why(home).out
    assert "audit:module" in why(home, "--show-content").out


def test_nothing_wrong_exits_with_one_and_says_what_was_read(home: Path, tmp_path: Path) -> None:
    main = next((home / ".claude" / "projects").rglob(f"{SESSION_ID}.jsonl"))
    alone = tmp_path / "alone.jsonl"
    alone.write_bytes(main.read_bytes())
    answer = why(home, alone)
    assert answer.code == 1
    assert answer.out.startswith("Nothing wrong was found: the one agent finished.")
    assert "Looked at 1 file" in answer.out


def test_a_folder_without_transcripts_exits_with_one_and_names_it(tmp_path: Path) -> None:
    answer = jackline("why", tmp_path)
    assert answer.code == 1
    assert "No agent was found" in answer.out
    assert str(tmp_path) in answer.out


def test_broken_lines_are_counted_and_named_at_the_end(home: Path, tmp_path: Path) -> None:
    main = next((home / ".claude" / "projects").rglob(f"{SESSION_ID}.jsonl"))
    hurt = tmp_path / "hurt.jsonl"
    hurt.write_bytes(main.read_bytes() + b'{"type": \xff\n' + b'{"half')
    answer = why(home, hurt)
    assert "hurt.jsonl" in answer.out.splitlines()[-1]
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--since", "soon"],
        ["--now", "yesterday"],
        ["--demo", "x"],
        ["no-such-session-id"],
        ["no/such/file.jsonl"],
        ["--html", "/no/such/folder/page.html", "--demo"],
        ["--what"],
    ],
)
def test_usage_errors_exit_with_two_and_say_what_to_do(home: Path, arguments: list[str]) -> None:
    answer = why(home, *arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert "Traceback" not in answer.err
    assert answer.err.strip()


def test_help_has_two_examples_and_the_exit_codes() -> None:
    answer = jackline("why", "--help")
    assert answer.code == 0
    assert answer.out.count("  jackline why") >= 2
    assert "Exit codes" in answer.out


def test_an_interrupt_exits_with_130_and_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reader, "read", interrupted)
    assert run(["why", str(home)]) == 130
    printed = capsys.readouterr()
    assert (printed.out, printed.err.strip()) == ("", "interrupted")
