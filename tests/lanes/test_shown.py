"""What a lane tells people: why it holds calls up, and how soon it begins to answer."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jackline.failures import Failure, Observation, classify
from jackline.lanes import Call, ControllerSettings, LaneSettings
from jackline.lanes.lane import Lane
from jackline.states import LaneState
from tests.lane_ids import lane_id
from tests.lanes import failures_made as made

CALL = Call(0, ())


def classified(error: Exception) -> Failure:
    return classify(Observation.of_exception(error), now=datetime(2026, 11, 16, tzinfo=UTC))


def lane() -> Lane:
    return Lane(LaneSettings(lane_id("lane")), ControllerSettings(), lambda: 0.5, 0.0)


def test_a_lane_that_takes_calls_holds_nobody_up() -> None:
    assert lane().held_up(1.0) is None


def test_a_full_window_is_told_until_an_answer_makes_room() -> None:
    full = lane()
    for permit in range(full.limit(0.0)):
        full.send(permit, CALL, 0.0, probe=False)
    held = full.held_up(1.0)
    assert held is not None
    assert "its limit for now" in held.why
    assert held.until is None


def test_a_lane_that_was_paused_or_told_to_wait_says_so() -> None:
    one = lane()
    one.hold_until = 9.0
    held = one.held_up(1.0)
    assert held is not None
    assert (held.why, held.until) == ("lane asked to slow down", 9.0)
    one.paused = True
    held = one.held_up(1.0)
    assert held is not None
    assert "paused by hand" in held.why


def test_the_first_byte_is_told_as_it_was_of_late() -> None:
    one = lane()
    assert one.first_byte == 0.0
    one.accepted(one.send(1, CALL, 0.0, probe=False), {}, 2.0)
    assert one.first_byte == 2.0
    one.accepted(one.send(2, CALL, 10.0, probe=False), {}, 11.0)
    assert one.first_byte == pytest.approx(1.8)
    again = one.send(3, CALL, 20.0, probe=False)
    one.accepted(again, {}, 21.0)
    before = one.first_byte
    one.accepted(again, {}, 99.0)
    assert one.first_byte == before, "a call has one first byte"


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (classified(ConnectionResetError("Connection reset by peer")), "cannot be reached"),
        (made.server_error(), "lane is down;"),
        (None, "lane is silent;"),
    ],
)
def test_a_lane_says_whether_it_is_out_of_reach_down_or_silent(
    failure: Failure | None, said: str
) -> None:
    broken = lane()
    if failure is None:
        broken.leave_alone_as_silent(1.0)
    else:
        broken.break_down(failure, 1.0)
    assert said in broken.waiting(CALL, 2.0).why


def test_a_lane_whose_probe_is_asked_to_slow_down_is_throttled_and_not_down() -> None:
    one = lane()
    one.break_down(made.server_error(), 0.0)
    states = [one.shown_state]
    probe = one.send(1, CALL, 60.0, probe=True)
    one.throttled(probe, made.throttled(30.0), {}, 60.2)
    states.append(one.shown_state)
    held = one.held_up(61.0)
    assert held is not None
    assert held.why == "lane asked to slow down; it is tried again with one call"
    # It is down again when it answers with errors.
    one.failed_hard(one.send(2, CALL, 120.0, probe=True), made.server_error(), 120.2)
    states.append(one.shown_state)
    assert states == [LaneState.DOWN, LaneState.THROTTLED, LaneState.DOWN]
