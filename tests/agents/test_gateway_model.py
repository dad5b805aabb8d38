"""Asking a model through a real gateway, before a simulated provider: answers, failures, waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jackline.agents.gateway_model import GatewayModel, credentials_from
from jackline.agents.runner import JsonObject, ModelCaller, ModelFailedError, WholeAnswer
from jackline.clock import VirtualClock
from jackline.dialects import HOLD_ID, placeholder_start
from jackline.failures import Kind
from jackline.gateway.own_answers import ASK_AGAIN
from jackline.gateway.settings import HoldSettings
from jackline.simulator.reply_script import Fail, Rule, Say, long_answer
from jackline.testing import SimulatedProvider
from tests.agents.world import run
from tests.assembly.world import gateway, http, provider, until
from tests.upstream.loopback import Server, Wire, open_connections

CALLER = ModelCaller("session-1", "task-1", "run-1")
STREAM = (b"content-type", b"text/event-stream")


def question(text: str = "What is 1 + 2?", **more: object) -> JsonObject:
    return {
        "model": "claude-opus-4-8",
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": text}],
        **more,
    }


@asynccontextmanager
async def asked_through(
    folder: Path, upstream: str, **more: Any
) -> AsyncIterator[tuple[GatewayModel, Any]]:
    async with (
        gateway(folder, upstream, **more) as service,
        GatewayModel(service.url, headers=(("x-api-key", "sk-ant-dummy"),)) as model,
    ):
        yield model, service


def ask_simulated(folder: Path, simulated: SimulatedProvider, **more: Any) -> WholeAnswer:
    async def main() -> WholeAnswer:
        async with asked_through(folder, simulated.url) as (model, _):
            return await model.ask(question(**more), CALLER)

    return run(main())


def test_an_answer_comes_whole_with_its_tool_calls_its_usage_and_its_lane(tmp_path: Path) -> None:
    with SimulatedProvider() as simulated:
        add: JsonObject = {"a": 1, "b": [2, {"c": "ü"}]}
        calls = (("add", add), ("nothing", JsonObject()))
        simulated.says(Say("Let me see. " * 40, calls))
        answer = ask_simulated(tmp_path, simulated)
    text, first, second = answer.content
    assert text == {"type": "text", "text": "Let me see. " * 40}
    assert (first["name"], first["input"]) == calls[0]
    assert (second["name"], second["input"]) == calls[1]
    assert first["id"] != second["id"]
    assert answer.stop_reason == "tool_use"
    assert answer.usage.input_tokens > 0
    assert answer.usage.output_tokens > 0
    assert answer.model == "claude-opus-4-8"
    assert answer.request_id
    assert answer.lane
    assert "claude-opus-4-8" in answer.lane


def test_the_gateway_knows_session_agent_and_tag(tmp_path: Path) -> None:
    async def main() -> list[dict[str, Any]]:
        with SimulatedProvider() as simulated:
            simulated.says(Say("3", delay=0.5))
            async with asked_through(tmp_path, simulated.url) as (model, service):
                asking = asyncio.ensure_future(model.ask(question(), CALLER))
                await until(lambda: bool(service.desk.calls))
                identity = service.desk.calls[0].identity
                await asking
        return [{"session": identity.session, "agent": identity.agent, "tag": identity.tag}]

    (known,) = run(main())
    assert known == {"session": "session-1", "agent": "task-1", "tag": "run-1"}


def test_credentials_come_from_the_environment_or_not_at_all() -> None:
    assert credentials_from({}) == ()
    assert credentials_from({"ANTHROPIC_API_KEY": "k"}) == (("x-api-key", "k"),)
    assert credentials_from({"ANTHROPIC_AUTH_TOKEN": "t"}) == (("authorization", "Bearer t"),)
    model = GatewayModel(
        "http://127.0.0.1:1", headers=credentials_from({"ANTHROPIC_API_KEY": "k9"})
    )
    assert "k9" not in repr(model)


# --- failures -----------------------------------------------------------------------------------


def failure_of(folder: Path, simulated: SimulatedProvider) -> ModelFailedError:
    with pytest.raises(ModelFailedError) as caught:
        ask_simulated(folder, simulated)
    return caught.value


def test_a_quota_wall_is_told_at_once_with_its_reset(tmp_path: Path) -> None:
    with SimulatedProvider() as simulated:
        simulated.quota_wall(resets_in=7200)
        error = failure_of(tmp_path, simulated)
    assert error.failure.kind is Kind.ACCOUNT_QUOTA
    assert error.failure.resets_at is not None
    assert error.evidence.status == 429
    assert error.evidence.request_id


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Fail(401, "authentication_error", "invalid x-api-key"), Kind.AUTH),
        (Fail(404, "not_found_error", "model: claude-nope"), Kind.MODEL_NOT_FOUND),
        (Fail(400, "invalid_request_error", "max_tokens: too many"), Kind.INVALID_REQUEST),
    ],
)
def test_what_a_person_must_change_is_told_in_the_apis_words(
    tmp_path: Path, reply: Fail, kind: Kind
) -> None:
    with SimulatedProvider() as simulated:
        simulated.says(reply)
        error = failure_of(tmp_path, simulated)
    assert error.failure.kind is kind
    assert error.evidence.status == reply.status
    assert reply.message in error.evidence.says


def test_throttles_and_broken_streams_are_the_gateways_to_mend(tmp_path: Path) -> None:
    with SimulatedProvider() as simulated:
        simulated.says(long_answer(400))
        simulated.throttle(1.0, retry_after=1)
        simulated.cut(2.0, at=0.5)
        answer = ask_simulated(tmp_path, simulated)
    assert answer.stop_reason == "end_turn"
    assert answer.content[0]["text"] == long_answer(400).text


def test_a_wall_met_after_long_holding_is_told_with_its_proper_status(tmp_path: Path) -> None:
    hold = HoldSettings(commit_after=0.2, ping_every=0.2, quota=0.0)

    async def main() -> ModelFailedError:
        with SimulatedProvider() as simulated:
            throttled = simulated.throttle(retry_after=2)
            async with asked_through(tmp_path, simulated.url, hold=hold) as (model, service):
                asking = asyncio.ensure_future(model.ask(question(), CALLER))
                await until(lambda: any(call.committed for call in service.desk.calls))
                simulated.quota_wall(resets_in=7200)
                simulated.heal(throttled)
                with pytest.raises(ModelFailedError) as caught:
                    await asking
                return caught.value

    error = run(main())
    assert error.failure.kind is Kind.ACCOUNT_QUOTA
    assert error.evidence.status == 429
    assert error.failure.resets_at is not None


# --- a gateway that is gone ---------------------------------------------------------------------


def test_a_gateway_that_comes_back_is_waited_for() -> None:
    async def main() -> WholeAnswer:
        with SimulatedProvider() as simulated:
            simulated.says(Say("3"))
            async with Server(_hang_up_at_once) as server:
                url, port = server.url, server.port
            async with GatewayModel(url) as model:
                told = asyncio.Event()

                def hear(why: str, _until: object) -> None:
                    waits.append(why)
                    told.set()

                asking = asyncio.ensure_future(model.ask(question(), replace(CALLER, waits=hear)))
                await told.wait()
                assert not asking.done()
                assert waits == ["the gateway does not answer; the call is repeated"]
                relay = await asyncio.start_server(
                    lambda r, w: _relay(r, w, simulated.url), "127.0.0.1", port
                )
                async with relay:
                    return await asking

    waits: list[str] = []
    assert run(main()).content == [{"type": "text", "text": "3"}]
    assert waits[1:] == [""], "told once, and told when it is over"


async def _hang_up_at_once(wire: Wire) -> None:
    await wire.request()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    far_reader, far_writer = await asyncio.open_connection(host, int(port))

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data.replace(b"/t/run-1/v1", b"/v1"))
        sink.close()

    await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
    await asyncio.gather(writer.wait_closed(), far_writer.wait_closed(), return_exceptions=True)


def test_a_gateway_that_stays_away_is_an_outage() -> None:
    async def main() -> ModelFailedError:
        async with Server(_hang_up_at_once) as server:
            url = server.url
        async with GatewayModel(url, patience=0.5) as model:
            with pytest.raises(ModelFailedError) as caught:
                await model.ask(question(), CALLER)
            return caught.value

    error = run(main())
    assert error.failure.kind is Kind.NETWORK_EDGE
    assert error.evidence.status is None


def test_a_gateway_that_says_come_back_is_asked_again() -> None:
    busy = http(
        503,
        b'{"type":"error","error":{"type":"overloaded_error","message":"Ask again."}}',
        (b"retry-after", b"1"),
        ASK_AGAIN,
    )
    good = http(200, _stream("3"), STREAM)

    async def main() -> tuple[WholeAnswer, int]:
        async with provider(busy, good) as (scripted, url), GatewayModel(url) as model:
            return await model.ask(question(), CALLER), len(scripted.asked)

    answer, asked = run(main())
    assert answer.content[0]["text"] == "3"
    assert asked == 2


@pytest.mark.parametrize("status", [200, 400, 503])
def test_an_upstream_that_says_so_is_not_asked_again(status: int) -> None:
    """Each repeat sends the whole prompt, outside of every budget."""
    odd = http(status, b"{}", (b"retry-after", b"0"), (b"x-should-retry", b"true"))
    answer, asked = ask_scripted(odd, http(200, _stream("3"), STREAM))
    assert isinstance(answer, ModelFailedError)
    assert asked == 1


def test_an_answer_under_the_name_of_a_placeholder_counts_like_any_other() -> None:
    """A gateway's placeholder is followed by the real start; an upstream's answer was paid for."""
    theirs = _stream("3").replace(b'"id": "m"', b'"id": "%b"' % HOLD_ID.encode())
    answer, asked = ask_scripted(http(200, theirs, STREAM))
    assert isinstance(answer, WholeAnswer)
    assert (answer.content[0]["text"], answer.model) == ("3", "claude-x")
    assert answer.usage.output_tokens == 7
    assert asked == 1


# --- streams ------------------------------------------------------------------------------------


def _stream(text: str, *, stop: bool = True) -> bytes:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "model": "claude-x", "usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": letter},
            }
            for letter in text
        ),
    ]
    if stop:
        events += [
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 7},
            },
            {"type": "message_stop"},
        ]
    lines = (f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
    return "".join(lines).encode()


def ask_scripted(*answers: bytes) -> tuple[WholeAnswer | ModelFailedError, int]:
    async def main() -> tuple[WholeAnswer | ModelFailedError, int]:
        async with provider(*answers) as (scripted, url), GatewayModel(url, patience=1.0) as model:
            try:
                return await model.ask(question(), CALLER), len(scripted.asked)
            except ModelFailedError as error:
                return error, len(scripted.asked)

    return run(main())


def test_a_placeholder_for_the_start_of_a_message_is_no_start() -> None:
    held = placeholder_start("claude-x") * 2
    answer, _ = ask_scripted(http(200, held + _stream("3"), STREAM))
    assert isinstance(answer, WholeAnswer)
    assert answer.content == [{"type": "text", "text": "3"}]
    assert answer.usage.output_tokens == 7


def test_a_stream_that_broke_in_the_middle_is_asked_for_again_but_not_for_ever() -> None:
    broken = http(200, _stream("half", stop=False), STREAM)
    answer, asked = ask_scripted(broken, http(200, _stream("whole"), STREAM))
    assert isinstance(answer, WholeAnswer)
    assert asked == 2
    error, asked = ask_scripted(broken)
    assert isinstance(error, ModelFailedError)
    assert error.failure.kind is Kind.TRUNCATED_STREAM
    assert error.text == "half"
    assert asked == 3


def test_an_error_that_is_no_utf_8_is_an_error_of_the_call() -> None:
    body = b'{"error": {"type": "invalid_request_error", "message": "max_tokens \xff"}}'
    error, _ = ask_scripted(http(400, body, (b"content-type", b"application/json")))
    assert isinstance(error, ModelFailedError)
    assert error.evidence.status == 400


@pytest.mark.parametrize("header", ["x-api-key", "authorization", "x-team-token"])
def test_a_key_of_any_form_that_a_vendor_repeats_is_not_shown(header: str) -> None:
    key = "correct-horse-battery-staple"
    body = {"error": {"type": "invalid_request_error", "message": f"unknown key {key}, sorry"}}

    async def main() -> ModelFailedError:
        error = http(400, json.dumps(body).encode(), (b"content-type", b"application/json"))
        async with (
            provider(error) as (_, url),
            GatewayModel(url, headers=((header, f"Bearer {key}"),)) as model,
        ):
            with pytest.raises(ModelFailedError) as caught:
                await model.ask(question(), CALLER)
            return caught.value

    says = run(main()).evidence.says
    assert "unknown key *" in says
    assert "sorry" in says
    assert key not in says


def test_what_is_no_answer_at_all_is_no_answer() -> None:
    page = http(200, b"<html><body>Please sign in</body></html>", (b"content-type", b"text/html"))
    error, asked = ask_scripted(page)
    assert isinstance(error, ModelFailedError)
    assert error.failure.kind is Kind.NETWORK_EDGE
    assert asked == 1


def test_an_answer_in_one_piece_is_taken_too() -> None:
    message = {
        "type": "message",
        "model": "claude-x",
        "content": [{"type": "text", "text": "3"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 4, "output_tokens": 2, "cache_read_input_tokens": 1},
    }
    whole = http(200, json.dumps(message).encode(), (b"content-type", b"application/json"))
    answer, _ = ask_scripted(whole)
    assert isinstance(answer, WholeAnswer)
    assert answer.usage.total == 7


def test_a_cancelled_call_frees_its_connection_at_once() -> None:
    async def main() -> None:
        answering, gone = asyncio.Event(), asyncio.Event()

        async def serve(wire: Wire) -> None:
            await wire.request()
            await wire.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            await wire.say(_stream("half", stop=False))
            answering.set()
            assert await wire.request() == b""
            gone.set()

        async with Server(serve) as server, GatewayModel(server.url) as model:
            asking = asyncio.ensure_future(model.ask(question(), CALLER))
            await answering.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await gone.wait()

    run(main())


def test_half_a_character_does_not_keep_a_call_from_being_sent() -> None:
    with SimulatedProvider() as simulated:
        simulated.says(Rule(Say("got it"), prompt="a ? b"), Say("not what was meant"))

        async def main() -> WholeAnswer:
            async with GatewayModel(simulated.url) as model:
                return await model.ask(question("a \ud83d b"), ModelCaller("s", "t"))

        assert run(main()).content[0]["text"] == "got it"


def test_one_connection_serves_one_call_after_the_other(tmp_path: Path) -> None:
    async def main() -> int:
        with SimulatedProvider() as simulated:
            simulated.says(Say("3"))
            async with asked_through(tmp_path, simulated.url) as (model, _):
                for _ in range(5):
                    await model.ask(question(), CALLER)
                return open_connections(model._upstream)

    assert run(main()) == 1


def test_a_gateway_lost_after_hours_of_holding_is_waited_for_as_long_as_any() -> None:
    clock = VirtualClock(datetime(2026, 11, 15, tzinfo=UTC))
    good = http(200, _stream("3"), STREAM)

    async def main() -> WholeAnswer:
        held = asyncio.Event()
        asked = 0

        async def serve(wire: Wire) -> None:
            nonlocal asked
            asked += 1
            await wire.request()
            if asked == 1:
                held.set()
                await clock.sleep(7200)
                wire.reset()
            else:
                await wire.say(good)

        async with Server(serve) as server, GatewayModel(server.url, clock=clock) as model:
            asking = asyncio.ensure_future(model.ask(question(), CALLER))
            await held.wait()
            await clock.advance(7200)
            while not asking.done():  # sockets are real, only time is not
                await asyncio.sleep(0.01)
                await clock.advance(1)
            return await asking

    assert run(main()).content[0]["text"] == "3"


def test_rules_by_turn_fit_what_was_asked() -> None:
    with SimulatedProvider() as simulated:
        simulated.says(Rule(Say("first"), turn=0), Say("later"))

        async def main() -> WholeAnswer:
            async with GatewayModel(simulated.url) as model:
                return await model.ask(question(), ModelCaller("s", "t"))

        assert run(main()).content[0]["text"] == "first"
