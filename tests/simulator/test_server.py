"""Over a socket, each fault looks as it does in the field."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.ledger import RequestOutcome
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import (
    HANGUP,
    Fail,
    ReplyScript,
    Rule,
    Say,
    Vanish,
    long_answer,
)
from jackline.simulator.server import ServerThread, SimulatorServer
from jackline.simulator.time_model import AT_ONCE, ServiceSettings
from jackline.testing import SimulatedProvider
from tests.simulator.http_client import PATIENCE, Got, ask, document, send

LONG = ReplyScript((), long_answer(400))
AT_ONCE_SETTINGS = ProviderSettings(service=AT_ONCE)
STEADY = ServiceSettings(first_byte=0.5, first_byte_spread=0.0, tokens_per_second=100)


@pytest.fixture
def provider() -> Iterator[SimulatedProvider]:
    with SimulatedProvider(script=LONG) as running:
        yield running


def request(**body: Any) -> bytes:
    payload = json.dumps(document(**body)).encode()
    head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def raw_exchange(provider: SimulatedProvider, **body: Any) -> tuple[bytes, bool]:
    """All bytes that come back, and whether the connection was reset."""
    with closing(socket.create_connection(("127.0.0.1", provider.port), PATIENCE)) as client:
        client.sendall(request(**body))
        received = b""
        try:
            while part := client.recv(65536):
                received += part
        except ConnectionResetError:
            return received, True
        return received, False


def body_of(received: bytes) -> bytes:
    """The body of a chunked answer, as far as it came."""
    rest = received.partition(b"\r\n\r\n")[2]
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body, rest = body + rest[:length], rest[length + 2 :]
    return body


def types(got: Got) -> list[str]:
    return [event["type"] for event in got.events]


def test_a_healthy_answer_streams_or_comes_whole_and_keeps_the_connection(
    provider: SimulatedProvider,
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", provider.port, timeout=PATIENCE)
    with closing(connection):
        for stream in (True, False, True):
            connection.request(
                "POST", "/v1/messages?beta=true", json.dumps(document(stream=stream))
            )
            answer = connection.getresponse()
            got = Got(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
            assert got.status == 200
            assert got.headers["request-id"].startswith("req_sim")
            if stream:
                assert types(got)[-1] == "message_stop"
            else:
                assert got.json["usage"]["output_tokens"] == 400
    ledger = provider.ledger
    assert (ledger.useful, ledger.wasted) == (3, 0)
    assert ledger.entries[0].output_tokens == 400


@pytest.mark.parametrize(
    ("effect", "status", "text"),
    [
        (Effect.THROTTLED, 429, "Rate limited"),
        (Effect.OVERLOADED, 529, "Overloaded"),
        (Effect.SERVER_ERROR, 500, "Internal server error"),
        (Effect.BAD_GATEWAY, 502, "<center>cloudflare</center>"),
        (Effect.ENVOY, 503, "Connection refused"),
        (Effect.ENVOY_OVERFLOW, 503, "overflow"),
        (Effect.CAPTIVE_PORTAL, 200, "Internet Access Denied"),
        (Effect.QUOTA_WALL, 429, "would exceed your account's rate limit"),
    ],
)
def test_refusals_are_exactly_those_of_the_vendor(
    provider: SimulatedProvider, effect: Effect, status: int, text: str
) -> None:
    provider.strike(Fault(effect))
    got = ask(provider, stream=True)
    assert got.status == status
    assert text in got.body.decode()
    from_edge = effect in (
        Effect.BAD_GATEWAY, Effect.ENVOY, Effect.ENVOY_OVERFLOW, Effect.CAPTIVE_PORTAL,
    )  # fmt: skip
    assert ("request-id" in got.headers) is not from_edge
    provider.heal()
    assert ask(provider).status == 200


def test_a_wall_announces_its_reset_on_the_clients_clock(provider: SimulatedProvider) -> None:
    before = time.time()
    provider.quota_wall(resets_in=7200)
    headers = ask(provider).headers
    after = time.time()
    reset = int(headers["anthropic-ratelimit-unified-reset"])
    assert before + 7200 - 1 <= reset <= after + 7200 + 1
    assert 7200 - (after - before) - 1 <= int(headers["retry-after"]) <= 7200 + 1
    assert headers["anthropic-ratelimit-unified-representative-claim"] == "five_hour"


def test_a_cut_is_a_reset_after_a_part_of_the_answer(provider: SimulatedProvider) -> None:
    provider.cut(at=0.5)
    received, was_reset = raw_exchange(provider, stream=True)
    assert was_reset
    body = body_of(received)
    assert b"content_block_delta" in body
    assert b"message_stop" not in body


@pytest.mark.parametrize("at_byte", [0, 1, 100, 777])
def test_a_cut_can_fall_on_any_byte(provider: SimulatedProvider, at_byte: int) -> None:
    provider.cut(at_byte=at_byte)
    received, was_reset = raw_exchange(provider, stream=True)
    assert was_reset
    assert len(body_of(received)) == at_byte


def test_a_clean_end_lacks_only_its_closing_events(provider: SimulatedProvider) -> None:
    provider.clean_end(at=1.0)
    got = ask(provider, stream=True)
    assert types(got)[-1] == "content_block_stop"
    assert provider.ledger.reasons["clean_end"] == 1


def test_an_error_event_ends_the_stream(provider: SimulatedProvider) -> None:
    provider.error_event(at=0.5)
    got = ask(provider, stream=True)
    assert got.status == 200
    assert got.events[-1]["error"]["type"] == "overloaded_error"
    assert ask(provider, stream=False).status == 529


def test_resets_and_refusals_of_the_connection(provider: SimulatedProvider) -> None:
    provider.reset()
    assert raw_exchange(provider) == (b"", True)
    provider.heal()
    handle = provider.refuse()
    with pytest.raises(ConnectionRefusedError):
        ask(provider)
    provider.heal(handle)
    assert ask(provider).status == 200


def test_a_refusal_of_connections_ends_by_itself() -> None:
    speed, seconds = 100.0, 20.0
    with SimulatedProvider(speed=speed) as provider:
        began = time.monotonic()
        provider.refuse(seconds=seconds)
        while time.monotonic() < began + PATIENCE:
            with suppress(ConnectionRefusedError):
                assert ask(provider).status == 200
                assert time.monotonic() >= began + seconds / speed, "not before it is over"
                return
            time.sleep(0.02)
        pytest.fail("it never came back")


@pytest.mark.parametrize("fault", ["hang", "silence"])
def test_silence_holds_the_client_until_it_hangs_up(
    provider: SimulatedProvider, fault: str
) -> None:
    getattr(provider, fault)()

    def is_silent() -> bool:
        return any(fault == "hang" or entry.first_byte is not None for entry in provider.ledger)

    with closing(socket.create_connection(("127.0.0.1", provider.port), PATIENCE)) as client:
        client.sendall(request(stream=True))
        until(is_silent)
        client.settimeout(0.3)
        with pytest.raises(TimeoutError), client.makefile("rb") as answer:
            answer.read()
    until(lambda: provider.ledger.open == 0)
    (entry,) = provider.ledger
    assert entry.outcome is RequestOutcome.CANCELLED
    assert (entry.first_byte is None) is (fault == "hang")


def test_a_stream_takes_its_time_and_a_drip_takes_longer() -> None:
    settings = ProviderSettings(service=STEADY)
    with SimulatedProvider(settings, LONG, speed=20) as provider:
        took = [seconds_of_an_answer(provider)]
        provider.slow_drip(slowness=3.0)
        took.append(seconds_of_an_answer(provider))
        entries = provider.ledger.entries
    spans = [entry.ended - entry.arrived for entry in entries if entry.ended is not None]
    assert spans == pytest.approx([4.5, 12.5], abs=0.01), "the model's time is exact"
    # The machine's is at least that; what it takes beyond is the machine's own.
    assert all(real >= 0.95 * span / 20 for real, span in zip(took, spans, strict=True)), took


def seconds_of_an_answer(provider: SimulatedProvider) -> float:
    began = time.monotonic()
    assert types(ask(provider, stream=True))[-1] == "message_stop"
    return time.monotonic() - began


def test_pieces_arrive_while_the_answer_is_made() -> None:
    # An answer of minutes: however slow the machine, its first pieces are here long before its end.
    settings = ProviderSettings(service=STEADY)
    with SimulatedProvider(settings, ReplyScript((), long_answer(40_000))) as provider:
        connection = http.client.HTTPConnection("127.0.0.1", provider.port, timeout=PATIENCE)
        with closing(connection):
            connection.request("POST", "/v1/messages", json.dumps(document(stream=True)))
            answer = connection.getresponse()
            read = b""
            while b"content_block_delta" not in read:
                read += answer.read1(1000)
            assert read.startswith(b"event: mes")
            assert b"message_stop" not in read
            assert provider.ledger.open == 1


def test_an_outage_breaks_streams_that_are_open() -> None:
    settings = ProviderSettings(service=STEADY)
    with SimulatedProvider(settings, ReplyScript((), long_answer(20_000)), speed=5) as provider:
        broken: list[bool] = []
        asking = threading.Thread(
            target=lambda: broken.append(raw_exchange(provider, stream=True)[1])
        )
        asking.start()
        until(lambda: any(entry.first_byte is not None for entry in provider.ledger))
        provider.outage(kills_in_flight=1.0)
        asking.join(PATIENCE)
        assert broken == [True]
        assert ask(provider).status == 500


def test_a_script_sends_text_errors_hangups_and_the_end_of_the_server() -> None:
    rules = (
        Rule(Fail(401, "authentication_error", "no", {"x-should-retry": "false"}), prompt="key"),
        Rule(HANGUP, prompt="drop"),
        Rule(Vanish(), prompt="gone"),
        Rule(Fail(529), call=5),
        Rule(Say("sub"), sub_agent=True),
    )
    with ServerThread(AT_ONCE_SETTINGS, ReplyScript(rules)) as server:
        refused = ask(server, "key")
        assert (refused.status, refused.headers["x-should-retry"]) == (401, "false")
        assert refused.json["request_id"] == refused.headers["request-id"]
        with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
            ask(server, "drop")
        sub = ask(server, "x", headers={"x-claude-code-agent-id": "a1"})
        assert sub.json["content"][0]["text"] == "sub"
        assert ask(server, "x").json["content"][0]["text"] == "Understood."
        assert [one.request.agent for one in server.recorded] == ["", "", "a1", ""]
        with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
            ask(server, "gone")
        with pytest.raises(ConnectionRefusedError):
            ask(server, "anyone")


def test_calls_count_retries_and_turns_do_not() -> None:
    rules = (Rule(Fail(529, "overloaded_error", "Overloaded"), call=0), Rule(Say("second"), turn=0))
    with ServerThread(AT_ONCE_SETTINGS, ReplyScript(rules)) as server:
        assert [ask(server).status for _ in range(2)] == [529, 200]


def test_the_other_endpoints(provider: SimulatedProvider) -> None:
    counted = ask(provider, path="/tenant/v1/messages/count_tokens")
    assert counted.json["input_tokens"] > 10
    models = send(provider, "GET", "/v1/models?limit=1000").json
    assert [model["type"] for model in models["data"]] == ["model"] * 3
    assert ask(provider, path="/v1/responses").json["object"] == "response"
    assert ask(provider, path="/v1/responses", stream=True).events[-1]["type"] == (
        "response.completed"
    )
    assert send(provider, "HEAD", "/").status == 404
    assert send(provider, "POST", "/v1/nothing", {}).status == 404
    assert send(provider, "POST", "/v1/messages", "no object").status == 400
    assert len(provider.ledger) == 2, "only model calls stand in the ledger"


def test_the_control_endpoint_changes_faults_and_reads_the_ledger(
    provider: SimulatedProvider,
) -> None:
    added = send(provider, "POST", "/_control/faults", {"effect": "throttled", "retry_after": 7})
    handle = added.json["handle"]
    assert ask(provider).headers["retry-after"] == "7"
    (fault,) = send(provider, "GET", "/_control/faults").json["faults"]
    assert (fault["handle"], fault["effect"], fault["until"]) == (handle, "throttled", None)
    send(provider, "DELETE", f"/_control/faults/{handle}")
    assert ask(provider, headers={"x-claude-code-session-id": "s1"}).status == 200
    ledger = send(provider, "GET", "/_control/ledger").json
    assert (ledger["requests"], ledger["useful"], ledger["wasted"]) == (2, 1, 1)
    assert ledger["entries"][1]["session"] == "s1"
    assert send(provider, "GET", "/_control/summary").json["reasons"] == {"429": 1, "completed": 1}
    assert send(provider, "POST", "/_control/reset").json == {"reset": True}
    assert send(provider, "GET", "/_control/summary").json["requests"] == 0
    assert send(provider, "GET", "/_control/settings").json["models"]
    named = send(provider, "POST", "/_control/settings", {"scenario": "outage"})
    assert named.json["scenario"] == "outage"
    assert send(provider, "GET", "/_control/faults").json["faults"][0]["effect"] == "envoy"
    send(provider, "DELETE", "/_control/faults")
    assert send(provider, "GET", "/_control/faults").json["faults"] == []
    assert "GET /_control/ledger" in send(provider, "GET", "/_control/").json["routes"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/_control/faults", {"effect": "nope"}, 400),
        ("POST", "/_control/faults", [1], 400),
        ("POST", "/_control/settings", {"x": 1}, 400),
        ("POST", "/_control/settings", {"scenario": "none-such"}, 404),
        ("DELETE", "/_control/faults/x", None, 400),
        ("DELETE", "/_control/ledger", None, 404),
        ("GET", "/_control/nothing", None, 404),
    ],
)
def test_the_control_endpoint_says_what_is_wrong(
    provider: SimulatedProvider, method: str, path: str, body: object, status: int
) -> None:
    got = send(provider, method, path, body)
    assert got.status == status
    assert got.json["error"]["message"]


def test_a_request_may_come_in_chunks(provider: SimulatedProvider) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", provider.port, timeout=PATIENCE)
    with closing(connection):
        parts = iter([b'{"model": "claude-', b'x", "messages": []}'])
        connection.request("POST", "/v1/messages", parts, encode_chunked=True)
        assert json.loads(connection.getresponse().read())["model"] == "claude-x"


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"\x00" * 99,
    ],
)
def test_garbage_ends_its_connection_and_nothing_else(
    provider: SimulatedProvider, garbage: bytes
) -> None:
    with closing(socket.create_connection(("127.0.0.1", provider.port), PATIENCE)) as client:
        client.sendall(garbage)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""
    assert ask(provider).status == 200


def test_it_runs_in_the_running_loop_and_leaves_no_task() -> None:
    async def run() -> tuple[int, int]:
        arrived = asyncio.Event()

        def hang(_asked: ClientRequest) -> Fault:
            arrived.set()
            return Fault(Effect.HANG)

        script = ReplyScript((Rule(hang, prompt="in vain"),))
        async with SimulatorServer(AT_ONCE_SETTINGS, script) as server:
            got = await asyncio.to_thread(ask, server)
            hung = asyncio.create_task(asyncio.to_thread(_ask_in_vain, server))
            await arrived.wait()
        await hung
        return got.status, len(asyncio.all_tasks())

    assert asyncio.run(run()) == (200, 1)


def _ask_in_vain(server: SimulatorServer) -> None:
    with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
        ask(server, "in vain")


def test_a_port_in_use_is_reported() -> None:
    with SimulatedProvider() as provider:
        second = ServerThread(port=provider.port)
        with pytest.raises(OSError, match="in use"):
            second.__enter__()


def test_many_clients_at_once(provider: SimulatedProvider) -> None:
    statuses: list[int] = []

    def work() -> None:
        statuses.extend(ask(provider, stream=True).status for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 100
    assert provider.ledger.useful == 100
