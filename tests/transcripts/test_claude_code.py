"""What transcripts of the real Claude Code say, as stories."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jackline.failures import Kind
from jackline.transcripts.story import Role, TranscriptEnd
from tests.transcripts.transcript_data import by_label, only_main, saved


def test_an_agent_whose_last_line_is_an_api_error_failed_though_its_parent_heard_completed() -> (
    None
):
    agents = by_label(saved("a_429_one_of_three_foreground-2.1.197"))
    dead = agents["Review PART-2"]
    assert dead.ending is TranscriptEnd.FAILED
    (seen,) = dead.failures
    assert (seen.status, seen.request_id, seen.fatal) == (429, "req_lab00009", True)
    assert seen.failure.kind is Kind.RATE_LIMIT
    (report,) = dead.reports
    assert (report.reporter, report.claim, report.is_error) == ("tool result", "completed", False)
    assert report.text == seen.text


def test_siblings_of_a_dead_agent_finished_and_their_answers_are_named_by_line() -> None:
    agents = by_label(saved("a_429_one_of_three_foreground-2.1.197"))
    for label in ("Review PART-1", "Review PART-3"):
        story = agents[label]
        assert story.ending is TranscriptEnd.FINISHED
        assert story.result_at == f"{story.path}:6"
        assert not story.failures


def test_identity_comes_from_the_lines_and_the_note_beside_them() -> None:
    evidence = saved("a_429_one_of_three_foreground-2.1.197")
    main = only_main(evidence)
    dead = by_label(evidence)["Review PART-2"]
    assert main.agent_id == main.session_id == dead.session_id == dead.parent_id
    assert (dead.role, dead.agent_type) == (Role.SUBAGENT, "general-purpose")
    assert (dead.client, dead.client_version) == ("claude-code", "2.1.197")
    assert (dead.model, dead.cwd) == ("claude-opus-4-8", "/home/user/project")
    assert dead.agent_id == dead.path.stem.removeprefix("agent-")


def test_tokens_of_an_answer_count_once_however_many_lines_it_has() -> None:
    dead = by_label(saved("a_429_one_of_three_foreground-2.1.197"))["Review PART-2"]
    assert dead.turns == 1
    assert dead.tool_calls == 1
    assert dead.tokens == 3 + 11_319 + 31
    answered_at = datetime(2026, 11, 15, 8, 25, 47, tzinfo=UTC)
    assert list(dead.spent) == [int(answered_at.timestamp())]


def test_a_background_agent_is_reported_dead_by_a_notification() -> None:
    dead = by_label(saved("a_429_one_of_three-2.1.325"))["Review PART-2"]
    (report,) = dead.reports
    assert (report.reporter, report.claim, report.is_error) == ("task notification", "failed", True)
    assert dead.failures[-1].text in report.text


def test_retries_of_a_sub_agent_are_seen_by_the_same_request_sent_again() -> None:
    dead = by_label(saved("a_429_one_of_three-2.1.325"))["Review PART-2"]
    assert [sighting.fatal for sighting in dead.failures] == [False, False, True]
    assert {sighting.failure.kind for sighting in dead.failures} == {Kind.RATE_LIMIT}
    times = [sighting.at for sighting in dead.failures if sighting.at is not None]
    assert times == sorted(times)


def test_retries_of_the_main_agent_stand_on_lines_of_their_own() -> None:
    main = only_main(saved("i_429_main_mid-2.1.325"))
    assert [sighting.fatal for sighting in main.failures] == [False, False, True]
    assert all(sighting.status == 429 for sighting in main.failures)


def test_the_reset_is_exact_where_the_client_kept_it() -> None:
    agents = by_label(saved("b_quota_subagents_foreground-2.1.325"))
    for label in ("Review PART-2", "Review PART-3"):
        failure = agents[label].failures[-1].failure
        assert (failure.kind, failure.sub) == (Kind.ACCOUNT_QUOTA, "session")
        assert failure.resets_at == datetime.fromtimestamp(1_794_738_365, UTC)


def test_a_report_without_agent_id_finds_its_agent_by_the_tool_call() -> None:
    first_call_died = by_label(saved("b_quota_subagents_foreground-2.1.325"))["Review PART-3"]
    (report,) = first_call_died.reports
    assert (report.claim, report.is_error) == ("error", True)


def test_partial_work_is_cut_out_of_reports() -> None:
    dead = by_label(saved("b_quota_subagents_foreground-2.1.325"))["Review PART-2"]
    (report,) = dead.reports
    assert "PARTIAL" not in report.text
    assert dead.failures[-1].text in report.text


@pytest.mark.parametrize(
    ("run", "kind"),
    [("c_529_subagent-2.1.197", Kind.OVERLOADED), ("d_refused_mid-2.1.325", Kind.NETWORK_EDGE)],
)
def test_an_error_line_without_a_status_is_an_error_all_the_same(run: str, kind: Kind) -> None:
    fatal = [s for story in saved(run).stories for s in story.failures if s.fatal]
    assert {(sighting.status, sighting.failure.kind) for sighting in fatal} == {(None, kind)}


def test_a_turn_limit_is_a_failure_of_its_own() -> None:
    main = only_main(saved("f_max_turns_main-2.1.325"))
    assert main.ending is TranscriptEnd.FAILED
    assert main.failures[-1].failure.sub == "max_turns"


def test_an_agent_killed_inside_a_tool_was_cut() -> None:
    killed = by_label(saved("g_sigkill_tool-2.1.197"))["Review PART-2"]
    assert killed.ending is TranscriptEnd.CUT
    assert not killed.failures


def test_filler_after_a_kill_is_neither_an_answer_nor_an_error() -> None:
    main = only_main(saved("g_sigkill_tool-2.1.197"))
    assert not main.failures
    assert main.last_words == "All parts are back. Review finished."


def test_an_error_in_the_middle_is_seen_but_the_last_line_decides() -> None:
    resumed = by_label(saved("k_resume_sendmessage-2.1.197"))["Review PART-2"]
    assert resumed.ending is TranscriptEnd.FINISHED
    assert [sighting.failure.kind for sighting in resumed.failures] == [Kind.RATE_LIMIT]


def test_healthy_agents_have_nothing_to_tell() -> None:
    evidence = saved("h_healthy-2.1.325")
    assert len(evidence.stories) == 4
    assert all(story.ending is TranscriptEnd.FINISHED for story in evidence.stories)
    assert not any(story.failures for story in evidence.stories)
    assert not evidence.problems


def test_workflow_agents_know_their_run_and_where_the_journal_keeps_their_result() -> None:
    agents = by_label(saved("e4_workflow_quota-2.1.197"))
    finished = agents["audit:one"]
    assert (finished.role, finished.run_id) == (Role.WORKFLOW, "wf_26200f73-c38")
    assert finished.ending is TranscriptEnd.FINISHED
    assert (finished.result_at or "").endswith("journal.jsonl:4")
    dead = agents["audit:two"]
    assert (dead.ending, dead.result_at) == (TranscriptEnd.FAILED, None)
    assert dead.failures[-1].failure.kind is Kind.ACCOUNT_QUOTA
    assert [(report.claim, report.is_error) for report in dead.reports] == [("failed", True)]


@pytest.mark.parametrize("version", ["2.1.197", "2.1.325"])
def test_a_failure_without_a_name_goes_to_the_agent_without_a_result(version: str) -> None:
    agents = by_label(saved(f"e3_workflow_prose-{version}"))
    missed = agents["audit:two"]
    assert missed.result_at is None
    (report,) = missed.reports
    assert report.is_error
    assert not agents["audit:one"].reports
    assert not agents["audit:three"].reports


def test_a_quota_behind_a_type_error_is_reported_as_the_quota() -> None:
    dead = by_label(saved("e8_workflow_alone_quota-2.1.325"))["audit:two"]
    assert dead.failures[-1].failure.kind is Kind.ACCOUNT_QUOTA
    assert [dead.failures[-1].text in report.text for report in dead.reports] == [True]
