"""Whoever ends a connection, early, late or never: the other side learns the truth."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from jackline.gateway.connection import Exchange
from jackline.gateway.listener import Listener
from jackline.gateway.settings import GatewaySettings, LimitSettings, ListenSettings
from jackline.http1.requests import RequestStage
from tests.gateway.serving import (
    HOST,
    LOOPS,
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


class Owner:
    """Keeps exchanges and what it hears of them."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.received: list[str] = []

    def take(self, exchange: Exchange) -> None:
        exchange.on_gone = lambda: self.received.append("gone")
        exchange.on_pause = lambda: self.received.append("pause")
        exchange.on_resume = lambda: self.received.append("resume")
        self.exchanges.append(exchange)

    async def first(self) -> Exchange:
        await until(lambda: bool(self.exchanges))
        return self.exchanges[0]


def close(client: Client) -> None:
    client.writer.close()


def half_close(client: Client) -> None:
    client.writer.write_eof()


LEAVING = {"reset": Client.reset, "close": close, "half close": half_close}


@both_loops
@pytest.mark.parametrize("begun", [False, True], ids=["waiting", "streaming"])
@pytest.mark.parametrize("how", LEAVING)
def test_the_owner_hears_at_once_that_the_client_left(how: str, begun: bool, loop: str) -> None:
    owner = Owner()

    async def main() -> None:
        async with listening(owner.take) as listener, client_of(listener) as client:
            await client.send(post(b"abc"))
            exchange = await owner.first()
            if begun:
                exchange.begin(200)
                exchange.send(b"something")
            await asyncio.sleep(0.01)
            assert not exchange.gone
            LEAVING[how](client)
            await until(lambda: exchange.gone)
            exchange.send(b"more")
            exchange.finish()
            exchange.reset()
            exchange.respond(200)
            assert not exchange.finished
            await until(lambda: listener.connections == 0)

    run(main(), loop)
    assert owner.received == ["gone"]


@both_loops
def test_a_client_that_half_closes_does_not_get_a_part_of_the_answer_as_if_it_were_all(
    loop: str,
) -> None:
    owner = Owner()

    async def main() -> None:
        async with listening(owner.take) as listener, client_of(listener) as client:
            await client.send(b"GET / HTTP/1.0\r\n\r\n")
            exchange = await owner.first()
            exchange.begin(200)
            exchange.send(b"a part")
            await client.reader.readuntil(b"a part")
            client.writer.write_eof()
            with pytest.raises(ConnectionResetError):
                await client.rest()

    run(main(), loop)
    assert owner.received == ["gone"]


def test_the_owner_hears_of_the_leaving_even_behind_a_request_sent_ahead() -> None:
    owner = Owner()

    async def main() -> None:
        async with listening(owner.take) as listener, client_of(listener) as client:
            await client.send(get(b"/a") + get(b"/b"))
            await owner.first()
            client.reset()
            await until(lambda: bool(owner.received))
            await until(lambda: listener.connections == 0)

    run(main())
    assert owner.received == ["gone"]
    assert len(owner.exchanges) == 1


@pytest.mark.parametrize("sent", [b"", b"POST / HT", post(b"abc")[:-1]])
def test_a_client_that_leaves_before_its_request_is_complete_leaves_nothing(sent: bytes) -> None:
    owner = Owner()

    async def main() -> None:
        async with listening(owner.take) as listener, client_of(listener) as client:
            await client.send(sent)
            await until(lambda: listener.connections == 1)
            client.writer.write_eof()
            assert await client.closed()
            await until(lambda: listener.connections == 0)

    run(main())
    assert not owner.exchanges


@both_loops
def test_a_reset_answer_is_never_taken_for_a_complete_one(loop: str) -> None:
    owner = Owner()

    async def main() -> None:
        async with listening(owner.take) as listener:
            for start in (b"GET / HTTP/1.1\r\n" + HOST, b"GET / HTTP/1.0\r\n"):
                async with client_of(listener) as client:
                    await client.send(start + b"\r\n")
                    exchange = await owner.first()
                    owner.exchanges.clear()
                    exchange.begin(200)
                    exchange.send(b"half of the ans")
                    await asyncio.sleep(0.01)
                    exchange.reset()
                    assert exchange.gone
                    with pytest.raises(ConnectionResetError):
                        await client.rest()

    run(main(), loop)
    assert owner.received == []


def test_an_answer_that_was_never_begun_cannot_be_finished() -> None:
    async def main() -> None:
        async with listening(Exchange.finish) as listener, client_of(listener) as client:
            await client.send(get())
            with pytest.raises(ConnectionResetError):
                await client.rest()

    run(main())


@both_loops
def test_the_owner_is_told_to_wait_for_a_slow_client_and_when_to_go_on(loop: str) -> None:
    owner = Owner()
    piece = b"p" * 60_000

    async def main() -> int:
        async with listening(owner.take) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1024)
            writer.write(get())
            exchange = await owner.first()
            exchange.begin(200)
            sent = 0
            while not exchange.paused:
                exchange.send(piece)
                sent += len(piece)
                await asyncio.sleep(0)
            assert owner.received == ["pause"]
            reading = asyncio.create_task(reader.read())
            await until(lambda: owner.received == ["pause", "resume"])
            exchange.finish()
            writer.write(get(b"/last", b"Connection: close\r\n"))
            await until(lambda: len(owner.exchanges) == 2)
            owner.exchanges[1].respond(200, (), b"")
            received = await reading
            writer.close()
            assert received.count(b"p") == sent
            return sent

    assert run(main(), loop) > 60_000


@both_loops
def test_an_owner_that_never_yields_is_told_to_wait_too(loop: str) -> None:
    owner = Owner()

    async def main() -> None:
        async with listening(owner.take) as listener, client_of(listener) as client:
            await client.send(get())
            exchange = await owner.first()
            exchange.begin(200)
            sent = 0
            while not exchange.paused:
                exchange.send(b"s" * 1000)
                sent += 1000
            exchange.finish()
            assert len((await client.answer()).body) == sent

    run(main(), loop)
    assert owner.received == ["pause"]


@both_loops
def test_the_next_request_waits_until_the_client_has_taken_the_last_answer(loop: str) -> None:
    owner = Owner()

    async def main() -> None:
        async with listening(owner.take) as listener, client_of(listener) as client:
            await client.send(get(b"/a") + get(b"/b"))
            exchange = await owner.first()
            exchange.respond(200, (), b"x" * 30_000_000)
            await asyncio.sleep(0.02)
            assert len(owner.exchanges) == 1
            assert len((await client.answer()).body) == 30_000_000
            await until(lambda: len(owner.exchanges) == 2)
            owner.exchanges[1].respond(200, (), b"b")
            assert (await client.answer()).body == b"b"

    run(main(), loop)
    assert owner.received == []


IMPATIENT = {
    "header_time": LimitSettings(header_time=0.05),
    "body_pause": LimitSettings(body_pause=0.05),
}


@both_loops
@pytest.mark.parametrize(
    ("limit", "sent"),
    [
        ("header_time", b"POST / HTTP/1.1\r\nHost"),
        ("body_pause", post(b"abc")[:-1]),
        (
            "body_pause",
            b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
        ),
    ],
)
def test_a_request_that_stops_halfway_is_given_up(limit: str, sent: bytes, loop: str) -> None:
    async def main() -> None:
        async with listening(echo, IMPATIENT[limit]) as listener, client_of(listener) as client:
            await client.send(sent)
            answer = await client.answer()
            assert answer.status == 408
            assert f"limits.{limit}" in answer.error[1]
            assert await client.closed()

    run(main(), loop)


def test_headers_that_drip_in_do_not_buy_more_time_but_a_body_that_goes_on_does() -> None:
    async def main() -> None:
        async with listening(echo) as listener, client_of(listener) as client:
            wire = post(b"123456")
            await client.send(wire[:10])
            await until(
                lambda: any(one._parser.stage is RequestStage.HEAD for one in listener._open)
            )
            (connection,) = listener._open
            first = connection.deadline
            for at in range(10, 20):
                await client.send(wire[at : at + 1])
                await asyncio.sleep(0.001)
            assert connection.deadline == first
            await client.send(wire[20:-6])
            await until(lambda: connection._parser.stage is RequestStage.BODY)
            for at in range(-6, -1):
                before = connection.deadline
                await asyncio.sleep(0.001)
                await client.send(wire[at:][:1])
                await until(lambda before=before: connection.deadline > before)  # type: ignore[misc]
            await client.send(wire[-1:])
            assert (await client.answer()).status == 200

    run(main())


@both_loops
@pytest.mark.parametrize("before", [b"", get()], ids=["new", "used"])
def test_an_idle_connection_is_closed_without_a_word(before: bytes, loop: str) -> None:
    async def main() -> None:
        limits = LimitSettings(idle=0.5)
        async with listening(echo, limits) as listener, client_of(listener) as client:
            if before:
                await client.send(before)
                await client.answer()
            assert await client.closed()
            await until(lambda: listener.connections == 0)

    run(main(), loop)


def test_waiting_for_an_answer_has_no_limit_of_its_own() -> None:
    owner = Owner()

    async def main() -> None:
        limits = LimitSettings(header_time=0.2, body_pause=0.2, idle=0.2)
        async with listening(owner.take, limits) as listener, client_of(listener) as client:
            await client.send(get())
            exchange = await owner.first()
            await asyncio.sleep(1.0)
            exchange.respond(200, (), b"late")
            assert (await client.answer()).body == b"late"

    run(main())


@both_loops
@pytest.mark.parametrize("finished", [True, False])
def test_a_client_that_takes_nothing_of_its_answer_is_cut_in_the_end(
    finished: bool, loop: str
) -> None:
    owner = Owner()

    async def main() -> None:
        async with listening(owner.take, LimitSettings(idle=0.1)) as listener:
            with socket.create_connection(("127.0.0.1", listener.port)) as client:
                client.sendall(get())
                exchange = await owner.first()
                if finished:
                    exchange.respond(200, (), b"x" * 30_000_000)
                else:
                    exchange.begin(200)
                    exchange.send(b"x" * 30_000_000)
                await until(lambda: listener.connections == 0)

    run(main(), loop)
    assert owner.received == ([] if finished else ["pause", "gone"])


# --- stopping ---


@both_loops
def test_stopping_lets_running_answers_finish_and_closes_idle_connections(loop: str) -> None:
    owner = Owner()

    async def main() -> None:
        async with (
            listening(owner.take) as listener,
            client_of(listener) as idle,
            client_of(listener) as busy,
            client_of(listener) as halfway,
        ):
            await busy.send(get(b"/busy"))
            exchange = await owner.first()
            exchange.begin(200)
            await halfway.send(b"GET /late HTTP/1.1\r\n")
            await until(lambda: listener.connections == 3)
            stopping = asyncio.create_task(listener.close(30.0))
            assert await idle.closed()
            assert listener.draining
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", listener.port)
            await halfway.send(HOST + b"\r\n")
            await until(lambda: len(owner.exchanges) == 2)
            owner.exchanges[1].respond(503, (), b"stopping")
            answer = await halfway.answer()
            assert answer.headers["connection"] == "close"
            assert await halfway.closed()
            assert not stopping.done()
            exchange.send(b"the end")
            exchange.finish()
            assert (await busy.answer()).body == b"the end"
            assert await busy.closed()
            await stopping
            assert listener.connections == 0

    run(main(), loop)
    assert owner.received == []


@both_loops
def test_stopping_resets_what_does_not_finish_in_time(loop: str) -> None:
    owner = Owner()

    async def main() -> None:
        async with listening(owner.take) as listener, client_of(listener) as client:
            await client.send(get())
            exchange = await owner.first()
            exchange.begin(200)
            exchange.send(b"half")
            await listener.close(0.05)
            assert listener.connections == 0
            with pytest.raises(ConnectionResetError):
                await client.rest()

    run(main(), loop)
    assert owner.received == ["gone"]


@both_loops
def test_a_port_that_is_taken_is_told_as_the_system_tells_it(loop: str) -> None:
    async def main() -> int | None:
        async with listening(echo) as listener:
            second = Listener(
                GatewaySettings(listen=ListenSettings(port=listener.port)), lambda _: None
            )
            with pytest.raises(OSError) as caught:  # noqa: PT011 -- its number is the point
                await second.open()
            await second.close(0.0)
            return caught.value.errno

    assert run(main(), loop) == errno.EADDRINUSE


def test_the_same_port_can_be_opened_again_at_once() -> None:
    async def main() -> None:
        async with listening(echo) as listener, client_of(listener) as client:
            await client.send(get())
            await client.answer()
            await listener.close(0.0)
            again = Listener(GatewaySettings(listen=ListenSettings(port=listener.port)), echo)
            await again.open()
            assert again.port == listener.port
            await again.close(0.0)

    run(main())
