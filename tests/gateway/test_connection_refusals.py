"""What is unclear, too much or no HTTP is refused with a reason, and the connection ends there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from jackline.gateway.connection import Exchange
from jackline.gateway.own_answers import request_refusal
from jackline.gateway.settings import LimitSettings
from jackline.http1.requests import RequestRefusal, parse_head
from tests.gateway.serving import HOST, LOOPS, client_of, echo, get, listening, post, run, until

START = b"POST / HTTP/1.1\r\n" + HOST
CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"
SMUGGLED = get(b"/smuggled")

MALFORMED = {
    "length and chunked": START
    + b"Content-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\n"
    + CHUNKS,
    "chunked and length": START
    + b"Transfer-Encoding: chunked\r\nContent-Length: 13\r\n\r\n"
    + CHUNKS,
    "two lengths": START + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "the same length twice": START + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": START + b"Content-Length: 3, 3\r\n\r\nabc",
    "signed length": START + b"Content-Length: +3\r\n\r\nabc",
    "negative length": START + b"Content-Length: -3\r\n\r\nabc",
    "hexadecimal length": START + b"Content-Length: 0x3\r\n\r\nabc",
    "length with underscore": START + b"Content-Length: 1_0\r\n\r\nabc",
    "empty length": START + b"Content-Length:\r\n\r\nabc",
    "endless length": START + b"Content-Length: " + b"9" * 40 + b"\r\n\r\nabc",
    "length of thousands of digits": START + b"Content-Length: " + b"0" * 5000 + b"3\r\n\r\nabc",
    "length of 16 digits": START + b"Content-Length: " + b"0" * 15 + b"3\r\n\r\nabc",
    "blank before the colon": START + b"Content-Length : 3\r\n\r\nabc",
    "gzip, chunked": START + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "chunked, chunked": START + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + CHUNKS,
    "chunked, gzip": START + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + CHUNKS,
    "identity": START + b"Transfer-Encoding: identity\r\n\r\n" + CHUNKS,
    "xchunked": START + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    "empty coding": START + b"Transfer-Encoding:\r\n\r\n" + CHUNKS,
    "coding with vertical tab": START + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS,
    "two codings": START
    + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"
    + CHUNKS,
    "coding behind a fold": START + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "folded header": START + b"X-A: a\r\n b\r\nContent-Length: 3\r\n\r\nabc",
    "blank before the first header": b"POST / HTTP/1.1\r\n " + HOST + b"\r\n",
    "bare line feeds": START.replace(b"\r\n", b"\n") + b"Content-Length: 3\n\nabc",
    "one bare line feed": START + b"X-A: a\nContent-Length: 3\r\n\r\nabc",
    "bare line feed at the end": START + b"Content-Length: 3\r\n\nabc",
    "bare carriage return": START + b"X-A: a\rContent-Length: 3\r\n\r\nabc",
    "NUL in a value": START + b"X-A: a\0b\r\n\r\n",
    "no colon": START + b"nonsense\r\n\r\n",
    "empty name": START + b": x\r\n\r\n",
    "control character in a name": START + b"X\x0b: x\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": START + HOST + b"\r\n",
    "two blanks in the request line": b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n",
    "blank in the path": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "control character in the path": b"GET /\x01 HTTP/1.1\r\n" + HOST + b"\r\n",
    "proxy request": b"GET http://example.com/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "fragment": b"GET /#a HTTP/1.1\r\n" + HOST + b"\r\n",
    "line feed in the path": b"GET /\nX: HTTP/1.1\r\n" + HOST + b"\r\n",
    "line end in the path": b"GET /\r\nX: HTTP/1.1\r\n" + HOST + b"\r\n",
    "carriage return in the path": b"GET /\rX: HTTP/1.1\r\n" + HOST + b"\r\n",
    "line feed behind the version": b"GET / HTTP/1.1\nX: a\r\n" + HOST + b"\r\n",
    "no version": b"GET /\r\n\r\n",
    "a TLS greeting": bytes.fromhex("160301020001000001fc0303"),
    "not HTTP at all": b"{hello}\r\n",
    "bad size of a chunk": START + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
}


async def refused(request: bytes, *pieces: bytes) -> tuple[int, list[bytes]]:
    """The status of the refusal, and the paths that reached the handler."""
    reached: list[bytes] = []

    def handle(exchange: Exchange) -> None:
        reached.append(exchange.path)
        echo(exchange)

    async with listening(handle) as listener, client_of(listener) as client:
        await client.send(request, *pieces)
        answer = await client.answer()
        kind, message = answer.error
        assert kind == "invalid_request_error"
        assert message.endswith(".")
        assert answer.headers["connection"] == "close"
        assert answer.headers["content-type"] == "application/json"
        assert await client.closed()
        return answer.status, reached


@pytest.mark.parametrize("name", MALFORMED)
def test_a_request_whose_meaning_is_not_certain_is_refused_and_nothing_behind_it_is_read(
    name: str,
) -> None:
    assert run(refused(MALFORMED[name] + SMUGGLED)) == (400, [])


@pytest.mark.parametrize("name", MALFORMED)
def test_the_same_refusal_meets_a_request_that_comes_byte_by_byte(name: str) -> None:
    wire = MALFORMED[name] + SMUGGLED
    pieces = [wire[at : at + 1] for at in range(len(wire))]
    assert run(refused(*pieces), "asyncio") == (400, [])


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"CONNECT example.com:443 HTTP/1.1", 501),
        (b"TRACE / HTTP/1.1", 501),
        (b"BREW / HTTP/1.1", 501),
        (b"GET / HTTP/2.0", 505),
        (b"GET / HTTP/1.2", 505),
        (b"GET / HTTP/0.9", 505),
        (b"GET / RTSP/1.0", 505),
        (b"PRI * HTTP/2.0", 505),
    ],
)
def test_other_methods_and_versions_are_refused(line: bytes, status: int) -> None:
    assert run(refused(line + b"\r\n" + HOST + b"\r\n" + SMUGGLED)) == (status, [])


def test_a_head_with_bare_line_feeds_is_refused_at_once_and_not_waited_for() -> None:
    assert run(refused(b"GET / HTTP/1.1\nHost: a\n\n")) == (400, [])
    assert run(refused(b"GET / HTTP/1.1\r", b"\nHost: a\r\n", b"\n")) == (400, [])


def test_empty_lines_before_a_request_are_overlooked() -> None:
    async def main() -> None:
        async with listening(echo) as listener, client_of(listener) as client:
            await client.send(b"\r\n", b"\r", b"\n\r\n" + get(b"/a") + b"\r\n" + get(b"/b"))
            assert (await client.answer()).body == b"GET /a "
            assert (await client.answer()).body == b"GET /b "

    run(main())


def test_blanks_around_a_value_that_frames_are_overlooked() -> None:
    head = parse_head(START + b"Transfer-Encoding:  Chunked \r\n\r\n")
    assert head.length is None
    assert parse_head(START + b"Content-Length:  7\t \r\n\r\n").length == 7


def test_a_header_whose_name_only_ends_like_one_that_frames_does_not_frame() -> None:
    assert parse_head(START + b"X-Content-Length: 7\r\nX-Transfer-Encoding: a\r\n\r\n").length == 0


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "endless"])
def test_headers_over_the_limit_are_refused(whole: bool) -> None:
    async def main() -> None:
        limits = LimitSettings(headers=2000)
        async with listening(echo, limits) as listener, client_of(listener) as client:
            await client.send(get(extra=b"X-A: %b\r\n" % (b"a" * 1900)))
            assert (await client.answer()).status == 200
            wire = get(extra=b"X-A: %b\r\n" % (b"a" * 2000))
            await client.send(wire if whole else wire[:-2])
            answer = await client.answer()
            assert answer.status == 431
            assert "limits.headers" in answer.error[1]
            assert await client.closed()

    run(main())


PARTS: dict[str, tuple[Callable[[int], bytes], int, int]] = {
    "a long target": (lambda size: get(b"/" + b"a" * (size - 1)), 8192, 414),
    "parameters": (lambda count: get(b"/a?b" + b"&b" * (count - 1)), 128, 400),
    "cookies": (
        lambda count: get(extra=b"Cookie: a=b" + b";a=b" * (count - 1) + b"\r\n"),
        256,
        431,
    ),
    "what Connection names": (
        lambda count: get(extra=b"Connection: a" + b",a" * (count - 1) + b"\r\n"),
        64,
        400,
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_target_and_cookies_that_are_taken_apart_before_it_is_known_who_asks_are_bounded(
    name: str,
) -> None:
    made, most, status = PARTS[name]
    assert parse_head(made(most)).method == b"GET"
    assert run(refused(made(most + 1) + SMUGGLED)) == (status, [])


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_too_many_is_told_so_and_there_is_room_again_when_another_leaves(
    loop: str,
) -> None:
    async def main() -> None:
        async with listening(echo, LimitSettings(connections=2)) as listener:
            async with client_of(listener) as first, client_of(listener) as second:
                for client in (first, second):
                    await client.send(get())
                    assert (await client.answer()).status == 200
                async with client_of(listener) as third:
                    await third.send(post(b"x" * 100_000))
                    answer = await third.answer()
                    assert answer.status == 503
                    assert answer.headers["retry-after"] == "1"
                    kind, message = answer.error
                    assert kind == "overloaded_error"
                    assert "limits.connections" in message
            await until(lambda: listener.connections == 0)
            async with client_of(listener) as fourth:
                await fourth.send(get())
                assert (await fourth.answer()).status == 200

    run(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_far_too_many_clients_are_cut_without_a_word(loop: str) -> None:
    async def main() -> None:
        async with listening(echo, LimitSettings(connections=0)) as listener:
            clients = [
                await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(300)
            ]
            await until(lambda: listener.connections <= 256)
            for _, writer in clients:
                writer.transport.abort()
            await until(lambda: listener.connections == 0)

    run(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_refused_client_that_goes_on_sending_is_cut_in_the_end(loop: str) -> None:
    async def main() -> None:
        limits = LimitSettings(body=10)
        async with listening(echo, limits) as listener, client_of(listener) as client:
            await client.send(post(b"x" * 11)[:-11])
            assert (await client.answer()).status == 413
            await client.send(b"x" * 100_000)
            (connection,) = listener._open
            assert connection.deadline < asyncio.get_running_loop().time() + 60
            connection.overdue()
            await until(lambda: listener.connections == 0)

    run(main(), loop)


def test_a_refusal_speaks_the_shape_that_clients_read() -> None:
    assert request_refusal(RequestRefusal(503, "Wait.", retry_after=7)).headers == [
        (b"Content-Type", b"application/json"),
        (b"Retry-After", b"7"),
    ]
    assert request_refusal(RequestRefusal(418, "Tea.")).body == (
        b'{"type": "error", "error": {"type": "api_error", "message": "Tea."}}'
    )
