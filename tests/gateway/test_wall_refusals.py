"""A refusal at a known wall says that no retry helps, and when it resets, in every dialect."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.calls import CallRefusal, Dialect
from jackline.calls.request import VendorRejection
from jackline.failures import Failure, Kind, Observation, classify
from jackline.gateway.own_answers import vendor_refusal
from jackline.gateway.settings import GatewaySettings, HoldSettings
from jackline.testing import Step
from tests.gateway.desk_world import START, ClientOnPaper, World, play
from tests.gateway.test_foreign_clients import DIALECTS, PATHS, settings

HOURS = 3
NO_WAITING = HoldSettings(quota=0.0)
# As an API key gets it: the wait is in a header that belongs to this one answer.
WALL = Step(
    status=429,
    headers={"content-type": "application/json", "retry-after": str(HOURS * 3600)},
    body=b'{"type":"error","error":{"type":"rate_limit_error","message":"This request would '
    b"exceed your account's rate limit. Please try again later.\"}}",
    after=0.2,
)
USED_UP = Step(
    status=429,
    headers={"content-type": "application/json"},
    body=b'{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached",'
    b'"plan_type":"plus","resets_in_seconds":10800}}',
    after=0.2,
)


def left_of(client: ClientOnPaper) -> int:
    assert client.status == 429
    assert client.headers["x-should-retry"] == "false"
    return int(client.headers["retry-after"])


@pytest.mark.parametrize("stream", [False, True])
def test_who_comes_later_is_refused_with_the_wait_that_is_left(stream: bool) -> None:
    async def scene(world: World) -> None:
        first = world.ask(stream=stream)
        await world.until_over(first)
        assert 0 <= left_of(first) - HOURS * 3600 <= 1
        assert first.body == WALL.body, "who met it gets the vendor's own words"
        await world.pass_time(3600)
        later = world.ask("another", stream=stream, session="s2")
        await world.until_over(later)
        assert 0 <= left_of(later) - 2 * 3600 <= 1
        message = json.loads(later.body)["error"]["message"]
        assert message.startswith("This request would exceed your account's rate limit.")
        assert "It resets at " in message
        assert "in 2 h" in message
        assert len(world.upstream.attempts) == 1, "no request was spent on it"

    play([WALL], scene, replace(GatewaySettings(), hold=NO_WAITING))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_clients_of_other_dialects_are_refused_alike(dialect: Dialect) -> None:
    async def scene(world: World) -> None:
        first = world.send_foreign(PATHS[dialect], dialect)
        await world.until_over(first)
        assert left_of(first) in (10_799, 10_800, 10_801)
        await world.pass_time(3600)
        later = world.send_foreign(PATHS[dialect], dialect)
        await world.until_over(later)
        left = left_of(later)
        assert left in (7_199, 7_200, 7_201)
        error = json.loads(later.body)["error"]
        assert error["resets_in_seconds"] == left, "a wait that is repeated is counted anew"
        assert "in 2 h" in error["message"]

    lane_settings = settings(dialect, NO_WAITING)
    play({"openai": [USED_UP]}, scene, lane_settings)


def test_an_unknown_reset_is_not_invented() -> None:
    answer = vendor_refusal(_refusal(None, Kind.BILLING), START.timestamp())
    headers = dict(answer.headers)
    assert headers[b"x-should-retry"] == b"false"
    assert b"retry-after" not in headers
    assert answer.body == WALL.body


@pytest.mark.parametrize("kind", [Kind.SERVER_THROTTLE, Kind.OVERLOADED, Kind.UPSTREAM_5XX])
def test_what_passes_is_not_called_final(kind: Kind) -> None:
    at = START.timestamp() + 60
    answer = vendor_refusal(_refusal(at, kind), START.timestamp())
    assert b"x-should-retry" not in dict(answer.headers)
    assert answer.body == WALL.body


def test_a_message_that_names_its_reset_stays_as_it_is() -> None:
    words = "You've hit your session limit · resets 3pm"
    body = json.dumps({"error": {"message": words}}).encode()
    answer = vendor_refusal(_refusal(START.timestamp() + 60, body=body), START.timestamp())
    assert answer.body == body


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "retry_after", "code"]), each)
    ),
    max_leaves=12,
)


@given(st.binary(max_size=60) | JSON.map(lambda each: json.dumps(each).encode()))
def test_whatever_the_vendor_wrote_is_refused_as_a_wall(body: bytes) -> None:
    now = START.timestamp()
    answer = vendor_refusal(_refusal(now + 7200, body=body), now)
    headers = dict(answer.headers)
    assert (answer.status, headers[b"retry-after"]) == (429, b"7200")
    seen = Observation.of_response(
        429, {name.decode(): value.decode() for name, value in headers.items()}, answer.body
    )
    failure = classify(seen, now=START)
    wait = failure.retry_after or (failure.resets_at or START) - START
    assert wait >= timedelta(0)


def test_an_answer_of_our_own_says_it_too() -> None:
    failure = _failure(Kind.ACCOUNT_QUOTA)
    refusal = CallRefusal("first/m is parked", failure, None, START.timestamp() + 7200, ())
    answer = vendor_refusal(refusal, START.timestamp())
    assert dict(answer.headers)[b"retry-after"] == b"7200"
    assert b"in 2 h" in answer.body


def _failure(kind: Kind) -> Failure:
    seen = Observation.of_response(429, {"retry-after": "10800"}, WALL.body)
    return replace(classify(seen, now=datetime(2026, 11, 15, tzinfo=UTC)), kind=kind)


def _refusal(
    at: float | None, kind: Kind = Kind.ACCOUNT_QUOTA, body: bytes | str = WALL.body
) -> CallRefusal:
    headers = [(b"content-type", b"application/json")]
    raw = body.encode() if isinstance(body, str) else body
    words = VendorRejection(429, headers, raw, is_repeated=True)
    return CallRefusal("it is parked", _failure(kind), words, at, ())
