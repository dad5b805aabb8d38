"""A wall that somebody does not believe in costs one call to find out, else it stands as before."""

from __future__ import annotations

import pytest

from jackline.dialects import TokenUsage
from jackline.failures import Failure
from jackline.lane_id import LaneId
from jackline.lanes import LaneController, LaneSettings
from jackline.lanes.call import Call
from jackline.states import LaneState
from tests.lanes.failures_made import START, server_error, throttled, wall

LANE = LaneId("anthropic", "claude")
RESET = START + 3600


def parked() -> LaneController:
    """A lane that was told of a reset in an hour; its call 1 waits."""
    controller = LaneController([LaneSettings(LANE)], lambda: 0.5, now=START)
    (send,) = controller.submit(START, Call(1, (LANE,))).sends
    controller.failed(START, send.permit, wall(START, 3600))
    assert controller.lanes[LANE].reset_at == RESET
    assert controller.tick(START + 60).sends == []
    return controller


def test_one_waiting_call_goes_out_at_once_and_its_answer_opens_the_lane() -> None:
    controller = parked()
    assert controller.submit(START + 60, Call(2, (LANE,))).sends == []
    (send,) = controller.probe(START + 61, LANE).sends
    assert send.probe
    assert controller.tick(START + 70).sends == [], "one call, and no other, finds out"
    controller.finished(START + 71, send.permit, TokenUsage(1, 1))
    lane = controller.lanes[LANE]
    assert (lane.state, lane.reset_at) == (LaneState.RECOVERING, None)


@pytest.mark.parametrize(
    "failure", [wall(START + 62, None), throttled(), server_error()], ids=lambda each: each.kind
)
def test_a_probe_that_learns_nothing_new_leaves_the_announced_reset(failure: Failure) -> None:
    controller = parked()
    (send,) = controller.probe(START + 61, LANE).sends
    controller.failed(START + 62, send.permit, failure)
    lane = controller.lanes[LANE]
    assert (lane.state, lane.reset_at) == (LaneState.PARKED, RESET)
    assert controller.tick(START + 1800).sends == []
    assert len(controller.tick(RESET + 10).sends) == 1


def test_a_wall_that_names_another_reset_is_believed() -> None:
    controller = parked()
    (send,) = controller.probe(START + 61, LANE).sends
    controller.failed(START + 62, send.permit, wall(START + 62, 600))
    assert controller.lanes[LANE].reset_at == START + 662


def test_a_lane_that_takes_calls_is_left_as_it_is() -> None:
    controller = LaneController([LaneSettings(LANE)], lambda: 0.5, now=START)
    assert controller.probe(START, LANE).sends == []
    assert controller.lanes[LANE].state is LaneState.OPEN


def test_a_reset_in_doubt_is_told_as_such_and_not_as_unknown() -> None:
    controller = parked()
    controller.aborted(START + 60, 1)
    assert controller.probe(START + 61, LANE).sends == [], "nobody is there to be sent"
    told = controller.lanes[LANE].held_up(START + 62)
    assert told is not None
    assert told.why == f"{LANE} is parked; the next call finds out its state"
    assert told.until == START + 62, "it is due, not somewhere in the future"
