"""The end of each agent's latest call is known with its cause; an answer takes it back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.events import CallEnded
from jackline.failures import Kind
from jackline.hooks.agent_deaths import DeathCause, LatestCalls
from jackline.lane_id import LaneId
from tests.assembly.world import run
from tests.hooks.hook_requests import NOON, World, ended

THREE = NOON.replace(hour=15)


def test_an_error_that_was_passed_on_is_known_with_its_reset() -> None:
    world = World()
    world.wall()
    world.call("refused")
    call = world.calls.of("s1", "a1")
    assert call is not None
    assert call.cause == DeathCause(Kind.ACCOUNT_QUOTA, "session", THREE)
    world.call("answered")
    answered = world.calls.of("s1", "a1")
    assert answered is not None
    assert answered.cause is None


def test_a_call_that_was_never_sent_shares_the_wall_of_its_account() -> None:
    world = World()
    world.wall(call="of another", lane=LaneId("anthropic", "opus", "acc"))
    world.call("refused", call="c9", lane=LaneId("anthropic", "sonnet", "acc"), attempts=0)
    world.call(
        "refused", call="c10", agent="a2", lane=LaneId("anthropic", "sonnet", "other"), attempts=0
    )
    ours, theirs = world.calls.of("s1", "a1"), world.calls.of("s1", "a2")
    assert ours is not None
    assert theirs is not None
    assert ours.cause == DeathCause(Kind.ACCOUNT_QUOTA, "session", THREE)
    assert theirs.cause is not None
    assert theirs.cause.resets_at is None, "another account's wall says nothing of this one"


def test_a_wall_that_has_fallen_is_no_cause_any_more() -> None:
    world = World()
    world.wall(call="of another")
    run(world.clock.advance(4 * 3600))
    world.call("refused", call="c9", attempts=0, status=529)
    call = world.calls.of("s1", "a1")
    assert call is not None
    assert call.cause is not None
    assert call.cause.kind is Kind.OVERLOADED


def test_a_call_refused_again_without_a_lane_has_the_same_cause() -> None:
    world = World()
    world.wall()
    world.call("refused")
    world.call("refused", call="c2", lane="", attempts=0)
    call = world.calls.of("s1", "a1")
    assert call is not None
    assert call.cause == DeathCause(Kind.ACCOUNT_QUOTA, "session", THREE)


def test_side_calls_and_clients_that_leave_change_nothing() -> None:
    world = World()
    world.call("answered")
    world.call("refused", model="count_tokens")
    world.call("client_left")
    world.call("retry_later")
    call = world.calls.of("s1", "a1")
    assert call is not None
    assert call.cause is None


def test_walls_and_answers_of_main_threads_are_announced() -> None:
    world = World()
    walls: list[str] = []
    answers: list[CallEnded] = []
    world.calls.on_wall = lambda session, cause: walls.append(f"{session} {cause.kind.value}")
    world.calls.on_answer = answers.append
    world.wall()
    world.call("refused", agent="a1")
    world.call("answered", agent="a1")
    assert (walls, answers) == ([], [])
    world.wall()
    world.call("refused", agent=None)
    world.call("answered", agent=None)
    assert walls == ["s1 account_quota"]
    assert [each.session for each in answers] == ["s1"]


@given(st.lists(st.tuples(st.integers(0, 7000), st.booleans()), max_size=40))
def test_the_number_of_entries_is_bounded(ends: list[tuple[int, bool]]) -> None:
    world = World()
    calls = LatestCalls(world.clock)
    for number in range(5001):
        calls.on_event(ended("answered", at=0.0, agent=f"filler-{number}"))
    for number, good in ends:
        outcome = "answered" if good else "refused"
        calls.on_event(ended(outcome, at=1.0, agent=f"n{number}"))
        call = calls.of("s1", f"n{number}")
        assert call is not None
        assert (call.cause is None) == good
    assert len(calls._calls) == 5000
