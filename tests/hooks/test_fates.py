"""What became of each agent's latest call is known, with its cause, and an answer takes it back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.events import CallEnded
from jackline.failures import Kind
from jackline.hooks.agent_deaths import DeathCause, LatestCalls
from tests.assembly.world import run
from tests.hooks.asking import NOON, World, ended

THREE = NOON.replace(hour=15)


def test_an_error_that_was_handed_on_is_known_with_its_reset() -> None:
    world = World()
    world.wall()
    world.call("refused")
    fate = world.fates.of("s1", "a1")
    assert fate is not None
    assert fate.cause == DeathCause(Kind.ACCOUNT_QUOTA, "session", THREE)
    world.call("answered")
    answered = world.fates.of("s1", "a1")
    assert answered is not None
    assert answered.cause is None


def test_who_was_never_sent_shares_the_wall_of_the_account() -> None:
    world = World()
    world.wall(call="of another", lane="anthropic/opus#acc")
    world.call("refused", call="c9", lane="anthropic/sonnet#acc", attempts=0)
    world.call("refused", call="c10", agent="a2", lane="anthropic/sonnet#other", attempts=0)
    ours, theirs = world.fates.of("s1", "a1"), world.fates.of("s1", "a2")
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
    fate = world.fates.of("s1", "a1")
    assert fate is not None
    assert fate.cause is not None
    assert fate.cause.kind is Kind.OVERLOADED


def test_who_is_told_the_same_again_at_the_door_has_the_same_cause() -> None:
    world = World()
    world.wall()
    world.call("refused")
    world.call("refused", call="c2", lane="", attempts=0)
    fate = world.fates.of("s1", "a1")
    assert fate is not None
    assert fate.cause == DeathCause(Kind.ACCOUNT_QUOTA, "session", THREE)


def test_calls_on_the_side_and_clients_that_leave_say_nothing() -> None:
    world = World()
    world.call("answered")
    world.call("refused", model="count_tokens")
    world.call("left")
    world.call("come_back")
    fate = world.fates.of("s1", "a1")
    assert fate is not None
    assert fate.cause is None


def test_walls_and_answers_of_main_threads_are_told() -> None:
    world = World()
    walls: list[str] = []
    answers: list[CallEnded] = []
    world.fates.on_wall = lambda session, cause: walls.append(f"{session} {cause.kind.value}")
    world.fates.on_answer = answers.append
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
def test_it_never_grows_without_end(calls: list[tuple[int, bool]]) -> None:
    world = World()
    fates = LatestCalls(world.clock)
    for number in range(5001):
        fates.heard(ended("answered", at=0.0, agent=f"filler-{number}"))
    for number, good in calls:
        outcome = "answered" if good else "refused"
        fates.heard(ended(outcome, at=1.0, agent=f"n{number}"))
        fate = fates.of("s1", f"n{number}")
        assert fate is not None
        assert (fate.cause is None) == good
    assert len(fates._fates) == 5000
