"""A caller who reaches the port and sends too much, too long names, or too slowly."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from jackline.gateway.settings import LimitSettings
from tests.assembly.world import (
    Got,
    answered,
    ask,
    gateway,
    port_of,
    provider,
    question,
    read_answer,
    request,
    run,
    until,
)
from tests.upstream.loopback import Server, Wire

MEGABYTE = 1024 * 1024
TOKEN = "the-token-of-this-port"
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
            async with gateway(tmp_path, url, token=TOKEN) as service:
                async with connected(service.url) as (reader, writer):
                    writer.write(heads[framing])
                    got = await answer_of(reader)
                    assert got.status == 401
                    assert "x-jackline-token" in got.json["error"]["message"]
                    assert await reader.read() == b""
            assert not scripted.asked

    run(main())


def test_a_caller_without_the_token_who_goes_on_sending_still_reads_why(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url):
            async with gateway(tmp_path, url, token=TOKEN) as service:
                async with connected(service.url) as (reader, writer):
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
            async with gateway(tmp_path, url, token=TOKEN) as service:
                async with connected(service.url) as (reader, writer):
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
    limits = LimitSettings(drain_seconds=1.0, unfinished_bytes=8 * MEGABYTE)
    head = announced(32 * MEGABYTE)
    if framing == "chunked":
        head = announced(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        head += b"%x\r\n" % (32 * MEGABYTE)
    body = question("y" * MEGABYTE)

    async def main() -> None:
        async with provider(answered()) as (scripted, url):
            async with gateway(tmp_path, url, limits=limits) as service:
                async with callers(service.url) as connect:
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
    limits = LimitSettings(drain_seconds=1.0, unfinished_bytes=256 * 1024)

    async def main() -> None:
        async with provider(answered()) as (_, url):
            async with gateway(tmp_path, url, limits=limits) as service:
                async with callers(service.url) as connect:
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
    limits = LimitSettings(drain_seconds=1.0, unfinished_bytes=512 * 1024)

    async def main() -> None:
        async with Server(_silent) as server:
            async with gateway(tmp_path, server.url, limits=limits) as service:
                async with callers(service.url) as connect:
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
    limits = LimitSettings(drain_seconds=1.0, body_pause_seconds=0.4, body_pace=64 * 1024)

    async def main() -> None:
        async with provider(answered()) as (_, url):
            async with gateway(tmp_path, url, limits=limits) as service:
                async with connected(service.url) as (reader, writer):
                    writer.write(announced(MEGABYTE))
                    reading = asyncio.ensure_future(answer_of(reader))
                    while not reading.done():
                        writer.write(b"x")
                        await asyncio.wait({reading}, timeout=0.05)
                    assert reading.result().status == 408
                    assert "limits.body_pace" in reading.result().json["error"]["message"]

    run(main())


def test_a_slow_body_within_the_pace_is_taken(tmp_path: Path) -> None:
    limits = LimitSettings(drain_seconds=1.0, body_pause_seconds=5.0, body_pace=1024)
    body = question("x" * 200_000)

    async def main() -> None:
        async with provider(answered()) as (_, url):
            async with gateway(tmp_path, url, limits=limits) as service:
                async with connected(service.url) as (reader, writer):
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
