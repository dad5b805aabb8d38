"""One provider with all dialects gives the same answers through every kind of upstream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from jackline.dialects import AnthropicStreamReader, EventSplitter
from jackline.dialects.sse import name_and_data
from jackline.event_loop import run
from jackline.failures import Kind, Observation, classify
from jackline.lane_id import LaneId
from jackline.providers.provided_upstream import ProvidedUpstream, provider_for
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.reply_script import Rule, Say
from jackline.testing import SimulatedProvider
from jackline.upstream import UpstreamRequest
from tests.providers.exchanges import CLIENT, NOW
from tests.upstream.loopback import Recorder

TEXT = "I look at both — ünd then I tell. " * 20
CALLS = (("look", {"at": 'a "quoted" thing'}), ("look", {"at": "b\n", "deep": {"n": [1, None]}}))
TOOL = {
    "name": "look",
    "description": "Look at something.",
    "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}},
}
USER: dict[str, Any] = {"role": "user", "content": "Look at a and b."}
ALL = list(UpstreamKind)
MODELS = {UpstreamKind.OPENAI_CHAT: "gpt-5", UpstreamKind.OPENAI_RESPONSES: "gpt-5"}


@pytest.fixture
def simulated() -> Iterator[SimulatedProvider]:
    with SimulatedProvider() as running:
        running.demand_credential()
        running.says(Rule(Say("Seen."), results="seen"), Say(TEXT, CALLS))
        yield running


async def send(kind: UpstreamKind, url: str, messages: list[Any], *, stream: bool) -> Recorder:
    """Send through an upstream of this kind, as the gateway does."""
    settings = UpstreamSettings(
        name="far",
        kind=kind,
        url=url,
        credential=Credential.BEARER,
        secret="k",  # noqa: S106 -- whatever is brought is believed
        region="us-east-1",
        project="ours",
    )
    requested = {
        "model": "claude-opus-4-8",
        "max_tokens": 4096,
        "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        "tools": [TOOL],
        "messages": messages,
        "stream": stream,
    }
    upstream = ProvidedUpstream({"far": provider_for(settings, {})})
    message = UpstreamRequest(
        b"POST", b"/v1/messages?beta=true", CLIENT, json.dumps(requested).encode()
    )
    handler = Recorder()
    model = MODELS.get(kind, "claude-opus-4-8")
    upstream.start(message, LaneId("far", model, "account"), handler)
    try:
        await handler.last_word()
    finally:
        await upstream.close()
    return handler


def reported(handler: Recorder, *, stream: bool) -> tuple[list[dict[str, Any]], str, bool]:
    """The blocks, the stop reason, and whether the input was counted."""
    if not stream:
        message = json.loads(handler.body)
        return message["content"], message["stop_reason"], message["usage"]["input_tokens"] > 0
    reader = AnthropicStreamReader()
    blocks: list[dict[str, Any]] = []
    reason = ""
    for event in EventSplitter().feed(handler.body):
        name, data = name_and_data(event)
        reader.read(name, data)
        document = json.loads(data)
        if name == b"content_block_start":
            blocks.append({**document["content_block"], "json": ""})
        elif name == b"content_block_delta":
            delta, block = document["delta"], blocks[document["index"]]
            block["json"] += delta.get("partial_json", "")
            if "text" in delta:
                block["text"] += delta["text"]
        elif name == b"message_delta":
            reason = document["delta"]["stop_reason"]
    assert reader.whole
    for block in blocks:
        written = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(written)
    return blocks, reason, reader.usage.input_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ALL)
def test_text_parallel_calls_and_their_results_are_the_same(
    simulated: SimulatedProvider, kind: UpstreamKind, stream: bool
) -> None:
    async def main() -> None:
        handler = await send(kind, simulated.url, [USER], stream=stream)
        assert (handler.status, handler.words) == (200, ["began", "heard", "ended"])
        blocks, reason, counted = reported(handler, stream=stream)
        assert blocks[0] == {"type": "text", "text": TEXT}
        assert [(b["type"], b["name"], b["input"]) for b in blocks[1:]] == [
            ("tool_use", name, given) for name, given in CALLS
        ]
        assert len({block["id"] for block in blocks[1:]}) == 2
        assert (reason, counted) == ("tool_use", True)
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "seen"}
            for block in blocks[1:]
        ]
        turns = [
            USER,
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": results},
        ]
        handler = await send(kind, simulated.url, turns, stream=stream)
        blocks, reason, _ = reported(handler, stream=stream)
        assert blocks == [{"type": "text", "text": "Seen."}]
        assert reason == "end_turn"

    run(main())
    assert {entry.dialect for entry in simulated.ledger} == {kind.value}


@pytest.mark.parametrize("kind", ALL)
def test_streams_that_stop_too_early_are_never_whole(
    simulated: SimulatedProvider, kind: UpstreamKind
) -> None:
    async def main(last: str) -> None:
        handler = await send(kind, simulated.url, [USER], stream=True)
        assert handler.words[-1] == last
        assert b"message_stop" not in handler.body

    handle = simulated.strike(Fault(Effect.CUT, at_share=0.5, share=0.999999))
    run(main("broke"))
    simulated.heal(handle)
    simulated.clean_end(at=1.0)
    run(main("ended"))


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        (Fault(Effect.SERVER_ERROR), {Kind.UPSTREAM_5XX}),
        (Fault(Effect.OVERLOADED), {Kind.OVERLOADED, Kind.UPSTREAM_5XX}),
        (Fault(Effect.THROTTLED), {Kind.SERVER_THROTTLE, Kind.RATE_LIMIT}),
    ],
)
@pytest.mark.parametrize("kind", ALL)
def test_refusals_keep_their_meaning(
    simulated: SimulatedProvider, kind: UpstreamKind, fault: Fault, kinds: set[Kind]
) -> None:
    async def main() -> None:
        handler = await send(kind, simulated.url, [USER], stream=True)
        headers = {n.decode().lower(): v.decode() for n, v in handler.headers}
        seen = Observation.of_response(handler.status, headers, handler.body)
        assert classify(seen, now=NOW).kind in kinds

    simulated.strike(fault)
    run(main())


@pytest.mark.parametrize("kind", ALL)
def test_an_error_inside_of_a_stream_keeps_its_meaning(
    simulated: SimulatedProvider, kind: UpstreamKind
) -> None:
    async def main() -> None:
        handler = await send(kind, simulated.url, [USER], stream=True)
        name, data = name_and_data(EventSplitter().feed(handler.body)[-1])
        assert name == b"error"
        failure = classify(Observation.of_stream(b"event: error\ndata: " + data + b"\n\n"), now=NOW)
        assert failure.kind in (Kind.OVERLOADED, Kind.UPSTREAM_5XX)

    simulated.strike(Fault(Effect.ERROR_EVENT, at_share=0.5))
    run(main())
