"""Requests come in as they were written, and answers go out framed so that their end is certain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from jackline.gateway.connection import Exchange
from jackline.gateway.listener import Listener
from tests.gateway.serving import (
    HOST,
    LOOPS,
    Answer,
    Client,
    client_of,
    echo,
    get,
    listening,
    post,
    run,
    until,
)

both_loops = pytest.mark.parametrize("loop", LOOPS)


def asked(handle: Callable[[Exchange], None], request: bytes, *, to_head: bool = False) -> Answer:
    """The answer of a handler to one request."""

    async def main() -> Answer:
        async with listening(handle) as listener, client_of(listener) as client:
            await client.send(request)
            return await client.answer(to_head=to_head)

    return run(main())


@both_loops
def test_a_request_is_seen_as_the_client_wrote_it(loop: str) -> None:
    seen: list[Exchange] = []

    def keep(exchange: Exchange) -> None:
        seen.append(exchange)
        exchange.respond(204)

    async def main() -> None:
        async with listening(keep) as listener, client_of(listener) as client:
            await client.send(
                b"POST /t/x/v1/messages?beta=true&a=%20 HTTP/1.1\r\nhOsT: 127.0.0.1\r\n"
                b"X-B: two\r\nx-a: one\r\nX-B: again\r\nContent-Length: 3\r\n\r\nabc"
            )
            assert (await client.answer()).status == 204

    run(main(), loop)
    (exchange,) = seen
    assert exchange.method == b"POST"
    assert exchange.target == b"/t/x/v1/messages?beta=true&a=%20"
    assert (exchange.path, exchange.query) == (b"/t/x/v1/messages", b"beta=true&a=%20")
    assert exchange.headers == [
        (b"hOsT", b"127.0.0.1"),
        (b"X-B", b"two"),
        (b"x-a", b"one"),
        (b"X-B", b"again"),
        (b"Content-Length", b"3"),
    ]
    assert exchange.header(b"x-b") == b"two"
    assert exchange.header(b"x-c") is None
    assert exchange.body == b"abc"
    assert not exchange.http_1_0


@both_loops
def test_one_connection_serves_request_after_request(loop: str) -> None:
    async def main() -> None:
        async with listening(echo) as listener, client_of(listener) as client:
            for number in range(5):
                await client.send(post(b"%d" % number))
                answer = await client.answer()
                assert answer.body == b"POST /v1/messages %d" % number
                assert "connection" not in answer.headers
            assert listener.connections == 1

    run(main(), loop)


@both_loops
def test_pipelined_requests_are_answered_one_by_one_and_in_order(loop: str) -> None:
    waiting: list[Exchange] = []

    async def main() -> None:
        async with listening(waiting.append) as listener, client_of(listener) as client:
            await client.send(post(b"a") + get(b"/b") + post(b"c", b"/c"), get(b"/d"))
            for path in (b"/v1/messages", b"/b", b"/c", b"/d"):
                await until(lambda: len(waiting) == 1)
                exchange = waiting.pop()
                assert exchange.path == path
                await asyncio.sleep(0.01)
                assert not waiting
                exchange.respond(200, (), path)
                assert (await client.answer()).body == path

    run(main(), loop)


def test_thousands_of_requests_in_one_packet_do_not_pile_up_on_the_stack() -> None:
    async def main() -> None:
        async with listening(echo) as listener, client_of(listener) as client:
            client.writer.write(get(b"/x") * 5000)
            for _ in range(5000):
                assert (await client.answer()).body == b"GET /x "

    run(main())


class Turns:
    """Counts the turns of the loop, and which request was handed over in which."""

    def __init__(self) -> None:
        self.now = 0
        self.of_requests: list[int] = []
        self._loop = asyncio.get_running_loop()
        self._tick()

    def _tick(self) -> None:
        self.now += 1
        self._loop.call_soon(self._tick)

    def handle(self, exchange: Exchange) -> None:
        self.of_requests.append(self.now)
        echo(exchange)


@both_loops
@pytest.mark.parametrize("count", [3, 3000])
def test_one_request_of_a_packet_is_answered_in_each_turn_of_the_loop(
    loop: str, count: int
) -> None:
    async def main() -> None:
        turns = Turns()
        async with listening(turns.handle) as listener, client_of(listener) as client:
            client.writer.write(b"".join(get(b"/%d" % number) for number in range(count)))
            for number in range(count):
                assert (await client.answer()).body == b"GET /%d " % number
            (connection,) = listener._open
            assert (connection.idle, connection.unfinished) == (True, 0)
            assert not connection._reading_paused
        assert len(turns.of_requests) == len(set(turns.of_requests)) == count

    run(main(), loop)


@both_loops
def test_of_a_client_that_has_gone_no_further_request_is_answered(loop: str) -> None:
    seen: list[bytes] = []

    def handle(exchange: Exchange) -> None:
        seen.append(exchange.path)
        exchange.respond(200)
        if len(seen) == 3:
            clients[0].reset()

    async def main() -> None:
        async with listening(handle) as listener, client_of(listener) as client:
            clients.append(client)
            client.writer.write(get(b"/x") * 5000)
            await until(lambda: not listener._open and bool(seen))
            assert len(seen) < 5000

    clients: list[Client] = []
    run(main(), loop)


@both_loops
def test_a_listener_that_stops_answers_one_more_request_that_was_sent_ahead(loop: str) -> None:
    seen: list[bytes] = []

    def handle(exchange: Exchange) -> None:
        seen.append(exchange.path)
        exchange.respond(200, (), exchange.path)
        if exchange.path == b"/2":
            asyncio.get_running_loop().call_soon(stop)

    def stop() -> None:
        stopping.append(asyncio.ensure_future(listeners[0].close(5.0)))

    listeners: list[Listener] = []
    stopping: list[asyncio.Future[None]] = []

    async def main() -> None:
        async with listening(handle) as listener, client_of(listener) as client:
            listeners.append(listener)
            client.writer.write(b"".join(get(b"/%d" % number) for number in range(500)))
            await until(lambda: bool(stopping))
            rest = await client.rest()
            assert rest.count(b"HTTP/1.1 200 ") == len(seen) < 10
            assert rest.count(b"Connection: close") == 1
            await asyncio.gather(*stopping)

    run(main(), loop)


@both_loops
def test_what_a_client_sent_before_it_sends_no_more_is_answered_where_that_takes_no_time(
    loop: str,
) -> None:
    gone: list[bytes] = []

    def handle(exchange: Exchange) -> None:
        if exchange.path == b"/x":
            echo(exchange)
        else:
            exchange.on_gone = lambda: gone.append(exchange.path)

    async def main(last: bytes, answered: int) -> None:
        async with listening(handle) as listener, client_of(listener) as client:
            client.writer.write(get(b"/x") * 500 + last)
            client.writer.write_eof()
            for _ in range(answered):
                assert (await client.answer()).body == b"GET /x "
            await until(lambda: not listener._open and bool(answered or gone))

    run(main(b"", 500), loop)
    run(main(b"GET /half HTTP/1.1\r\n", 500), loop)
    assert gone == []
    run(main(get(b"/slow"), 0), loop)
    assert gone == [b"/slow"]


@both_loops
def test_a_broken_request_far_ahead_is_refused_after_the_answers_before_it(loop: str) -> None:
    async def main() -> None:
        async with listening(echo) as listener, client_of(listener) as client:
            client.writer.write(get(b"/x") * 2000 + b"what is this\r\n\r\n" + get(b"/y") * 8000)
            for _ in range(2000):
                assert (await client.answer()).body == b"GET /x "
            assert (await client.answer()).status == 400
            assert await client.closed()

    run(main(), loop)


@both_loops
def test_a_client_that_sends_far_ahead_is_not_read_from_until_it_is_answered(loop: str) -> None:
    waiting: list[Exchange] = []
    count = 40
    request = post(b"z" * 64_000)

    async def main() -> None:
        async with listening(waiting.append) as listener, client_of(listener) as client:
            client.writer.write(request * count)
            await until(lambda: any(one._reading_paused for one in listener._open))
            (connection,) = listener._open
            for _ in range(count):
                await until(lambda: bool(waiting))
                await asyncio.sleep(0.005)
                # The limit, and the one packet that passed it.
                assert len(connection._ahead or b"") <= 64 * 1024 + 256 * 1024
                (exchange,) = waiting
                waiting.clear()
                assert len(exchange.body) == 64_000
                exchange.respond(200, (), b"ok")
                assert (await client.answer()).body == b"ok"

    run(main(), loop)


def test_an_answer_in_one_piece_carries_its_length() -> None:
    answer = asked(lambda exchange: exchange.respond(529, [(b"X-A", b"b")], b"busy"), get())
    assert answer == Answer(529, {"x-a": "b", "content-length": "4"}, b"busy")


def test_large_answers_arrive_whole() -> None:
    body = bytes(range(256)) * 8000
    assert asked(lambda exchange: exchange.respond(200, (), body), get()).body == body


def in_pieces(*pieces: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Callable[..., None]:
    def handle(exchange: Exchange) -> None:
        exchange.begin(200, headers)
        assert exchange.begun
        assert not exchange.finished
        for piece in pieces:
            exchange.send(piece)
        exchange.finish()
        assert exchange.finished

    return handle


def test_an_answer_in_pieces_is_chunked_and_an_empty_piece_does_not_end_it() -> None:
    big = b"y" * 100_000
    answer = asked(in_pieces(b"one ", b"", b"two ", big), get())
    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.body == b"one two " + big


def test_a_given_length_is_kept_for_an_answer_in_pieces() -> None:
    answer = asked(in_pieces(b"ab", b"c", headers=((b"content-length", b"3"),)), get())
    assert answer.headers == {"content-length": "3"}
    assert answer.body == b"abc"


@pytest.mark.parametrize("pieces", [(b"ab",), (b"abcd",), (b"abc", b"d"), ()])
def test_an_answer_that_breaks_the_promise_of_its_length_is_reset(
    pieces: tuple[bytes, ...],
) -> None:
    def handle(exchange: Exchange) -> None:
        exchange.begin(200, [(b"Content-Length", b"3")])
        for piece in pieces:
            exchange.send(piece)
        exchange.finish()

    async def main() -> None:
        async with listening(handle) as listener, client_of(listener) as client:
            await client.send(get())
            with pytest.raises(ConnectionResetError):
                await client.rest()

    run(main())


def test_nothing_is_sent_beyond_the_promised_length() -> None:
    after: list[tuple[bool, bool]] = []

    def handle(exchange: Exchange) -> None:
        exchange.begin(200, [(b"Content-Length", b"3")])
        exchange.send(b"abc")
        before = exchange.gone
        exchange.send(b"d")
        after.append((before, exchange.gone))

    async def main() -> None:
        async with listening(handle) as listener, client_of(listener) as client:
            await client.send(get())
            with pytest.raises(ConnectionResetError):
                await client.rest()

    run(main())
    assert after == [(False, True)]


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
def test_http_1_0_gets_an_answer_that_ends_with_the_connection(more: bytes) -> None:
    async def main() -> None:
        async with listening(in_pieces(b"a", b"b")) as listener, client_of(listener) as client:
            await client.send(b"GET / HTTP/1.0\r\n" + more + b"\r\n")
            answer = await client.answer()
            assert answer == Answer(200, {"connection": "close"}, b"ab")

    run(main())


def test_http_1_0_keeps_the_connection_only_when_it_asks() -> None:
    async def main() -> None:
        async with listening(echo) as listener, client_of(listener) as client:
            for _ in range(2):
                await client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                assert (await client.answer()).headers["connection"] == "keep-alive"
            await client.send(b"GET / HTTP/1.0\r\n\r\n")
            assert (await client.answer()).headers["connection"] == "close"
            assert await client.closed()

    run(main())


def test_a_client_that_asks_for_the_end_gets_it_after_the_answer() -> None:
    async def main() -> None:
        async with listening(echo) as listener, client_of(listener) as client:
            await client.send(get(extra=b"Connection: close\r\n"))
            assert (await client.answer()).headers["connection"] == "close"
            assert await client.closed()

    run(main())


@pytest.mark.parametrize(
    "handle",
    [
        lambda exchange: exchange.respond(200, [(b"Content-Length", b"5")], b""),
        lambda exchange: exchange.respond(200, (), b"12345"),
        in_pieces(b"12345", headers=((b"Content-Length", b"5"),)),
    ],
)
def test_the_answer_to_head_has_a_length_and_no_body(handle: Callable[[Exchange], None]) -> None:
    async def main() -> None:
        async with listening(handle) as listener, client_of(listener) as client:
            for _ in range(2):
                await client.send(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n")
                answer = await client.answer(to_head=True)
                assert answer.headers["content-length"] == "5"

    run(main())


@pytest.mark.parametrize("status", [204, 304])
def test_answers_that_may_have_no_body_have_none(status: int) -> None:
    async def main() -> None:
        def handle(exchange: Exchange) -> None:
            exchange.begin(status)
            exchange.send(b"not sent")
            exchange.finish()

        async with listening(handle) as listener, client_of(listener) as client:
            for _ in range(2):
                await client.send(get())
                assert await client.answer() == Answer(status, {}, b"")

    run(main())


def test_framing_headers_of_the_owner_are_not_repeated() -> None:
    theirs = [
        (b"Connection", b"close"),
        (b"Keep-Alive", b"timeout=5"),
        (b"transfer-encoding", b"chunked"),
        (b"Content-Length", b"99"),
        (b"X-A", b"b"),
    ]
    answer = asked(lambda exchange: exchange.respond(200, theirs, b"ok"), get())
    assert answer == Answer(200, {"x-a": "b", "content-length": "2"}, b"ok")


@pytest.mark.parametrize("bad", [b"a\r\nX: b", b"a\nb", b"a\rb", b"a\0b"])
@pytest.mark.parametrize("where", ["name", "value"])
def test_a_header_that_holds_a_line_break_is_refused(bad: bytes, where: str) -> None:
    refused: list[str] = []
    header = (bad, b"x") if where == "name" else (b"X-A", bad)

    def handle(exchange: Exchange) -> None:
        for answering in (exchange.respond, exchange.begin):
            try:
                answering(200, [header])
            except ValueError as error:
                refused.append(str(error))
        exchange.respond(200, (), b"clean")

    assert asked(handle, get()).body == b"clean"
    assert len(refused) == 2


def test_calls_after_the_end_do_nothing() -> None:
    def handle(exchange: Exchange) -> None:
        exchange.respond(200, (), b"once")
        exchange.respond(500, (), b"twice")
        exchange.begin(500)
        exchange.send(b"more")
        exchange.finish()
        exchange.reset()

    async def main() -> None:
        async with listening(handle) as listener, client_of(listener) as client:
            for _ in range(2):
                await client.send(get())
                assert (await client.answer()).body == b"once"

    run(main())


def test_what_was_sent_does_not_change_when_the_owner_uses_its_buffer_again() -> None:
    def handle(exchange: Exchange) -> None:
        buffer = bytearray(b"first")
        exchange.begin(200)
        exchange.send(buffer)
        buffer[:] = b"later"
        exchange.send(memoryview(buffer))
        buffer[:] = b"never"
        exchange.finish()

    assert asked(handle, get()).body == b"firstlater"


def test_an_answer_with_the_end_of_the_connection_loses_nothing_at_any_size() -> None:
    for size in (65_535, 65_536, 65_537, 1_000_000):
        body = b"s" * size
        for handle in (
            lambda exchange, body=body: exchange.respond(200, (), body),
            in_pieces(body),
            in_pieces(body[:-1], body[-1:], headers=((b"Content-Length", b"%d" % size),)),
        ):
            assert asked(handle, get(extra=b"Connection: close\r\n")).body == body


@both_loops
def test_an_owner_that_fails_costs_its_client_the_connection_and_nobody_else(loop: str) -> None:
    faults: list[object] = []

    def handle(exchange: Exchange) -> None:
        if exchange.path == b"/fail":
            raise RuntimeError("a bug of the owner")
        echo(exchange)

    async def main() -> None:
        running = asyncio.get_running_loop()
        running.set_exception_handler(lambda _, fault: faults.append(fault.get("exception")))
        async with listening(handle) as listener:
            async with client_of(listener) as client, client_of(listener) as other:
                await client.send(get(b"/fail"))
                assert await client.closed()
                await other.send(get(b"/fine"))
                assert (await other.answer()).status == 200
            await until(lambda: listener.connections == 0)

    run(main(), loop)
    assert [str(fault) for fault in faults] == ["a bug of the owner"]


def test_the_time_of_the_last_write_is_the_loops() -> None:
    times: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def handle(exchange: Exchange) -> None:
            before = loop.time()
            exchange.begin(200)
            times.extend((before, exchange.last_write, loop.time()))
            exchange.finish()

        async with listening(handle) as listener, client_of(listener) as client:
            await client.send(get())
            await client.answer()

    run(main())
    assert times == sorted(times)


def test_an_exchange_shows_no_header_and_no_body() -> None:
    shown: list[str] = []

    def handle(exchange: Exchange) -> None:
        shown.append(repr(exchange))
        exchange.respond(200)

    asked(handle, post(b"secret-body", extra=b"x-api-key: secret-key\r\n"))
    assert shown == ["<Exchange waiting>"]
