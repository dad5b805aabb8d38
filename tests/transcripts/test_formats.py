"""Printed logs, Codex rollouts, and several records of the same agents."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jackline.failures import Kind
from jackline.transcripts.story import Role, TranscriptEnd
from tests.transcripts.transcript_data import DATA, by_label, only_main, printed, read_place, saved


def test_a_log_alone_shows_through_a_completed_agent_that_cost_nothing() -> None:
    dead = by_label(printed("a_429_one_of_three_foreground-2.1.197"))["Review PART-2"]
    assert dead.ending is TranscriptEnd.FAILED
    assert dead.failures[-1].failure.kind is Kind.RATE_LIMIT
    assert [report.claim for report in dead.reports] == ["completed", "completed"]


def test_a_log_names_background_agents_by_their_ids() -> None:
    agents = by_label(printed("a_429_one_of_three-2.1.325"))
    transcripts = by_label(saved("a_429_one_of_three-2.1.325"))
    for label, story in agents.items():
        assert story.agent_id == transcripts[label].agent_id
        assert story.ending is transcripts[label].ending


def test_wordless_retries_are_explained_by_the_error_they_led_to() -> None:
    main = only_main(printed("i_429_main_mid-2.1.325"))
    assert [sighting.fatal for sighting in main.failures] == [False, False, True]
    assert len({sighting.failure.kind for sighting in main.failures}) == 1


def test_a_log_shows_the_agents_of_a_workflow_by_its_progress() -> None:
    agents = by_label(printed("e4_workflow_quota-2.1.325"))
    dead = agents["audit:two"]
    assert (dead.role, dead.run_id) == (Role.WORKFLOW, "wf_29ca5fad-0b7")
    assert dead.failures[-1].failure.kind is Kind.ACCOUNT_QUOTA
    assert agents["audit:one"].ending is TranscriptEnd.FINISHED


def test_a_result_with_is_error_failed_whatever_its_subtype_says() -> None:
    main = only_main(printed("e2_schema_invalid-2.1.325"))
    assert main.ending is TranscriptEnd.FAILED
    assert main.failures[-1].failure.kind is Kind.MISSING_STRUCTURED_OUTPUT
    assert [(report.reporter, report.is_error) for report in main.reports] == [("result", True)]


@pytest.mark.parametrize(
    "run",
    ["a_429_one_of_three-2.1.325", "e4_workflow_quota-2.1.325", "k_resume_sendmessage-2.1.197"],
)
def test_an_agent_with_a_transcript_and_a_log_appears_once_and_by_its_transcript(run: str) -> None:
    both = read_place(DATA / run)
    alone = saved(run)
    assert sorted(s.agent_id for s in both.stories) == sorted(s.agent_id for s in alone.stories)
    tokens = {story.agent_id: story.tokens for story in alone.stories}
    assert {story.agent_id: story.tokens for story in both.stories} == tokens


def test_a_run_state_alone_still_tells_who_died_of_what(tmp_path: Path) -> None:
    (state,) = (DATA / "e4_workflow_quota-2.1.197").rglob("workflows/wf_*.json")
    place = tmp_path / "session-1" / "workflows" / state.name
    place.parent.mkdir(parents=True)
    shutil.copy(state, place)
    agents = by_label(read_place(place))
    assert agents["audit:two"].ending is TranscriptEnd.FAILED
    assert agents["audit:two"].session_id == "session-1"
    assert agents["audit:two"].failures[-1].failure.kind is Kind.ACCOUNT_QUOTA
    assert agents["audit:one"].ending is TranscriptEnd.FINISHED


def test_a_codex_turn_that_completed_with_an_error_failed() -> None:
    (story,) = saved("j_429-codex-0.166.0").stories
    assert (story.client, story.ending, story.model) == ("codex", TranscriptEnd.FAILED, "gpt-5.1")
    (seen,) = story.failures
    assert (seen.status, seen.fatal) == (429, True)
    assert [report.is_error for report in story.reports] == [True]


def test_a_codex_quota_knows_its_reset_from_the_plan_s_windows() -> None:
    (story,) = saved("j_usage_limit-codex-0.166.0").stories
    failure = story.failures[-1].failure
    assert (failure.kind, failure.sub) == (Kind.ACCOUNT_QUOTA, "session")
    assert failure.resets_at is not None
    assert failure.resets_at > datetime(2026, 11, 15, 10, 0, tzinfo=UTC)


def test_codex_tokens_are_the_growth_of_the_running_total() -> None:
    (healthy,) = saved("j_healthy-codex-0.166.0").stories
    assert healthy.tokens == 19_880
    assert (healthy.ending, healthy.turns, healthy.tool_calls) == (TranscriptEnd.FINISHED, 1, 1)
    assert healthy.last_words == "The project is fine."


def test_a_codex_session_that_was_terminated_was_cut_and_its_tokens_are_kept() -> None:
    (story,) = saved("j_sigterm-codex-0.166.0").stories
    assert story.ending is TranscriptEnd.CUT
    assert story.tokens > 0
