"""Rules for grouping what stopped agents into causes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from jackline.autopsy.causes import Judgement, judge
from jackline.failures import Failure, Kind
from jackline.transcripts.story import AgentStory, Role, TranscriptEnd
from tests.autopsy.story_makers import (
    MISSED,
    NOON,
    RESET,
    WALL,
    after,
    agent,
    agent_report,
    no_output,
    overload,
    quota,
    refused_connection,
    seen_failure,
    stopped,
    too_long,
)

if TYPE_CHECKING:
    import random

FAILURES = (
    quota(),
    quota(None),
    quota(None, None),
    quota(RESET + timedelta(seconds=40)),
    quota(RESET + timedelta(days=1)),
    quota(sub="weekly"),
    overload(),
    refused_connection(),
    too_long(),
    no_output(),
)


def names(judgement: Judgement) -> list[list[str]]:
    return [[story.agent_id for story in cause.agents] for cause in judgement.causes]


def test_the_same_wall_in_other_words_is_one_cause() -> None:
    spelled = seen_failure(quota(), 1, text=WALL)
    reworded = seen_failure(quota(), 2, text="You've hit your 5-hour limit · resets 10:10pm")
    stories = [
        stopped("a", quota(), failures=[spelled]),
        stopped("b", quota(), failures=[reworded]),
    ]
    assert names(judge(stories, now=NOON)) == [["a", "b"]]


def test_a_header_with_seconds_and_a_text_with_minutes_name_one_reset() -> None:
    by_header = quota(RESET + timedelta(seconds=5))
    judgement = judge([stopped("a", quota()), stopped("b", by_header)], now=NOON)
    assert len(judgement.causes) == 1


def test_walls_with_resets_a_day_apart_are_two_causes() -> None:
    tomorrow = quota(RESET + timedelta(days=1))
    judgement = judge([stopped("a", quota()), stopped("b", tomorrow, 90_000)], now=NOON)
    assert names(judgement) == [["a"], ["b"]]


def test_an_occurrence_without_a_reset_belongs_to_the_cause_nearest_in_time() -> None:
    tomorrow = RESET + timedelta(days=1)
    stories = [
        stopped("early", quota(), 100),
        stopped("late", quota(tomorrow), 90_000),
        stopped("vague", quota(None, None), 89_990),
    ]
    assert names(judge(stories, now=NOON)) == [["vague", "late"], ["early"]]


def test_resets_of_limits_that_heal_by_themselves_do_not_separate_causes() -> None:
    def minute_limit(seconds: float) -> Failure:
        plain = overload()
        return Failure(
            Kind.RATE_LIMIT, "rpm", plain.scope, True, True, resets_at=after(seconds + 60)
        )

    stories = [stopped(str(n), minute_limit(n * 600.0), n * 600.0) for n in range(4)]
    assert len(judge(stories, now=NOON).causes) == 1


def test_an_api_failure_in_the_transcript_outweighs_a_report_of_no_structured_output() -> None:
    story = stopped("a", quota(), reports=[agent_report(MISSED)])
    (cause,) = judge([story], now=NOON).causes
    assert cause.failure.kind is Kind.ACCOUNT_QUOTA


def test_an_api_failure_outweighs_a_miss_that_the_client_noted_after_it() -> None:
    both = [seen_failure(quota(), 99), seen_failure(no_output(), 100, text=MISSED)]
    (cause,) = judge([stopped("a", quota(), failures=both)], now=NOON).causes
    assert cause.failure.kind is Kind.ACCOUNT_QUOTA


def test_a_transcript_that_ends_well_can_still_have_missed_its_structured_output() -> None:
    story = agent("a", role=Role.WORKFLOW, reports=[agent_report(MISSED)])
    (cause,) = judge([story], now=NOON).causes
    assert cause.failure.kind is Kind.MISSING_STRUCTURED_OUTPUT
    assert cause.agents == [story]


def test_a_report_of_an_api_failure_does_not_stop_an_agent_that_finished() -> None:
    assert judge([agent("a", reports=[agent_report(WALL)])], now=NOON).causes == []


def test_reports_to_a_main_session_about_others_do_not_stop_it() -> None:
    main = agent("main", role=Role.MAIN, reports=[agent_report(MISSED)])
    assert judge([main], now=NOON).causes == []


def test_a_failure_that_an_agent_went_on_from_is_survived() -> None:
    retried = seen_failure(overload(), 50, fatal=False)
    judgement = judge([agent("a", failures=[retried])], now=NOON)
    assert judgement.causes == []
    assert [cause.failure.kind for cause in judgement.survived] == [Kind.OVERLOADED]


def test_a_resumed_agent_that_finished_is_not_counted_as_stopped() -> None:
    story = agent("a", failures=[seen_failure(quota(), 50)], ended=500)
    assert judge([story], now=NOON).causes == []


def test_a_cut_transcript_whose_last_line_is_a_failure_was_stopped_by_it() -> None:
    story = agent("a", ending=TranscriptEnd.CUT, ended=100, failures=[seen_failure(quota(), 100)])
    assert names(judge([story], now=NOON)) == [["a"]]


def test_a_failed_agent_without_any_reason_is_unexplained() -> None:
    story = agent("a", ending=TranscriptEnd.FAILED)
    judgement = judge([story], now=NOON)
    assert judgement.unexplained == [story]
    assert judgement.causes == []


def test_causes_are_ranked_by_agents_stopped_then_by_first_occurrence() -> None:
    stories = [
        stopped("late", overload(), 300),
        stopped("early", refused_connection(), 100),
        *(stopped(f"q{n}", quota(), 500) for n in range(2)),
    ]
    judgement = judge(stories, now=NOON)
    assert names(judgement) == [["q0", "q1"], ["early"], ["late"]]


@st.composite
def fleets(draw: st.DrawFn) -> list[AgentStory]:
    fleet = []
    for number in range(draw(st.integers(0, 12))):
        seen = [
            seen_failure(
                draw(st.sampled_from(FAILURES)), draw(st.integers(0, 100_000)), fatal=fatal
            )
            for fatal in draw(st.lists(st.booleans(), max_size=3))
        ]
        reports = [agent_report(draw(st.sampled_from((WALL, MISSED, "All is well."))))]
        story = agent(
            f"a{number}",
            ending=draw(st.sampled_from(list(TranscriptEnd))),
            role=draw(st.sampled_from(list(Role))),
            failures=sorted(seen, key=lambda s: s.at or NOON),
            reports=reports if draw(st.booleans()) else [],
        )
        fleet.append(story)
    return fleet


@given(fleets())
def test_every_failed_agent_is_in_exactly_one_cause_or_unexplained(fleet: list[AgentStory]) -> None:
    judgement = judge(fleet, now=NOON)
    placed = [s.agent_id for cause in judgement.causes for s in cause.agents]
    placed += [s.agent_id for s in judgement.unexplained]
    assert len(placed) == len(set(placed))
    assert {s.agent_id for s in fleet if s.ending is TranscriptEnd.FAILED} <= set(placed)


@given(fleets())
def test_every_occurrence_is_counted_once(fleet: list[AgentStory]) -> None:
    judgement = judge(fleet, now=NOON)
    own = {id(s) for story in fleet for s in story.failures}
    causes = [*judgement.causes, *judgement.survived]
    met = [id(m.seen) for cause in causes for m in cause.occurrences if id(m.seen) in own]
    assert sorted(met) == sorted(own)


@given(fleets(), st.randoms())
def test_the_order_of_the_stories_changes_nothing(
    fleet: list[AgentStory], chance: random.Random
) -> None:
    before = names(judge(fleet, now=NOON))
    shuffled = fleet.copy()
    chance.shuffle(shuffled)
    assert names(judge(shuffled, now=NOON)) == before
