"""What lanes have learned survives a restart, and nothing else does."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects import TokenUsage
from jackline.failures import Json
from jackline.lanes import Call, LaneController, LaneSettings, export, restore
from jackline.states import LaneState
from tests.lane_ids import lane_id
from tests.lanes import failures_made as made

NOW = made.START
HEADERS = {
    "anthropic-ratelimit-requests-limit": "60",
    "anthropic-ratelimit-requests-remaining": "3",
}

OPUS = lane_id("opus")


def controller() -> LaneController:
    draw = random.Random(1).random  # noqa: S311 -- seeded, so that tests repeat
    return LaneController([LaneSettings(OPUS)], draw, now=NOW)


def test_a_parked_lane_stays_parked_until_its_reset() -> None:
    old = controller()
    (send,) = old.submit(NOW, Call(1, (OPUS,))).sends
    old.failed(NOW + 1, send.permit, made.wall(NOW + 1, 3600))
    memory = json.loads(json.dumps(export(old, NOW + 2)))

    fresh = controller()
    assert restore(fresh, memory, NOW + 60) == [OPUS]
    assert fresh.lanes[OPUS].state is LaneState.PARKED
    decision = fresh.submit(NOW + 61, Call(1, (OPUS,)))
    assert decision.sends == []
    assert decision.wake_at is not None
    assert decision.wake_at >= NOW + 3601
    assert fresh.tick(NOW + 3700).sends, "it wakes up by itself"


def test_a_reset_that_has_passed_meanwhile_is_forgotten() -> None:
    memory: Json = {"version": 2, "at": NOW, "lanes": [OPUS._asdict() | {"parked_until": NOW + 10}]}
    fresh = controller()
    restore(fresh, memory, NOW + 20)
    assert fresh.lanes[OPUS].state is LaneState.OPEN


@pytest.mark.parametrize("ahead", [9 * 3600.0, 730 * 86_400.0])
def test_a_wall_saved_by_a_clock_that_was_ahead_lasts_no_longer_than_it_did_then(
    ahead: float,
) -> None:
    saved = OPUS._asdict() | {"parked_until": NOW + ahead + 60}
    memory: Json = {"version": 2, "at": NOW + ahead, "lanes": [saved]}
    fresh = controller()
    restore(fresh, memory, NOW)
    assert fresh.lanes[OPUS].state is LaneState.PARKED
    assert fresh.submit(NOW + 1, Call(1, (OPUS,))).sends == []
    assert fresh.tick(NOW + 70).sends, "it wakes up by itself"


def test_limits_are_known_before_the_first_call() -> None:
    old = controller()
    (send,) = old.submit(NOW, Call(1, (OPUS,))).sends
    old.first_byte(NOW + 1, send.permit, HEADERS)
    old.finished(NOW + 2, send.permit, TokenUsage(10, 10))
    fresh = controller()
    restore(fresh, export(old, NOW + 2), NOW + 2)
    sends = [fresh.submit(NOW + 2, Call(n, (OPUS,))).sends for n in range(1, 10)]
    assert sum(len(each) for each in sends) == 4, "as many as the bucket still holds"


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "version",
                    "at",
                    "lanes",
                    "upstream",
                    "model",
                    "account",
                    "window",
                    "limits",
                    "requests",
                    "limit",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_a_memory_that_makes_no_sense_is_ignored(memory: object) -> None:
    fresh = controller()
    restore(fresh, memory, NOW)  # type: ignore[arg-type]
    decision = fresh.submit(NOW, Call(1, (OPUS,)))
    assert decision.sends or decision.wake_at is not None


@pytest.mark.parametrize("version", [0, 1, 3, None, "2"])
def test_another_version_is_not_read(version: object) -> None:
    memory = {"version": version, "at": NOW, "lanes": [OPUS._asdict() | {"parked_until": NOW + 10}]}
    assert restore(controller(), memory, NOW) == []  # type: ignore[arg-type]


def test_restarting_again_and_again_forgets_no_more_than_restarting_once() -> None:
    """An idle service that was restarted three times began with one call at a time."""
    lane = controller()
    sizes = []
    for restarts in range(1, 5):
        fresh = controller()
        restore(fresh, export(lane, NOW + restarts), NOW + restarts)
        lane = fresh
        sizes.append(lane.lanes[OPUS].window.size)
    assert len(set(sizes)) == 1, sizes
