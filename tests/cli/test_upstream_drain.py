"""A lane is drained when its last call in flight has ended, and nothing more is sent on it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jackline.assembly.gateway_process import reading_of
from jackline.testing import SimulatedProvider
from tests.cli.commands import Answer
from tests.cli.gateways import PATIENCE, Place, call, until
from tests.planted import KEY

LANE = "anthropic/claude-sonnet-4-6"


def lane_of(place: Place) -> dict[str, object]:
    running = place.state.running()
    assert running is not None
    lanes = reading_of(running, "fleet")["lanes"]
    assert isinstance(lanes, list)
    return dict(lanes[0]) if lanes else {"in_flight": 0, "paused": False}


@contextmanager
def one_in_flight(place: Place, provider: SimulatedProvider) -> Iterator[None]:
    """A call that its provider never answers, until whoever asks leaves."""
    provider.hang()
    question = {"model": "claude-sonnet-4-6", "max_tokens": 9, "messages": []}
    asking = http.client.HTTPConnection("127.0.0.1", place.port)
    try:
        asking.request("POST", "/v1/messages", json.dumps(question), {"x-api-key": KEY})
        until(lambda: lane_of(place)["in_flight"] == 1, "the call")
        yield
    finally:
        asking.close()


@contextmanager
def draining(place: Place) -> Iterator[list[Answer]]:
    """Somebody who has ordered it, and waits; there is an answer behind it."""
    answers: list[Answer] = []
    waiting = threading.Thread(
        target=lambda: answers.append(place.jackline("upstream", "drain", LANE))
    )
    waiting.start()
    try:
        until(lambda: lane_of(place)["paused"], "the order")
        yield answers
    finally:
        waiting.join(PATIENCE)


def test_an_idle_lane_is_drained_at_once_and_takes_calls_again_by_order(tmp_path: Path) -> None:
    with SimulatedProvider() as provider:
        place = Place(tmp_path, provider.url)
        with place.up():
            assert call(place.url).status == 200
            answer = place.jackline("upstream", "drain", "anthropic")
            assert (answer.code, answer.out, answer.err) == (0, f"drained: {LANE}\n", "")
            assert lane_of(place)["paused"] is True
            reported = json.loads(place.jackline("upstream", "drain", LANE, "--json").out)
            assert reported == {"schema": "jackline.drained/1", "drained": [LANE], "resumed": []}
            assert place.jackline("upstream", "resume", LANE).code == 0
            assert call(place.url).status == 200
            answer = place.jackline("upstream", "drain", "nobody")
            assert answer.code == 2
            assert "no lane is called 'nobody'" in answer.err


def test_who_drains_a_lane_waits_until_its_last_call_in_flight_has_ended(tmp_path: Path) -> None:
    with SimulatedProvider() as provider:
        place = Place(tmp_path, provider.url)
        with place.up(), ExitStack() as stack:
            with one_in_flight(place, provider):
                answers = stack.enter_context(draining(place))
                assert lane_of(place)["in_flight"] == 1, "what flies is let fly"
                assert answers == []
            stack.close()
            (answer,) = answers
            assert (answer.code, answer.out) == (0, f"drained: {LANE}\n")
            assert f"draining: {LANE}, 1 call in flight; Ctrl-C ends the waiting" in answer.err


def test_a_lane_that_is_resumed_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    with SimulatedProvider() as provider:
        place = Place(tmp_path, provider.url)
        with place.up(), one_in_flight(place, provider):
            with draining(place) as answers:
                assert place.jackline("upstream", "resume", LANE).code == 0
            (answer,) = answers
            assert (answer.code, answer.out) == (0, f"resumed: {LANE}\n")
