"""Rules for the verdict and for what a report says about each cause."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from jackline.autopsy.agent_reports import ReportedOutcome, shared_text
from jackline.autopsy.causes import Miss
from jackline.autopsy.figures import clock, duration
from jackline.autopsy.report import Fate, WhyReport, build
from jackline.transcripts.story import AgentStory, Role, TranscriptEnd
from tests.autopsy.story_makers import (
    MISSED,
    NOON,
    RESET,
    WALL,
    after,
    agent,
    agent_report,
    evidence,
    no_output,
    overload,
    quota,
    seen_failure,
    stopped,
    too_long,
)

if TYPE_CHECKING:
    from jackline.failures import Failure

LIMIT = "the account's session limit (HTTP 429), which resets 22:10 Europe/Kiev (19:10 UTC)"
LATER = after(3_600)


def report_on(*stories: AgentStory, now: datetime = LATER) -> WhyReport:
    return build(evidence(*stories), now=now)


def fleet(stopped_agents: int, finished: int) -> list[AgentStory]:
    return [
        *(stopped(f"s{n}", quota(), 100 + n) for n in range(stopped_agents)),
        *(agent(f"f{n}") for n in range(finished)),
    ]


@pytest.mark.parametrize(
    ("stopped_agents", "finished", "verdict"),
    [
        (37, 61, f"37 of 98 agents were stopped by one cause: {LIMIT}."),
        (1, 97, f"1 of 98 agents was stopped by one cause: {LIMIT}."),
        (3, 0, f"All 3 agents were stopped by one cause: {LIMIT}."),
        (2, 0, f"Both agents were stopped by one cause: {LIMIT}."),
        (1, 0, f"The agent was stopped by one cause: {LIMIT}."),
        (0, 1, "Nothing wrong was found: the one agent finished."),
        (0, 2, "Nothing wrong was found: both agents finished."),
        (0, 4, "Nothing wrong was found: all 4 finished."),
        (0, 0, "No agent was found in what was read."),
    ],
)
def test_the_verdict_counts_in_good_grammar(
    stopped_agents: int, finished: int, verdict: str
) -> None:
    assert report_on(*fleet(stopped_agents, finished)).verdict == verdict


def test_several_causes_are_counted_and_the_first_is_named() -> None:
    stories = [
        *fleet(2, 5),
        stopped("x", overload(), failures=[seen_failure(overload(), status=529)]),
    ]
    assert report_on(*stories).verdict == (
        f"3 of 8 agents were stopped by 2 causes; the first, {LIMIT}, stopped 2 agents."
    )


def test_a_session_alone_is_called_a_session() -> None:
    main = stopped("main", quota(), role=Role.MAIN)
    assert report_on(main).verdict == f"The session was stopped by one cause: {LIMIT}."


def test_without_a_status_or_a_reset_the_verdict_names_neither() -> None:
    plain = stopped("a", overload(), failures=[seen_failure(overload(), status=None)])
    assert "HTTP" not in report_on(plain, agent("b")).verdict
    assert "resets" not in report_on(plain, agent("b")).verdict


def test_agents_that_stopped_silently_are_counted_in_the_verdict() -> None:
    cut = agent("cut", ending=TranscriptEnd.CUT)
    failed = agent("failed", ending=TranscriptEnd.FAILED)
    assert report_on(agent("a"), cut, failed).verdict == (
        "No cause was found: 1 of 3 agents finished, 1 failed without a stated reason, "
        "1 stopped silently."
    )


def test_a_transcript_that_grew_just_now_may_still_be_running() -> None:
    cut = agent("a", ending=TranscriptEnd.CUT, ended=100)
    (warm,) = report_on(cut, now=after(160)).agents
    (cold,) = report_on(cut, now=after(3_600)).agents
    assert (warm.fate, cold.fate) == (Fate.RUNNING, Fate.CUT)


def test_a_reset_on_another_day_carries_its_date() -> None:
    assert clock(RESET, beside=NOON) == "22:10 Europe/Kiev (19:10 UTC)"
    assert clock(RESET, beside=NOON - timedelta(days=1)) == (
        "2026-06-18 22:10 Europe/Kiev (19:10 UTC)"
    )
    in_utc = datetime(2026, 6, 18, 19, 10, tzinfo=UTC)
    assert clock(in_utc, beside=NOON) == "19:10 UTC"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.96, "0.96 s"),
        (34.5, "34.5 s"),
        (59.99, "1 min"),
        (245, "4 min 5 s"),
        (7_380, "2 h 3 min"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, words: str) -> None:
    assert duration(timedelta(seconds=seconds)) == words


def test_the_pattern_of_a_storm_is_measured_over_all_agents() -> None:
    stories = [stopped(f"s{n}", quota(), 100 + n * 0.96) for n in range(37)]
    rhythm = report_on(*stories).causes[0].pattern
    assert rhythm.count == 37
    assert rhythm.span == timedelta(seconds=34.56)
    assert rhythm.median_interval == timedelta(seconds=0.96)
    assert not rhythm.waited


@pytest.mark.parametrize(("pause", "waited"), [(29.0, False), (30.0, True)])
def test_a_pause_of_half_a_minute_is_waiting(pause: float, waited: bool) -> None:
    stories = [stopped("a", overload(), 100), stopped("b", overload(), 100 + pause)]
    assert report_on(*stories).causes[0].pattern.waited is waited


def test_spending_is_split_at_the_first_refusal_and_ends_to_count_at_the_reset() -> None:
    def second(moment: datetime) -> int:
        return int(moment.timestamp())

    worker = agent(
        "w",
        spent={second(after(99)): 10, second(after(101)): 20, second(RESET) + 60: 40},
    )
    late = stopped("late", quota(), 120, begun=110)
    spending = report_on(stopped("a", quota(), 100), late, worker).causes[0].spending
    assert spending is not None
    assert (spending.before, spending.after, spending.started_after) == (10, 20, 1)


@pytest.mark.parametrize("failure", [overload(), too_long()])
def test_failures_that_heal_or_concern_one_request_have_no_point_of_no_return(
    failure: Failure,
) -> None:
    assert report_on(stopped("a", failure)).causes[0].spending is None


def test_reports_are_compared_with_what_happened() -> None:
    stories = [
        stopped("wrong", quota(), reports=[agent_report(MISSED)]),
        stopped("right", quota(), reports=[agent_report(WALL)]),
        stopped("happy", quota(), reports=[agent_report(WALL, "completed", is_error=False)]),
        stopped("silent", quota()),
    ]
    rows = report_on(*stories).causes[0].reported
    assert {row.outcome: row.count for row in rows} == {
        ReportedOutcome.ANOTHER_CAUSE: 1,
        ReportedOutcome.THE_CAUSE: 1,
        ReportedOutcome.SUCCESS: 1,
        ReportedOutcome.NOTHING: 1,
    }


def test_reports_that_differ_in_a_number_are_one_row() -> None:
    stories = [
        stopped(f"s{n}", quota(), reports=[agent_report(f"parallel[{n}] failed: {MISSED}")])
        for n in range(15)
    ]
    (row,) = report_on(*stories).causes[0].reported
    assert row.count == 15
    assert row.text == f"… failed: {MISSED}"


def test_reports_in_different_words_stay_apart() -> None:
    reworded = "StructuredOutput retry cap (5) exceeded"
    stories = [
        stopped("a", quota(), reports=[agent_report(MISSED)]),
        stopped("b", quota(), reports=[agent_report(reworded)]),
    ]
    rows = report_on(*stories).causes[0].reported
    assert {row.text for row in rows} == {MISSED, reworded}


def test_reports_to_sessions_without_a_stopped_agent_are_left_out() -> None:
    happy = [agent_report("Done.", "completed", is_error=False)]
    other = agent("other", role=Role.MAIN, session_id="other", reports=happy)
    main = agent("main", role=Role.MAIN, reports=happy)
    rows = report_on(stopped("a", quota()), main, other).reported_to_user
    assert [row.count for row in rows] == [1]


def test_shared_text_keep_what_all_begin_and_end_with() -> None:
    assert shared_text(["a b c", "a x c"]) == "a … c"
    assert shared_text(["a b", "a b"]) == "a b"
    assert shared_text(["a", "b"]) == "…"
    assert shared_text([None, None]) is None


@pytest.mark.parametrize(
    ("sub", "ending", "how"),
    [
        ("absent", TranscriptEnd.FINISHED, Miss.PROSE),
        ("max_turns", TranscriptEnd.FAILED, Miss.TURN_LIMIT),
        ("retries_exhausted", TranscriptEnd.FAILED, Miss.INVALID),
        ("invalid", TranscriptEnd.FAILED, Miss.INVALID),
        ("not_offered", TranscriptEnd.FAILED, Miss.NOT_OFFERED),
        (None, TranscriptEnd.FAILED, Miss.UNKNOWN),
    ],
)
def test_a_genuine_miss_says_how_it_came(sub: str, ending: TranscriptEnd, how: Miss) -> None:
    missed = stopped("a", no_output(sub), reports=[agent_report(MISSED)])
    missed.ending = ending
    if ending is TranscriptEnd.FINISHED:
        missed.failures = []
    assert report_on(missed, agent("b")).causes[0].misses == ((how, 1),)


def test_agents_are_resumed_in_the_way_of_their_client_and_role() -> None:
    stories = [
        stopped("sub1", overload(), cwd="/home/user/my project"),
        stopped("sub2", overload(), cwd="/home/user/my project"),
        stopped("wf", overload(), role=Role.WORKFLOW, run_id="wf_1"),
        stopped("cx", overload(), role=Role.MAIN, client="codex", session_id="0199"),
    ]
    ways = {way.command: way for way in report_on(*stories).resume_options}
    in_project = ways["cd -- '/home/user/my project' && claude --resume 5e55-1on"]
    assert in_project.agents == ("sub1", "sub2")
    assert "SendMessage to sub1 and sub2" in (in_project.then or "")
    assert "resumeFromRunId: 'wf_1'" in (ways["claude --resume 5e55-1on"].then or "")
    assert ways["codex resume 0199"].then is None


@pytest.mark.parametrize(
    ("session", "cwd", "client"),
    [
        ("--dangerously-skip-permissions", "/home/user", "claude-code"),
        ("-c", "/home/user", "codex"),
        ("", "/home/user", "claude-code"),
        ("a b", "/home/user", "claude-code"),
        ("a\n", "/home/user", "codex"),
        ("a;reboot", "/home/user", "codex"),
        ("5e55", "/home/user/\x1b[2Jx", "claude-code"),
        ("5e55", "/home/a\nreboot", "claude-code"),
        ("5e55", "/home/a\u202eb", "claude-code"),
        ("5e55", "-P", "claude-code"),
        ("5e55", "-", "claude-code"),
        ("5e55", "relative", "claude-code"),
    ],
)
def test_what_no_client_writes_into_a_transcript_makes_no_command(
    session: str, cwd: str, client: str
) -> None:
    story = stopped("a", overload(), role=Role.MAIN, client=client, session_id=session, cwd=cwd)
    assert report_on(story).resume_options == ()


def test_a_run_that_no_client_names_so_is_not_named() -> None:
    odd = stopped("a", overload(), role=Role.WORKFLOW, run_id="x'; say anything")
    assert [way.then for way in report_on(odd).resume_options] == [None]


def test_resuming_waits_for_a_reset_that_is_still_to_come() -> None:
    story = stopped("a", quota())
    assert report_on(story, now=after(200)).resume_options[0].not_before == RESET
    assert report_on(story, now=RESET + timedelta(minutes=1)).resume_options[0].not_before is None


def test_advice_before_and_after_the_reset_differs() -> None:
    story = stopped("a", quota())
    before = report_on(story, now=after(200)).causes[0].advice
    afterwards = report_on(story, now=RESET + timedelta(minutes=1)).causes[0].advice
    assert before[0] == "Wait until 22:10 Europe/Kiev (19:10 UTC), then resume."
    assert afterwards[0] == "The reset (22:10 Europe/Kiev (19:10 UTC)) has passed: resume now."


def test_results_are_counted_by_file_whatever_their_line() -> None:
    stories = [agent(f"a{n}", result_at=f"journal.jsonl:{n}") for n in range(3)]
    assert report_on(*stories).result_files() == [("journal.jsonl", 3)]


def test_fates_add_up_to_all_agents() -> None:
    stories = [
        *fleet(3, 4),
        agent("cut", ending=TranscriptEnd.CUT),
        agent("x", ending=TranscriptEnd.FAILED),
    ]
    found = report_on(*stories)
    counts = {fate: len(found.having(fate)) for fate in Fate}
    assert sum(counts.values()) == len(stories)
    assert counts[Fate.STOPPED] == sum(len(cause.cause.agents) for cause in found.causes)
