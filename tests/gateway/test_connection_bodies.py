"""Bodies come in whole, held once, whatever their framing and their packets."""

from __future__ import annotations

import asyncio
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.gateway.connection import Exchange
from jackline.gateway.settings import LimitSettings
from jackline.http1.requests import ChunkedBody, RequestRefusal
from tests.gateway.serving import HOST, LOOPS, client_of, echo, get, listening, post, run, until

MEGABYTE = 1024 * 1024
CHUNKED = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@pytest.mark.parametrize("loop", LOOPS)
def test_a_body_of_32_megabytes_is_held_once(loop: str) -> None:
    size = 32 * MEGABYTE
    piece = b"m" * MEGABYTE
    bodies: list[bytes | bytearray] = []

    def keep(exchange: Exchange) -> None:
        bodies.append(exchange.body)
        exchange.respond(200)

    async def main() -> int:
        async with listening(keep) as listener, client_of(listener) as client:
            await client.send(b"POST / HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (HOST, size))
            tracemalloc.start()
            try:
                for _ in range(32):
                    client.writer.write(piece)
                    await client.writer.drain()
                await client.answer()
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    peak = run(main(), loop)
    assert bodies == [piece * 32]
    assert peak < 1.2 * size + 4 * MEGABYTE  # the client's own buffer is in this process too


def test_a_small_body_in_a_packet_of_its_own_is_bytes() -> None:
    bodies: list[bytes | bytearray] = []

    def keep(exchange: Exchange) -> None:
        bodies.append(exchange.body)
        exchange.respond(200)

    async def main() -> None:
        async with listening(keep) as listener, client_of(listener) as client:
            await client.send(post(b"abc")[:-3])
            await asyncio.sleep(0.01)
            await client.send(b"abc")
            await client.answer()

    run(main())
    assert bodies == [b"abc"]
    assert isinstance(bodies[0], bytes)


def test_a_chunked_body_is_put_together_and_its_trailers_are_dropped() -> None:
    seen: list[Exchange] = []

    def keep(exchange: Exchange) -> None:
        seen.append(exchange)
        exchange.respond(200)

    async def main() -> None:
        async with listening(keep) as listener, client_of(listener) as client:
            body = b"3;name=value\r\nabc\r\n00A\r\n0123456789\r\n0\r\nX-Trailer: t\r\n\r\n"
            await client.send(CHUNKED + body + get(b"/next"))
            assert (await client.answer()).status == 200
            assert (await client.answer()).status == 200

    run(main())
    assert [bytes(exchange.body) for exchange in seen] == [b"abc0123456789", b""]
    assert seen[1].path == b"/next"
    assert seen[0].header(b"x-trailer") is None


def test_a_client_that_asks_before_it_sends_is_told_to_go_on() -> None:
    async def main() -> None:
        async with listening(echo) as listener, client_of(listener) as client:
            request = post(b"abc", extra=b"Expect: 100-Continue\r\n")
            await client.send(request[:-3])
            assert (await client.answer()).status == 100
            await client.send(request[-3:])
            assert (await client.answer()).body.endswith(b"abc")
            await client.send(request)  # did not wait: no need to tell it
            assert (await client.answer()).status == 200

    run(main())


def test_a_client_that_asks_before_it_sends_too_much_is_refused_instead() -> None:
    async def main() -> None:
        limits = LimitSettings(body=10)
        async with listening(echo, limits) as listener, client_of(listener) as client:
            await client.send(post(b"x" * 11, extra=b"Expect: 100-continue\r\n")[:-11])
            assert (await client.answer()).status == 413

    run(main())


def test_a_body_of_exactly_the_limit_is_taken() -> None:
    async def main() -> None:
        limits = LimitSettings(body=10)
        async with listening(echo, limits) as listener, client_of(listener) as client:
            for request in (post(b"x" * 10), CHUNKED + chunks(b"x" * 5, b"x" * 5)):
                await client.send(request)
                assert (await client.answer()).status == 200

    run(main())


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b"x" * 3_000_000),
        CHUNKED + chunks(*[b"x" * 100_000] * 30),
        CHUNKED + b"ffffffffff\r\n" + b"x" * 3_000_000,
    ],
    ids=["length", "chunked", "one endless chunk"],
)
def test_a_body_over_the_limit_is_refused_and_the_reason_arrives(request_bytes: bytes) -> None:
    async def main() -> None:
        limits = LimitSettings(body=1_000_000)
        async with listening(echo, limits) as listener, client_of(listener) as client:
            client.writer.write(request_bytes)
            answer = await client.answer()
            assert answer.status == 413
            assert answer.headers["connection"] == "close"
            kind, message = answer.error
            assert kind == "request_too_large"
            assert "limits.body" in message
            client.writer.write_eof()
            await until(lambda: listener.connections == 0)

    run(main())


def test_an_upgrade_to_http_2_is_ignored_and_the_body_is_read() -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"

    async def main() -> None:
        async with listening(echo) as listener, client_of(listener) as client:
            await client.send(post(b"abc", extra=upgrade) + get(b"/a", extra=upgrade) + get(b"/b"))
            for body in (b"POST /v1/messages abc", b"GET /a ", b"GET /b "):
                assert (await client.answer()).body == body

    run(main())


def fed(data: bytes, cuts: list[int]) -> tuple[bytes, int] | str:
    """Body and length of what was used, or the refusal, for one way to cut the bytes."""
    body = ChunkedBody(limit=10_000)
    used = 0
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    try:
        for start, stop in pairwise(edges):
            if not body.ended:
                used += body.feed(data[start:stop])
    except RequestRefusal as refusal:
        return refusal.message
    return (bytes(body.data) if body.ended else b"unfinished"), used


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    st.binary(max_size=20),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_a_chunked_body_ends_at_the_same_byte_however_it_is_cut(
    parts: list[bytes], behind: bytes, cuts: list[int]
) -> None:
    wire = chunks(*parts)
    assert fed(wire + behind, cuts) == (b"".join(parts), len(wire))


@given(
    st.text("0123aAfF;x=\r\n \t-", max_size=30).map(str.encode),
    st.lists(st.integers(0, 100), max_size=6),
)
def test_nonsense_instead_of_chunks_is_judged_alike_however_it_is_cut(
    wire: bytes, cuts: list[int]
) -> None:
    assert fed(wire, cuts) == fed(wire, [])


@pytest.mark.parametrize(
    "wire",
    [
        b"3\nabc\r\n0\r\n\r\n",
        b"3\r\nabc\n0\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0\r\n\r\n",
        b" 3\r\nabc\r\n0\r\n\r\n",
        b"+3\r\nabc\r\n0\r\n\r\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b"3_0\r\n",
        b"\r\n",
        b"-1\r\n",
        b"1" * 16 + b"\r\n",
        b"3;a\rb\r\nabc\r\n0\r\n\r\n",
        b"3;a\0b\r\nabc\r\n0\r\n\r\n",
        b"3;" + b"a" * 5000 + b"\r\n",
        b"0\r\nbad trailer\r\n\r\n",
        b"0\r\n folded: x\r\n\r\n",
        b"0\r\nA: b\n\r\n",
        b"0\r\n" + b"A: b\r\n" * 65,
    ],
)
def test_chunks_that_two_readers_could_read_apart_are_refused(wire: bytes) -> None:
    with pytest.raises(RequestRefusal):
        ChunkedBody(limit=1000).feed(wire)
