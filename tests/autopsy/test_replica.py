"""The incident's replica, read by the real reader, yields exactly the incident's story."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from jackline.autopsy.agent_reports import ReportedOutcome
from jackline.autopsy.replica import READ_AT, SESSION_ID, write_replica
from jackline.autopsy.report import Fate, WhyReport, build
from jackline.autopsy.text_report import render
from jackline.transcripts import reader as reading
from jackline.transcripts import sources
from jackline.transcripts.sources import ClientFolders

if TYPE_CHECKING:
    from pathlib import Path

Tree = dict[str, bytes]


def files_of(folder: Path) -> Tree:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("incident")
    write_replica(folder)
    return folder


@pytest.fixture(scope="module")
def report(incident: Path) -> WhyReport:
    found = sources.find([SESSION_ID], stores=ClientFolders.of(incident, {}))
    return build(reading.read(found), now=READ_AT)


def test_two_replicas_are_equal_byte_for_byte(incident: Path, tmp_path: Path) -> None:
    write_replica(tmp_path)
    ours, theirs = files_of(tmp_path), files_of(incident)
    # The main transcript names the folder it lies in, as the real one does.
    main = next(name for name in ours if name.endswith(f"{SESSION_ID}.jsonl"))
    ours[main] = ours[main].replace(str(tmp_path).encode(), str(incident).encode())
    assert ours == theirs


def test_the_tree_holds_ninety_eight_transcripts(incident: Path) -> None:
    names = [name for name in files_of(incident) if name.endswith(".jsonl")]
    assert len([name for name in names if not name.endswith("journal.jsonl")]) == 98


def test_the_first_line_is_the_verdict_of_the_incident(report: WhyReport) -> None:
    assert render(report).splitlines()[0] == (
        "37 of 98 agents were stopped by one cause: the account's session limit (HTTP 429), "
        "which resets 22:10 Europe/Kiev (19:10 UTC)."
    )


def test_the_wall_was_met_thirty_seven_times_in_thirty_four_and_a_half_seconds(
    report: WhyReport,
) -> None:
    (described,) = report.causes
    assert described.pattern.count == 37
    assert described.pattern.span == timedelta(seconds=34.5)
    assert described.pattern.median_interval == timedelta(seconds=0.96)
    assert not described.pattern.waited
    assert "occurred 37 times in 34.5 s, every 0.96 s. Nothing waited" in render(report)


def test_the_agents_spent_two_million_tokens_of_which_some_after_hope_was_gone(
    report: WhyReport,
) -> None:
    spending = report.causes[0].spending
    assert spending is not None
    assert report.tokens == 2_077_133
    assert spending.before + spending.after == 2_077_133
    assert spending.after == 33_690
    assert spending.started_after == 21


def test_fifteen_were_blamed_on_the_structured_output_and_the_rest_on_nothing(
    report: WhyReport,
) -> None:
    rows = {row.outcome: row for row in report.causes[0].reported}
    assert rows[ReportedOutcome.ANOTHER_CAUSE].count == 15
    assert "subagent completed without calling StructuredOutput" in (
        rows[ReportedOutcome.ANOTHER_CAUSE].text or ""
    )
    assert sum(row.count for row in rows.values()) == 37


def test_the_finished_agents_results_are_found_in_the_journal(report: WhyReport) -> None:
    finished = report.having(Fate.FINISHED)
    assert len(finished) == 61
    assert len([a for a in finished if "journal.jsonl" in (a.story.result_at or "")]) == 60


def test_all_stopped_agents_resume_through_their_run_after_the_reset(report: WhyReport) -> None:
    (way,) = report.resume_options
    assert len(way.agents) == 37
    assert way.command == f"cd -- /home/user/project && claude --resume {SESSION_ID}"
    assert way.not_before is not None
    assert way.not_before.isoformat() == "2026-06-18T22:10:00+03:00"


def test_the_replica_is_read_without_problems(report: WhyReport) -> None:
    assert report.problems == ()
