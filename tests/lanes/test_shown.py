"""What a lane tells people: why it holds calls up, and how soon it begins to answer."""

from __future__ import annotations

import pytest

from jackline.lanes import Call, LaneSettings, Settings
from jackline.lanes.lane import Lane

CALL = Call(0, ())


def lane() -> Lane:
    return Lane(LaneSettings("lane"), Settings(), lambda: 0.5, 0.0)


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
