"""A caller who reaches the port and sends too much, too long names, or too slowly."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from jackline.assembly import Service, StateDir
from jackline.dialects import TokenUsage
from jackline.dialects.json_bounds import MOST_VALUES
from jackline.events import CallEnded
from jackline.gateway import lane_registry
from jackline.gateway.settings import HoldSettings, LimitSettings
from jackline.hooks.hook_input import HookInput
from jackline.lane_id import LaneId
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.task_proof import HEADER, named_task
from tests.assembly.world import (
    Got,
    answered,
    ask,
    config_for,
    gateway,
    http,
    journalled,
    port_of,
    provider,
    question,
    read_answer,
    request,
    run,
    until,
    whole,
)
from tests.attacks.kept import sizes
from tests.upstream.loopback import Server, Wire

MEGABYTE = 1024 * 1024
TOKEN = "the-token-of-this-port"  # noqa: S105 -- made up here
WITH_TOKEN = (b"x-jackline-token", TOKEN.encode())


Line: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def callers(url: str) -> AsyncIterator[Callable[[], Awaitable[Line]]]:
    """Gives as many connections as are asked for; none outlives it."""
    writers: list[asyncio.StreamWriter] = []

    async def connect() -> Line:
        line = await asyncio.open_connection("127.0.0.1", port_of(url), limit=1 << 26)
        writers.append(line[1])
        return line

    try:
        yield connect
    finally:
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Line]:
    async with callers(url) as connect:
        yield await connect()


async def answer_of(reader: asyncio.StreamReader) -> Got:
    return await asyncio.wait_for(read_answer(reader), 60)


def announced(size: int, *headers: tuple[bytes, bytes]) -> bytes:
    """The head of a request whose body of so many bytes does not follow."""
    head, _, _ = request(b"POST", b"/v1/messages", b"", *headers).partition(b"\r\n\r\n")
    return head.replace(b"Content-Length: 0", b"Content-Length: %d" % size) + b"\r\n\r\n"


# --- the token --------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["length", "chunked", "expect"])
def test_without_the_token_a_body_is_not_waited_for(tmp_path: Path, framing: str) -> None:
    heads = {
        "length": announced(32 * MEGABYTE),
        "chunked": announced(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"),
        "expect": announced(32 * MEGABYTE, (b"Expect", b"100-continue")),
    }

    async def main() -> None:
        async with provider(answered()) as (scripted, url):
            async with (
                gateway(tmp_path, url, token=TOKEN) as service,
                connected(service.url) as (reader, writer),
            ):
                writer.write(heads[framing])
                got = await answer_of(reader)
                assert got.status == 401
                assert "x-jackline-token" in got.json["error"]["message"]
                assert await reader.read() == b""
            assert not scripted.asked

    run(main())


def test_a_caller_without_the_token_who_goes_on_sending_still_reads_why(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            provider(answered()) as (_, url),
            gateway(tmp_path, url, token=TOKEN) as service,
            connected(service.url) as (reader, writer),
        ):
            writer.write(announced(8 * MEGABYTE))
            for _ in range(8):
                writer.write(b"x" * MEGABYTE)
                await writer.drain()
            assert (await answer_of(reader)).status == 401

    run(main())


def test_with_the_token_a_large_body_is_invited_and_taken(tmp_path: Path) -> None:
    async def main() -> None:
        body = question("x" * 2 * MEGABYTE)
        async with provider(answered()) as (scripted, url):
            async with (
                gateway(tmp_path, url, token=TOKEN) as service,
                connected(service.url) as (reader, writer),
            ):
                writer.write(announced(len(body), WITH_TOKEN, (b"Expect", b"100-continue")))
                assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                writer.write(body)
                assert (await answer_of(reader)).status == 200
            assert scripted.asked[0].body == body

    run(main())


# --- bodies -----------------------------------------------------------------------------------


def test_a_body_that_is_only_announced_takes_no_memory(tmp_path: Path) -> None:
    async def main() -> int:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            tracemalloc.start()
            try:
                async with callers(service.url) as connect:
                    for _ in range(20):
                        _, writer = await connect()
                        writer.write(announced(32 * MEGABYTE) + b"{")
                    await until(lambda: service.status()["connections"] == 20)
                    assert (await ask(service.url, request(body=question()))).status == 200
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert run(main()) < 32 * MEGABYTE


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_unfinished_bodies_together_stay_under_their_cap(tmp_path: Path, framing: str) -> None:
    """Who takes most for longest is told to come back; a call that is sent now passes."""
    limits = LimitSettings(drain=1.0, unfinished_bodies=8 * MEGABYTE)
    head = announced(32 * MEGABYTE)
    if framing == "chunked":
        head = announced(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        head += b"%x\r\n" % (32 * MEGABYTE)
    body = question("y" * MEGABYTE)

    async def main() -> None:
        async with provider(answered()) as (scripted, url):
            async with (
                gateway(tmp_path, url, limits=limits) as service,
                callers(service.url) as connect,
            ):
                lines = [await connect() for _ in range(6)]
                for _, writer in lines:
                    writer.write(head + b"x" * 2 * MEGABYTE)
                told = [asyncio.ensure_future(answer_of(reader)) for reader, _ in lines]
                done, pending = await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    got = each.result()
                    assert got.status == 503
                    assert "limits.unfinished_bodies" in got.json["error"]["message"]
                    assert int(got.header(b"retry-after") or b"0") >= 1
                # The others go on being heard; whoever sends a call now is not the one to go.
                assert pending
                await asyncio.sleep(0.5)  # what they hold weighs by the time that they hold it
                assert (await ask(service.url, request(body=body))).status == 200
                for each in pending:
                    each.cancel()
            assert scripted.asked[-1].body == body

    run(main())


def test_heads_that_do_not_end_count_as_unfinished(tmp_path: Path) -> None:
    limits = LimitSettings(drain=1.0, unfinished_bodies=256 * 1024)

    async def main() -> None:
        async with (
            provider(answered()) as (_, url),
            gateway(tmp_path, url, limits=limits) as service,
            callers(service.url) as connect,
        ):
            lines = [await connect() for _ in range(10)]
            for _, writer in lines:
                writer.write(b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 60_000)
            told = [asyncio.ensure_future(answer_of(reader)) for reader, _ in lines]
            done, pending = await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
            assert {each.result().status for each in done} == {503}
            assert (await ask(service.url, request(body=question()))).status == 200
            for each in pending:
                each.cancel()

    run(main())


def test_requests_sent_ahead_count_as_unfinished(tmp_path: Path) -> None:
    """They wait behind one that is not answered yet."""
    limits = LimitSettings(drain=1.0, unfinished_bodies=512 * 1024)

    async def main() -> None:
        async with (
            Server(_silent) as server,
            gateway(tmp_path, server.url, limits=limits) as service,
            callers(service.url) as connect,
        ):
            lines = [await connect() for _ in range(20)]
            for _, writer in lines:
                writer.write(request(body=question()))
            await until(lambda: len(service.desk.calls) == 20)
            for _, writer in lines:
                writer.write(request(body=question("x" * 60_000)))
            ended = [asyncio.ensure_future(reader.read()) for reader, _ in lines]
            done, pending = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
            assert all(isinstance(each.exception(), ConnectionError) for each in done)
            assert pending
            for each in pending:
                each.cancel()

    run(main())


async def _silent(wire: Wire) -> None:
    while await wire.request():
        pass


def test_a_body_that_trickles_is_given_up(tmp_path: Path) -> None:
    """Every byte comes within the pause that is allowed, and the body would take for ever."""
    limits = LimitSettings(drain=1.0, body_pause=0.4, body_pace=64 * 1024)

    async def main() -> None:
        async with (
            provider(answered()) as (_, url),
            gateway(tmp_path, url, limits=limits) as service,
            connected(service.url) as (reader, writer),
        ):
            writer.write(announced(MEGABYTE))
            reading = asyncio.ensure_future(answer_of(reader))
            while not reading.done():
                writer.write(b"x")
                await asyncio.wait({reading}, timeout=0.05)
            assert reading.result().status == 408
            assert "limits.body_pace" in reading.result().json["error"]["message"]

    run(main())


def test_a_slow_body_within_the_pace_is_taken(tmp_path: Path) -> None:
    limits = LimitSettings(drain=1.0, body_pause=5.0, body_pace=1024)
    body = question("x" * 200_000)

    async def main() -> None:
        async with (
            provider(answered()) as (_, url),
            gateway(tmp_path, url, limits=limits) as service,
            connected(service.url) as (reader, writer),
        ):
            writer.write(announced(len(body)))
            for at in range(0, len(body), 10_000):
                writer.write(body[at : at + 10_000])
                await asyncio.sleep(0.01)
            assert (await answer_of(reader)).status == 200

    run(main())


# --- heads ------------------------------------------------------------------------------------


def test_thousands_of_tiny_headers_are_refused(tmp_path: Path) -> None:
    """Each costs many times its bytes once it is taken apart."""
    many = b"".join(b"a%d:b\r\n" % number for number in range(5000))

    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            raw = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n" + many + b"\r\n"
            got = await ask(service.url, raw)
            assert got.status == 431
            assert "headers" in got.json["error"]["message"]

    run(main())


def test_a_long_head_is_not_kept_for_the_next_request(tmp_path: Path) -> None:
    """A connection that stays open keeps nothing of it: twenty thousand may stay open."""

    async def main() -> int:
        async with provider(answered()) as (scripted, url), gateway(tmp_path, url) as service:
            raw = request(b"POST", b"/v1/messages", question(), (b"x-long", b"x" * 60_000))
            # What is made once is made before.
            await ask(service.url, raw)
            async with callers(service.url) as connect:
                tracemalloc.start()
                try:
                    for number in range(20):
                        reader, writer = await connect()
                        writer.write(raw.replace(b"xxxx", b"x%03d" % number, 1))
                        assert (await answer_of(reader)).status == 200
                        scripted.asked.clear()
                    return tracemalloc.get_traced_memory()[0]
                finally:
                    tracemalloc.stop()

    assert run(main()) < 20 * 60_000


# --- names ------------------------------------------------------------------------------------

MESSAGES = b"/v1/messages"


@pytest.mark.parametrize(
    "path", [MESSAGES, b"/v1/chat/completions", b"/v1/responses"], ids=["anthropic", "chat", "resp"]
)
def test_a_model_with_a_name_of_megabytes_is_refused(tmp_path: Path, path: bytes) -> None:
    async def main() -> None:
        async with provider(answered()) as (scripted, url), gateway(tmp_path, url) as service:
            for number in range(20):
                body = question(model=f"m{number}" + "x" * 5 * MEGABYTE)
                got = await ask(service.url, request(b"POST", path, body))
                assert got.status == 400
                assert "model" in got.json["error"]["message"]
            assert not scripted.asked
            page = await ask(service.url, request(b"GET", b"/metrics"))
            assert page.status == 200
            assert len(page.body) < MEGABYTE
            assert sum(sizes(service).values()) < MEGABYTE

    run(main())
    assert all(len(each.model) <= 200 for each in journalled(tmp_path))


def test_long_names_of_sessions_are_kept_short_and_apart(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            for end in (b"1", b"2"):
                raw = request(
                    b"POST",
                    MESSAGES,
                    question(),
                    (b"x-claude-code-session-id", b"s" * 20_000 + end),
                    (b"x-claude-code-agent-id", b"a" * 20_000 + end),
                    (b"x-jackline-class", b"c" * 10_000),
                )
                assert (await ask(service.url, raw)).status == 200

    run(main())
    first, second = journalled(tmp_path)
    assert (first.session, first.agent) != (second.session, second.agent)
    for each in (first, second):
        assert len(each.session or "") <= 200
        assert len(each.agent or "") <= 200


@pytest.mark.parametrize(
    "sign", ["\x1b]0;owned\x07", "\n2026-11-16 forged line", "\x9b2J", "\u202e"]
)
def test_a_name_cannot_steer_a_terminal_or_forge_a_line(tmp_path: Path, sign: str) -> None:
    async def main() -> None:
        async with provider(answered()) as (scripted, url), gateway(tmp_path, url) as service:
            got = await ask(service.url, request(b"POST", MESSAGES, question(model=f"m{sign}")))
            assert got.status == 400
            assert "control characters" in got.json["error"]["message"]
            assert not scripted.asked

    run(main())
    assert all(each.model.isprintable() for each in journalled(tmp_path))


def test_names_of_sessions_hold_no_control_characters_and_stay_apart(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            for sign in (b"\x9b", b"\x9d"):
                session = (b"x-claude-code-session-id", b"s" + sign + b"0;owned")
                raw = request(b"POST", MESSAGES, question(), session)
                assert (await ask(service.url, raw)).status == 200

    run(main())
    first, second = journalled(tmp_path)
    assert (first.session or "").isprintable()
    assert (second.session or "").isprintable()
    assert first.session != second.session


@pytest.mark.parametrize("path", [b"/mcp", b"/_jackline/pause", b"/_jackline/stop"])
def test_json_of_any_depth_is_refused_and_no_bug(tmp_path: Path, path: bytes) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            deep = b'{"method": "notifications/cancelled", "params": ' + b"[" * 100_000
            running = StateDir(tmp_path / "state").running()
            assert running is not None
            control = (b"x-jackline-control", running.token.encode())
            kind = (b"content-type", b"application/json")
            got = await ask(service.url, request(b"POST", path, deep, control, kind))
            assert 400 <= got.status < 500
            assert (await ask(service.url, request(b"GET", b"/healthz"))).status == 200

    run(main())


# --- agents of flows ------------------------------------------------------------------------------


def test_a_strangers_call_in_an_agents_name_is_not_counted_for_it(tmp_path: Path) -> None:
    """Whoever reaches the port can write any header, with a valid key of their own."""

    async def main() -> None:
        async with provider(answered()) as (scripted, url), gateway(tmp_path, url) as service:
            name = dict(named_task("t-victim"))[HEADER]
            for value in (name, "t-victim", name[:-1], f"t-other{name[8:]}"):
                header = (HEADER.encode(), value.encode())
                raw = request(b"POST", MESSAGES, question(), header)
                assert (await ask(service.url, raw)).status == 200
            meters = service.desk.task_meters.by_task
            assert {task: meter.answers for task, meter in meters.items()} == {"t-victim": 1}
            heard = b"".join(each.raw for each in scripted.asked).lower()
            assert heard.count(b"post /v1/messages") == 4
            assert b"x-jackline" not in heard
            assert name.rpartition(".")[2].encode() not in heard, "no upstream gets a proof"

    run(main())


def test_who_the_agents_are_is_for_the_users_own_commands(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9", token=TOKEN) as service:
            service.desk.task_meters.count_call("t-1", "m", TokenUsage(1), answered=True)
            path = b"/_jackline/tasks"
            for hidden in (path, b"/_jackline/waits"):
                got = await ask(service.url, request(b"GET", hidden, b"", WITH_TOKEN))
                assert got.status == 401
                assert b"t-1" not in got.body
            state = StateDir(tmp_path / "state")
            running = state.running()
            assert running is not None
            control = (b"x-jackline-control", running.token.encode())
            assert b"t-1" in (await ask(service.url, request(b"GET", path, b"", control))).body

    run(main())


# --- lanes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("varied", ["model", "key"])
def test_lanes_stay_bounded_and_are_never_shared(tmp_path: Path, varied: str) -> None:
    """Thousands of names or keys, each once: idle lanes make room for the next."""

    def raw(number: int) -> bytes:
        if varied == "model":
            return request(body=question(model=f"claude-{number}"))
        return request(body=question(), key=b"key-%d" % number)

    async def main() -> None:
        async with (
            provider(answered()) as (_, url),
            gateway(tmp_path, url) as service,
            connected(service.url) as (reader, writer),
        ):
            lanes = service.carrier.controller.lanes
            for number in range(1200):
                writer.write(raw(number))
                assert (await answer_of(reader)).status == 200
                assert len(lanes) <= 256
            # One that is known, one that was forgotten, and one that is new: each its own.
            for number in (1199, 0, 5000):
                writer.write(raw(number))
                got = await answer_of(reader)
                assert got.status == 200
                if varied == "model":
                    assert got.header(b"x-jackline-lane") == b"anthropic/claude-%d" % number
            assert not any("other" in name for name in lanes)
            page = await ask(service.url, request(b"GET", b"/metrics"))
            assert len(page.body) < 2 * MEGABYTE

    run(main())


def test_a_lane_at_a_wall_is_not_forgotten_for_others(tmp_path: Path) -> None:
    walled = http(
        429,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"limit"}}',
        (b"content-type", b"application/json"),
        (b"anthropic-ratelimit-unified-status", b"rejected"),
        (b"anthropic-ratelimit-unified-representative-claim", b"five_hour"),
        (b"anthropic-ratelimit-unified-reset", b"%d" % (time.time() + 40_000)),
    )

    async def main() -> None:
        async with (
            provider(walled, answered()) as (scripted, url),
            gateway(tmp_path, url) as service,
        ):
            wall = request(body=question(model="walled"), key=b"walled")
            assert (await ask(service.url, wall)).status == 429
            async with connected(service.url) as (reader, writer):
                for number in range(600):
                    body = question(model=f"claude-{number}")
                    writer.write(request(body=body, key=b"another"))
                    assert (await answer_of(reader)).status == 200
            asked = len(scripted.asked)
            assert (await ask(service.url, wall)).status == 429
            assert len(scripted.asked) == asked

    run(main())


def test_a_lane_in_use_is_not_forgotten_and_new_ones_have_an_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            Server(_silent) as server,
            gateway(tmp_path, server.url) as service,
            callers(service.url) as connect,
        ):
            lanes = service.carrier.controller.lanes
            told: list[asyncio.Task[Got]] = []
            for number in range(2060):
                reader, writer = await connect()
                writer.write(request(body=question(model=f"claude-{number}")))
                told.append(asyncio.ensure_future(answer_of(reader)))
            done, pending = await asyncio.wait(told, timeout=5)
            while len(done) < 12:
                done, pending = await asyncio.wait(told, timeout=1)
            assert {each.result().status for each in done} == {503}
            assert len(lanes) == 2048
            assert len(service.desk.calls) == 2048
            for each in pending:
                each.cancel()

    run(main())


# --- memory -----------------------------------------------------------------------------------


def test_what_is_kept_of_sessions_does_not_grow_with_their_number(tmp_path: Path) -> None:
    """Nothing that can be reached from the gateway grows from N distinct sessions to 3 N."""
    first, then = 21_000, 63_000

    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            now = time.time()

            def call(number: int) -> None:
                session, agent = f"session-{number}", f"agent-{number}"
                service.desk._work.asks(now, session, agent)
                service.desk._work.answered(now, session, agent, 1.0)
                service._announce(ended(now, session, agent, f"tag-{number}"))
                if number % 1000 == 0:
                    service.observatory.settle()

            for number in range(first):
                call(number)
            service.observatory.settle()
            before = sizes(service)
            for number in range(first, then):
                call(number)
            service.observatory.settle()
            after = sizes(service)
            grown = {
                path: (before.get(path, 0), size)
                for path, size in after.items()
                if size > before.get(path, 0) * 1.05 + 100 and "journal" not in path
            }
            assert not grown

    run(main())


def ended(at: float, session: str, agent: str, tag: str) -> CallEnded:
    return CallEnded(
        at=at,
        call=f"call-{session}",
        outcome="answered",
        lane=LaneId("anthropic", session, agent),
        model=session,
        session=session,
        agent=agent,
        parent=None,
        tag=tag,
        stream=False,
        status=200,
        attempts=1,
        waited=0.0,
        took=1.0,
        request_id="req",
        input_tokens=1,
        output_tokens=1,
        cache_read_tokens=0,
        cache_write_tokens=0,
    )


# --- what costs much to read ------------------------------------------------------------------


def test_a_client_with_a_version_of_thousands_of_digits_is_served(tmp_path: Path) -> None:
    agent = (b"User-Agent", b"claude-cli/" + b"9" * 5000 + b".1.1 (external, cli)")

    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            got = await ask(service.url, request(b"POST", MESSAGES, question(), agent))
            assert got.status == 200

    run(main())


def test_a_body_in_chunks_of_a_byte_is_refused(tmp_path: Path) -> None:
    """Each chunk costs as much to read as one of kilobytes."""
    head = announced(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")

    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            got = await ask(service.url, head + b"1\r\nx\r\n" * 10_000)
            assert got.status == 400
            assert "chunks" in got.json["error"]["message"]

    run(main())


@pytest.mark.parametrize(
    "size", [300 * MEGABYTE, 0], ids=["one bomb", "thousands of empty members"]
)
def test_a_packed_request_is_unpacked_within_limits(tmp_path: Path, size: int) -> None:
    """What cannot be read here is for the vendor to judge; it costs no memory beyond the limit."""
    limits = LimitSettings(drain=1.0, body=8 * MEGABYTE)
    body = gzip.compress(b" " * size) if size else gzip.compress(b"") * 100_000

    async def main() -> int:
        async with (
            provider(answered()) as (scripted, url),
            gateway(tmp_path, url, limits=limits) as service,
        ):
            tracemalloc.start()
            try:
                raw = request(b"POST", MESSAGES, body, (b"Content-Encoding", b"gzip"))
                assert (await ask(service.url, raw)).status == 200
                assert scripted.asked[0].body == body
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert run(main()) < 64 * MEGABYTE


def packing_well(size: int) -> bytes:
    """A model call of about so many bytes that packs to a fiftieth of them."""
    draw = random.Random(7)  # noqa: S311 -- the same bytes each time
    words = b"".join(draw.randbytes(4).hex().encode() * 40 for _ in range(size // 320))
    body = question(words.decode(), stream=True)
    assert 20 * len(gzip.compress(body)) < len(body) < 90 * len(gzip.compress(body))
    return body


@pytest.mark.parametrize("path", [MESSAGES, b"/v1/messages/count_tokens"])
def test_others_are_served_while_a_packed_request_is_unpacked(tmp_path: Path, path: bytes) -> None:
    """A few hundred kilobytes are worth a long turn of the loop, if they are unpacked in one."""
    packed = gzip.compress(packing_well(24 * MEGABYTE))
    began = time.thread_time()
    gzip.decompress(packed)
    in_one_go = time.thread_time() - began

    async def main() -> float:
        async with (
            provider(answered()) as (scripted, url),
            gateway(tmp_path, url) as service,
            connected(service.url) as (_, writer),
        ):
            writer.write(request(b"POST", path, packed, (b"Content-Encoding", b"gzip")))
            await writer.drain()
            longest, turn = 0.0, time.thread_time()
            while not scripted.asked:
                await asyncio.sleep(0)
                # Of this thread alone: how busy the machine is changes nothing.
                turn, last = time.thread_time(), turn
                longest = max(longest, turn - last)
            return longest

    assert run(main()) < in_one_go / 2


def test_a_caller_that_goes_while_its_request_is_unpacked_leaves_nothing(tmp_path: Path) -> None:
    packed = gzip.compress(packing_well(24 * MEGABYTE))

    async def main() -> None:
        async with (
            provider(answered()) as (scripted, url),
            gateway(tmp_path, url) as service,
        ):
            async with connected(service.url) as (_, writer):
                writer.write(request(b"POST", MESSAGES, packed, (b"Content-Encoding", b"gzip")))
                await writer.drain()
                await until(lambda: service.desk.held_bytes > len(packed))
            await until(lambda: service.desk.held_bytes == 0)
            assert scripted.asked == []
            assert service.desk.calls == []

    run(main())


def test_what_is_unpacked_counts_as_held(tmp_path: Path) -> None:
    packed = gzip.compress(packing_well(6 * MEGABYTE))
    limits = LimitSettings(drain=1.0, held_bodies=4 * MEGABYTE)

    async def main() -> None:
        async with (
            Server(_silent) as server,
            gateway(tmp_path, server.url, limits=limits) as service,
            connected(service.url) as (_, writer),
        ):
            # One that comes alone is held, however large it is.
            writer.write(request(b"POST", MESSAGES, packed, (b"Content-Encoding", b"gzip")))
            await until(lambda: len(service.desk.calls) == 1)
            assert service.desk.held_bytes > 6 * MEGABYTE
            got = await ask(service.url, request(b"POST", MESSAGES, question()))
            assert got.status == 503
            assert "held_bodies" in got.json["error"]["message"]

    run(main())


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize(
    "path", [MESSAGES, b"/v1/messages/count_tokens", b"/v1/chat/completions", b"/v1/responses"]
)
def test_a_request_of_millions_of_values_is_refused_unread(
    tmp_path: Path, path: bytes, packed: bool
) -> None:
    messages = b",".join(b'{"a":%d}' % number for number in range(MOST_VALUES + 1))
    body = b'{"model":"claude-opus-4-8","max_tokens":9,"messages":[%b]}' % messages
    coding = ((b"Content-Encoding", b"gzip"),) if packed else ()

    async def main() -> None:
        async with provider(answered()) as (scripted, url), gateway(tmp_path, url) as service:
            sent = gzip.compress(body, 1) if packed else body
            got = await ask(service.url, request(b"POST", path, sent, *coding))
            assert got.status == 413
            assert got.json["error"]["type"] == "request_too_large"
            assert "1,000,000" in got.json["error"]["message"]
            assert scripted.asked == []
            assert service.desk.held_bytes == 0

    run(main())


@pytest.mark.parametrize("path", [MESSAGES, b"/v1/messages/count_tokens"])
def test_a_conversation_of_ten_thousand_messages_is_sent_as_it_came(
    tmp_path: Path, path: bytes
) -> None:
    said = [{"role": "user", "content": "a, b"}, {"role": "assistant", "content": "c"}] * 5_000
    body = json.dumps({"model": "claude-opus-4-8", "max_tokens": 9, "messages": said}).encode()

    async def main() -> None:
        async with provider(answered()) as (scripted, url), gateway(tmp_path, url) as service:
            assert (await ask(service.url, request(b"POST", path, body))).status == 200
            assert scripted.asked[0].raw.endswith(body)

    run(main())


def test_bodies_that_are_unpacked_side_by_side_are_held_within_the_limit(tmp_path: Path) -> None:
    """Each finds room while it is packed; together they would grow beyond any."""
    packed = gzip.compress(packing_well(3 * MEGABYTE))
    limits = LimitSettings(drain=1.0, held_bodies=8 * MEGABYTE)

    async def main() -> None:
        async with (
            Server(_silent) as server,
            gateway(tmp_path, server.url, limits=limits) as service,
            callers(service.url) as connect,
        ):
            told: list[asyncio.Task[Got]] = []
            for _ in range(8):
                reader, writer = await connect()
                writer.write(request(b"POST", MESSAGES, packed, (b"Content-Encoding", b"gzip")))
                told.append(asyncio.ensure_future(answer_of(reader)))
            most = 0
            while len(service.desk.calls) + sum(each.done() for each in told) < len(told):
                await asyncio.sleep(0)
                most = max(most, service.desk.held_bytes)
            assert most <= 8 * MEGABYTE
            refused = [each.result() for each in told if each.done()]
            assert {each.status for each in refused} == {503}
            assert all("limits.held_bodies" in each.json["error"]["message"] for each in refused)
            # Those that were refused hold nothing any more.
            assert service.desk.held_bytes == sum(c.held_bytes for c in service.desk.calls)
            assert service.desk.calls
            for task in told:
                task.cancel()

    run(main())


@pytest.mark.parametrize("path", [MESSAGES, b"/v1/files"], ids=["model calls", "relayed"])
def test_calls_that_wait_hold_no_more_than_their_limit(tmp_path: Path, path: bytes) -> None:
    limits = LimitSettings(drain=1.0, held_bodies=4 * MEGABYTE)

    async def main() -> None:
        async with (
            Server(_silent) as server,
            gateway(tmp_path, server.url, limits=limits) as service,
            callers(service.url) as connect,
        ):
            told: list[asyncio.Task[Got]] = []
            for _ in range(6):
                reader, writer = await connect()
                writer.write(request(b"POST", path, question("x" * MEGABYTE)))
                told.append(asyncio.ensure_future(answer_of(reader)))
            done, pending = await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                assert each.result().status == 503
                assert "limits.held_bodies" in each.result().json["error"]["message"]
                assert each.result().header(b"retry-after") is not None
            for task in pending:
                task.cancel()
            # A small one still finds room, and when they have gone so do large ones.
            before = server.connections
            _, writer = await connect()
            writer.write(request(b"POST", path, question()))
            await until(lambda: server.connections == before + 1)
        async with (
            provider(answered()) as (_, url),
            gateway(tmp_path / "again", url, limits=limits) as service,
        ):
            for _ in range(12):
                got = await ask(service.url, request(b"POST", path, question("x" * MEGABYTE)))
                assert got.status == 200

    run(main())


def test_a_notification_with_thousands_of_beginnings_is_read_at_once() -> None:
    words = "<task-notification><summary><result>" * 200_000
    told = HookInput(prompt=words + "<task-id>x</task-id></task-notification>")
    assert [each.agent for each in told.notified_agents] == ["x"]


# --- numbers ----------------------------------------------------------------------------------

HUGE = "1" + "0" * 400
ODD_NUMBERS = [HUGE, f"-{HUGE}", "1e308", "1e400", "-1", "true", "1.5", '"9"', "null", "[1]"]


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=lambda each: each[:8])
@pytest.mark.parametrize(
    ("path", "kind", "field"),
    [
        (MESSAGES, UpstreamKind.ANTHROPIC, "max_tokens"),
        (b"/v1/chat/completions", UpstreamKind.OPENAI_CHAT, "max_completion_tokens"),
        (b"/v1/responses", UpstreamKind.OPENAI_RESPONSES, "max_output_tokens"),
    ],
    ids=["anthropic", "chat", "responses"],
)
def test_a_number_in_a_request_breaks_nothing_for_others(
    tmp_path: Path, path: bytes, kind: UpstreamKind, field: str, number: str
) -> None:
    """It is passed on as it came: what is wrong with it is for the vendor to say."""
    body = question().replace(b'"max_tokens": 100', f'"{field}": {number}'.encode())

    async def main() -> None:
        async with provider(answered()) as (scripted, url):
            upstreams = (
                UpstreamSettings(url=url, kind=kind, credential=Credential.BEARER, secret=TOKEN),
            )
            config = config_for(tmp_path, url)
            settings = replace(config.gateway, upstreams=upstreams)
            async with Service(replace(config, gateway=settings)) as service:
                for _ in range(3):
                    got = await ask(service.url, request(b"POST", path, body))
                    assert got.status == 200
                    assert scripted.asked[-1].body == body
                # As many others as it takes to look through all that is under way.
                for _ in range(80):
                    got = await ask(service.url, request(b"POST", path, question()))
                    assert got.status == 200
                assert service.desk.calls == []
                assert service.desk.carrier.under_way == 0

    run(main())


@pytest.mark.parametrize("told", [b"9" * 400, b"0", b"1e400", b"-5"])
def test_a_clients_own_patience_may_be_any_number(tmp_path: Path, told: bytes) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            headers = (b"x-stainless-timeout", told), (b"x-stainless-retry-count", told)
            got = await ask(service.url, request(b"POST", MESSAGES, question(), *headers))
            assert got.status == 200

    run(main())


# --- accounts ---------------------------------------------------------------------------------


def _of_account(name: str) -> bytes:
    return question(metadata={"user_id": json.dumps({"account_uuid": name})})


def _as_login(token: bytes, body: bytes) -> bytes:
    return request(b"POST", MESSAGES, body, (b"authorization", b"Bearer " + token), key=None)


def _walled() -> bytes:
    reset = b"%d" % (time.time() + 6 * 86400)
    return http(
        429,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"limit"}}',
        (b"Content-Type", b"application/json"),
        (b"anthropic-ratelimit-unified-status", b"rejected"),
        (b"anthropic-ratelimit-unified-representative-claim", b"seven_day"),
        (b"anthropic-ratelimit-unified-reset", reset),
    )


def test_one_login_is_one_account_whatever_it_claims(tmp_path: Path) -> None:
    organization = (b"anthropic-organization-id", b"one-of-theirs")
    answer = http(200, whole(), (b"Content-Type", b"application/json"), organization)

    async def main() -> None:
        async with provider(answer) as (_, url), gateway(tmp_path, url) as service:
            lanes = service.desk.carrier.controller.lanes
            for number in range(50):
                raw = _as_login(b"one", _of_account(f"invented-{number}"))
                assert (await ask(service.url, raw)).status == 200
            assert len(lanes) == 1
            (first,) = lanes.values()
            assert first.allowance.requests == 50
            # A renewed token of the same account shares what is known, once the vendor has said of
            # both whose they are; another account does not.
            for sent in (50, 51):
                raw = _as_login(b"two", _of_account("invented-0"))
                assert (await ask(service.url, raw)).status == 200
                assert first.allowance.requests == sent
            assert len(lanes) == 2
            for _ in range(2):
                raw = _as_login(b"three", _of_account("other"))
                assert (await ask(service.url, raw)).status == 200
            assert len(lanes) == 3
            # It may name its account only later, or not in every request.
            assert (await ask(service.url, _as_login(b"one", question()))).status == 200
            assert len(lanes) == 3
            assert first.allowance.requests == 52

    run(main())


def test_parked_lanes_of_invented_accounts_keep_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever invents tokens, too, fills what there is; honest callers are served after that."""
    most = 20
    monkeypatch.setattr(lane_registry, "MOST_IDLE", 4)
    monkeypatch.setattr(lane_registry, "MOST_LANES", most)
    answers = [answered(), *[_walled()] * (3 * most), answered()]
    hold = HoldSettings(quota=0.0)

    async def main() -> None:
        async with provider(*answers) as (_, url):
            async with gateway(tmp_path, url, hold=hold) as service:
                lanes = service.desk.carrier.controller.lanes
                assert (
                    await ask(service.url, _as_login(b"known", _of_account("known")))
                ).status == 200
                for number in range(3 * most):
                    raw = _as_login(b"token-%d" % number, _of_account(f"invented-{number}"))
                    assert (await ask(service.url, raw)).status == 429
                assert len(lanes) <= most
                assert (await ask(service.url, request(body=question()))).status == 200
                assert (await ask(service.url, _as_login(b"new", _of_account("new")))).status == 200
            # What is remembered over a restart keeps nobody out either.
            async with gateway(tmp_path, url, hold=hold) as service:
                got = await ask(service.url, _as_login(b"newest", _of_account("newest")))
                assert got.status == 200
                assert len(service.desk.carrier.controller.lanes) <= most

    run(main())


# --- what others are called -------------------------------------------------------------------


def test_a_refusal_names_no_account(tmp_path: Path) -> None:
    """A lane is called by its upstream, its model and a fingerprint of who pays."""

    async def main() -> None:
        nobody = "http://127.0.0.1:9"
        async with gateway(tmp_path, nobody, hold=HoldSettings(quota=0.0, other=0.3)) as service:
            raw = request(b"POST", b"/v1/messages", question())
            await ask(service.url, raw)
            (name,) = service.carrier.controller.lanes
            service.carrier.pause_lane(name, paused=True)
            got = await ask(service.url, raw)
            place, account = name.label, name.account
            assert got.status >= 500
            assert place in got.body.decode()
            assert account not in got.body.decode()

    run(main())
