"""Adversaries: a caller whose words the vendor repeats, and pages or tools that an answer quotes.

What a call or an answer says is no report about the account: it parks no lane, and an answer that
has come whole is delivered once, whatever it quotes.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from urllib.parse import quote, quote_plus

import pytest

from jackline.calls import CallRequest, HoldLimits
from jackline.calls.request import Dialect
from jackline.lanes import Call
from jackline.states import LaneState
from jackline.testing import Step
from jackline.upstream.interface import UpstreamRequest
from tests.calls.test_carrier import START, World, play
from tests.calls.whole_answer import CallAnswer, CallRefusedError, complete_call
from tests.lane_ids import lane_id

WALL_TEXT = "You've hit your limit, resets in 39 days"
JSON = {"content-type": "application/json"}


def _ask(
    world: World, body: object, *, dialect: Dialect = "anthropic", stream: bool = False
) -> asyncio.Task[CallAnswer]:
    request = CallRequest(
        "jl_words",
        UpstreamRequest(b"POST", b"/v1/messages", (), json.dumps(body).encode()),
        Call(0, (lane_id("first"),), stream=stream, max_tokens=100),
        dialect=dialect,
        hold=HoldLimits(quota=1e9, other=1e9),
    )
    return asyncio.create_task(complete_call(world.carrier, request))


def _error(status: int, text: str) -> Step:
    error = {"type": "invalid_request_error", "message": text}
    body = json.dumps({"type": "error", "error": error}).encode()
    return Step(status=status, headers=JSON, body=body)


REPEATED = [
    (404, "model: {}"),
    (404, "The model `{}` does not exist or you do not have access to it."),
    (400, "{} is not a valid model ID"),
    (400, "tools.0.custom.name: '{}' does not match"),
    (400, "Unexpected value(s) `{}` for the `anthropic-beta` header."),
    (422, "Input tag '{}' found using 'type' does not match"),
]


@pytest.mark.parametrize("text", [WALL_TEXT, "rate limit exceeded, retry in 3600s", "Overloaded"])
@pytest.mark.parametrize(("status", "vendor"), REPEATED)
def test_words_of_a_caller_that_the_vendor_repeats_touch_no_lane(
    status: int, vendor: str, text: str
) -> None:
    async def scene(world: World) -> None:
        # Cut, as some vendors do, and escaped, as callers may send it.
        for said in (text, f"{text} {'x' * 80}"):
            task = _ask(world, {"model": said, "messages": [{"role": said, "content": said}]})
            await world.clock.advance(3)
            assert task.done()
            assert isinstance(task.exception(), CallRefusedError)
        lane = world.controller.lanes[lane_id("first")]
        assert lane.state is LaneState.OPEN
        assert lane.health.error_share(world.clock.steady()) == 0

    play({"first": [_error(status, vendor.format(text))]}, scene)


CODE = '{"code":"usage_limit_reached","resets_in_seconds":3369600}'


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 500])
@pytest.mark.parametrize(
    "text",
    [
        WALL_TEXT,
        CODE,
        '{"code":"weekly_limit_reached"}',
        "ServiceQuotaExceededException",
        f"{WALL_TEXT} sk-ant-api03-{'x' * 40}",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_no_form_of_repeated_words_parks_a_lane(status: int, text: str, packed: bool) -> None:
    body = json.dumps({"model": text, "messages": []}).encode()
    headers = ((b"content-encoding", b"gzip"),) if packed else ()
    message = UpstreamRequest(
        b"POST", b"/v1/messages", headers, gzip.compress(body) if packed else body
    )
    call = Call(0, (lane_id("first"),), stream=False, max_tokens=100)
    request = CallRequest("jl_words", message, call)

    async def scene(world: World) -> None:
        task = asyncio.create_task(complete_call(world.carrier, request))
        await world.clock.advance(3)
        assert world.controller.lanes[lane_id("first")].state is not LaneState.PARKED
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play({"first": [_error(status, f"model: {text}")]}, scene)


PERCENT = quote(WALL_TEXT)
HARD_SPACES = WALL_TEXT.replace(" ", "\u00a0")


@pytest.mark.parametrize(
    ("target", "headers", "repeated"),
    [
        (f"/v1/messages?evil={PERCENT}", {}, WALL_TEXT),
        (f"/v1/messages?evil={PERCENT}", {}, f"/v1/messages?evil={WALL_TEXT}"),
        (f"/v1/messages?{quote_plus(WALL_TEXT)}", {}, WALL_TEXT),
        (f"/v1/messages?{quote_plus('1+1 ' + WALL_TEXT)}", {}, f"1+1 {WALL_TEXT}"),
        (f"/v1/messages?evil={quote(PERCENT)}", {}, WALL_TEXT),
        (f"/v1/messages/{PERCENT}", {}, WALL_TEXT),
        (f"/v1/messages?evil={quote(WALL_TEXT.replace(chr(39), '’'))}", {}, WALL_TEXT),
        (f"/v1/messages?{quote(HARD_SPACES)}", {}, HARD_SPACES),
        (f"/v1/messages?{quote(HARD_SPACES, encoding='latin-1')}", {}, HARD_SPACES),
        ("/v1/messages", {"evil": HARD_SPACES}, HARD_SPACES),
        ("/v1/messages?evil=usage_limit_reached", {}, CODE),
        ("/v1/messages", {"Usage_Limit_Reached": "1"}, CODE),
        # Too much to decode: it counts as the caller's.
        (f"/v1/messages?%{'25' * 9}20", {}, WALL_TEXT),
        (f"/v1/messages?{'%20' * 9_000}", {}, WALL_TEXT),
    ],
)
@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_repeated_words_of_the_target_or_a_header_park_no_lane(
    status: int, target: str, headers: dict[str, str], repeated: str
) -> None:
    pairs = tuple((name.encode(), value.encode()) for name, value in headers.items())
    message = UpstreamRequest(b"POST", target.encode(), pairs, b'{"model":"claude","messages":[]}')
    call = Call(0, (lane_id("first"),), stream=False, max_tokens=100)
    request = CallRequest("jl_words", message, call)

    async def scene(world: World) -> None:
        task = asyncio.create_task(complete_call(world.carrier, request))
        await world.clock.advance(3)
        assert world.controller.lanes[lane_id("first")].state is not LaneState.PARKED
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play({"first": [_error(status, f"unexpected query parameter: {repeated}")]}, scene)


@pytest.mark.parametrize("kind", ["overloaded_error", "rate_limit_error"])
def test_a_stream_that_ends_with_an_overload_is_retried_whatever_the_conversation_is_about(
    kind: str,
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "Overloaded"}}
    event = b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n"

    async def scene(world: World) -> None:
        said = f"Why do I get {kind}: Overloaded?"
        task = _ask(world, {"messages": [{"role": "user", "content": said}]}, stream=True)
        await world.until_done([task])
        assert task.result().body == Step().says

    play({"first": [Step(says=event, after=0.5), Step()]}, scene)


def test_a_wall_in_a_stream_parks_the_lane_whatever_the_conversation_is_about() -> None:
    error = {"type": "error", "error": {"type": "rate_limit_error", "message": WALL_TEXT}}
    event = b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n"

    async def scene(world: World) -> None:
        task = _ask(world, {"messages": [{"role": "user", "content": WALL_TEXT}]}, stream=True)
        await world.clock.advance(3)
        assert world.controller.lanes[lane_id("first")].state is LaneState.PARKED
        assert len(world.upstream.attempts) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play({"first": [Step(says=event, after=0.5)]}, scene)


def test_repeated_words_in_a_stream_park_no_lane() -> None:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": WALL_TEXT}}
    event = b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n"

    async def scene(world: World) -> None:
        task = _ask(world, {"model": WALL_TEXT, "stream": True}, stream=True)
        await world.clock.advance(3)
        assert world.controller.lanes[lane_id("first")].state is not LaneState.PARKED
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play({"first": [Step(says=event, after=0.5)]}, scene)


def test_a_vendor_that_reports_the_spent_account_with_status_400_still_parks_the_lane() -> None:
    text = (
        "You have reached your specified API usage limits. "
        "You will regain access on 2026-12-01 at 00:00 UTC."
    )

    async def scene(world: World) -> None:
        task = _ask(world, {"model": "claude", "messages": [{"role": "user", "content": "hello"}]})
        await world.clock.advance(3)
        assert world.controller.lanes[lane_id("first")].state is LaneState.PARKED
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play({"first": [_error(400, text)]}, scene)


def _chat(message: object, **more: object) -> dict[str, object]:
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "choices": [choice], **more}


def _response(*output: object, **more: object) -> dict[str, object]:
    return {
        "id": "r",
        "object": "response",
        "status": "completed",
        "error": None,
        "output": list(output),
        **more,
    }


TEXT = {"type": "message", "content": [{"type": "output_text", "text": "done"}]}
PAGE = {"type": "url_citation", "url_citation": {"title": WALL_TEXT}}
WHOLE: list[tuple[Dialect, dict[str, object]]] = [
    (
        "openai-responses",
        _response({"type": "mcp_call", "error": "HTTP 503 Service Unavailable"}, TEXT),
    ),
    ("openai-responses", _response(TEXT, metadata={"error": WALL_TEXT, "message": WALL_TEXT})),
    (
        "openai-responses",
        _response(TEXT, tools=[{"parameters": {"code": {"description": "daily limit"}}}]),
    ),
    ("openai-chat", _chat({"role": "assistant", "content": "hi", "annotations": [PAGE]})),
    (
        "openai-chat",
        _chat({"role": "assistant", "tool_calls": [{"function": {"name": "refusal"}}]}, code=1),
    ),
    ("anthropic", {"data": [{"id": "msgbatch_1", "error": {"type": "overloaded_error"}}]}),
]


@pytest.mark.parametrize(("dialect", "document"), WHOLE)
def test_a_whole_answer_is_delivered_once_whatever_it_quotes(
    dialect: Dialect, document: dict[str, object]
) -> None:
    body = json.dumps(document).encode()

    async def scene(world: World) -> None:
        task = _ask(world, {"model": "m"}, dialect=dialect)
        await world.clock.advance(10)
        assert task.done()
        assert task.result().body == body
        assert world.attempts == ["first"]
        assert world.controller.lanes[lane_id("first")].state is LaneState.OPEN

    play({"first": [Step(headers=JSON, says=body)]}, scene)


@pytest.mark.parametrize(
    ("dialect", "document"),
    [
        ("openai-chat", {"error": {"code": 503, "message": "Provider unavailable"}}),
        ("openai-chat", {"choices": [], "error": {"code": 502, "message": "Bad gateway"}}),
        (
            "openai-responses",
            _response(status="failed", error={"code": "server_error", "message": "try again"}),
        ),
    ],
)
def test_an_error_that_comes_with_status_200_is_still_an_error(
    dialect: Dialect, document: dict[str, object]
) -> None:
    good = json.dumps(_chat({"content": "hi"}) | _response(TEXT)).encode()

    async def scene(world: World) -> None:
        task = _ask(world, {"model": "m"}, dialect=dialect)
        await world.until_done([task])
        assert task.result().body == good

    bad = Step(headers=JSON, says=json.dumps(document).encode())
    play({"first": [bad, Step(headers=JSON, says=good)]}, scene)


def test_what_came_with_status_200_is_not_saved_as_the_words_of_a_wall() -> None:
    spent = {"error": {"code": "insufficient_quota", "message": WALL_TEXT}, "private": "answer"}

    async def scene(world: World) -> None:
        task = _ask(world, {"model": "m"}, dialect="openai-chat")
        await world.clock.advance(3)
        assert world.controller.lanes[lane_id("first")].state is LaneState.PARKED
        assert world.carrier.walls.export() == []
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play({"first": [Step(headers=JSON, says=json.dumps(spent).encode())]}, scene)


def test_an_error_event_after_the_model_has_spoken_counts_as_paid() -> None:
    deltas = b"".join(
        b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,'
        b'"delta":{"content":"word "}}]}\n\n'
        for _ in range(300)
    )
    broken = deltas + b'data: {"error":{"code":502,"message":"Provider disconnected"}}\n\n'

    async def scene(world: World) -> None:
        task = _ask(world, {"model": "m", "stream": True}, dialect="openai-chat", stream=True)
        await world.clock.advance(60)
        assert len(world.upstream.attempts) <= 8
        await world.clock.advance(3540)
        assert len(world.upstream.attempts) <= 22
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    world = play({"first": [Step(says=broken, after=0.5)]}, scene)
    assert world.clock.now() > START
