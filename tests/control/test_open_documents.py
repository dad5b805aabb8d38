"""Documents that anybody may read: made rarely, for all at once, and sent as they are taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import cast

from jackline.clock import VirtualClock
from jackline.control.http_handler import ServiceRequest
from jackline.control.open_documents import (
    MOST_AT_ONCE,
    MOST_BEHIND,
    MOST_KEPT,
    IsWanted,
    NotWantedError,
    OpenDocument,
    OpenDocuments,
    Parameters,
)
from jackline.gateway.listener import Listener
from tests.dashboard.test_feed import PageOnPaper
from tests.gateway.serving import Answer, Client, client_of, get, listening, run, until

TRUSTED = b"X-Trusted: yes\r\n"
MEGABYTE = 1024 * 1024


class World:
    """One document by name at `/d`, which is made when `go` is set; time moves only by hand."""

    def __init__(self, size: int = 10) -> None:
        self.clock = VirtualClock(datetime(2026, 11, 19, tzinfo=UTC))
        self.made: list[str] = []
        self.given_up = 0
        self.go = asyncio.Event()
        self._size = size
        document = OpenDocument(self._make, ("name",))
        self.documents = OpenDocuments({b"/d": document}, _trusts, self.clock)

    async def _make(self, names: Parameters, is_wanted: IsWanted) -> bytes:
        self.made.append(names[0])
        number = len(self.made)
        await self.go.wait()
        if not is_wanted():
            self.given_up += 1
            raise NotWantedError
        return b"%d" % number + b"x" * (self._size - 1)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Listener]:
        served = asyncio.create_task(self.documents.serve())
        try:
            async with listening(self.documents.answer) as listener:
                yield listener
        finally:
            served.cancel()
            await asyncio.gather(served, return_exceptions=True)


def _trusts(request: ServiceRequest) -> bool:
    return request.header(b"x-trusted") is not None


def of(name: str) -> bytes:
    return get(b"/d?name=" + name.encode())


async def asked(client: Client, raw: bytes) -> Answer:
    await client.send(raw)
    return await client.answer()


def test_a_document_is_made_once_for_all_within_half_a_second() -> None:
    async def main() -> None:
        world = World()
        async with (
            world.listening() as listener,
            client_of(listener) as first,
            client_of(listener) as second,
        ):
            await first.send(of("a") * 100)
            await second.send(of("a"))
            await until(lambda: world.made == ["a"])
            world.go.set()
            answers = [await first.answer() for _ in range(100)] + [await second.answer()]
            assert {(each.status, each.body[:1]) for each in answers} == {(200, b"1")}
            await world.clock.advance(0.6)
            assert (await asked(first, of("a"))).body[:1] == b"2"
        assert world.made == ["a", "a"]

    run(main())


def test_few_documents_of_a_path_are_made_at_once_and_few_within_half_a_second() -> None:
    async def main() -> None:
        world = World()
        async with (
            world.listening() as listener,
            client_of(listener) as client,
            AsyncExitStack() as stack,
        ):
            lines = [client_of(listener) for _ in range(MOST_AT_ONCE)]
            clients = [await stack.enter_async_context(each) for each in lines]
            for number, each in enumerate(clients):
                await each.send(of(f"n{number}"))
            await until(lambda: len(world.made) == MOST_AT_ONCE)
            no = await asked(client, of("more"))
            assert (no.status, no.headers["retry-after"]) == (503, "1")
            assert b"ask again" in no.body
            world.go.set()
            assert [(await each.answer()).status for each in clients] == [200] * MOST_AT_ONCE
            statuses = [(await asked(client, of(f"m{n}"))).status for n in range(50)]
            assert statuses == [200] * (MOST_KEPT - MOST_AT_ONCE) + [503] * 48
            assert len(world.made) == MOST_KEPT
            await world.clock.advance(0.6)
            assert (await asked(client, of("more"))).status == 200

    run(main())


def test_who_shows_the_token_gets_what_is_made_then_and_takes_nobodys_place() -> None:
    async def main() -> None:
        world = World()
        world.go.set()
        async with world.listening() as listener, client_of(listener) as client:
            own = get(b"/d?name=a", TRUSTED)
            bodies = [(await asked(client, raw)).body[:1] for raw in (of("a"), own, own, of("a"))]
            assert bodies == [b"1", b"2", b"3", b"1"]

    run(main())


def test_what_nobody_waits_for_is_given_up_and_is_not_kept() -> None:
    async def main() -> None:
        world = World()
        async with world.listening() as listener:
            async with client_of(listener) as first, client_of(listener) as second:
                await first.send(of("n0"))
                await second.send(of("n1"))
                await until(lambda: len(world.made) == 2 == MOST_AT_ONCE)
            await until(lambda: listener.connections == 0)
            world.go.set()
            await until(lambda: world.given_up == MOST_AT_ONCE)
            async with client_of(listener) as client:
                assert (await asked(client, of("n0"))).status == 200

    run(main())


def test_a_query_of_many_parameters_or_bytes_is_refused_and_nothing_is_made() -> None:
    async def main() -> None:
        world = World()
        async with world.listening() as listener, client_of(listener) as client:
            for query in (b"a=1&" * 20, b"name=" + b"%20" * 2000):
                assert (await asked(client, get(b"/d?" + query))).status == 400
            assert (await asked(client, b"POST /d HTTP/1.1\r\nHost: a\r\n\r\n")).status == 405
        assert world.made == []

    run(main())


class FastPage(PageOnPaper):
    """Takes all at once; counts the pieces that come in one turn of the loop."""

    path, query = b"/d", b"name=a"

    def __init__(self, turns: list[int]) -> None:
        super().__init__()
        self._turns = turns

    def send(self, data: bytes) -> None:
        self._turns[-1] += len(data)


def test_large_documents_are_sent_few_pieces_in_a_turn_however_many_want_them() -> None:
    async def main() -> None:
        world = World(2 * MEGABYTE)
        world.go.set()
        sent = [0]
        pages = [FastPage(sent) for _ in range(20)]
        for page in pages:
            world.documents.answer(page)
        while not all(page.finished for page in pages):
            await asyncio.sleep(0)
            sent.append(0)
        assert sum(sent) == 20 * 2 * MEGABYTE
        assert max(sent) <= MEGABYTE

    run(main())


def test_clients_that_do_not_read_hold_little_and_few_of_them_at_once() -> None:
    async def main() -> None:
        size = 8 * MEGABYTE
        world = World(size)
        world.go.set()
        async with (
            world.listening() as listener,
            client_of(listener) as reading,
            AsyncExitStack() as stack,
        ):
            lines = [client_of(listener) for _ in range(MOST_BEHIND + 20)]
            clients = [await stack.enter_async_context(each) for each in lines]
            for each in clients:
                cast("asyncio.Transport", each.writer.transport).pause_reading()
                await each.send(of("a"))
            await until(lambda: len(world.documents._large.behind) == MOST_BEHIND)
            await until(lambda: listener.connections == MOST_BEHIND + 1)
            held = [one.transport.get_write_buffer_size() for one in listener._open]
            assert max(held) < MEGABYTE / 2
            got = await asked(reading, of("a"))
            assert (len(got.body), got.headers["content-length"]) == (size, str(size))
            # Who reads on gets the rest; who was cut off sees that.
            cast("asyncio.Transport", clients[-1].writer.transport).resume_reading()
            assert len((await clients[-1].answer()).body) == size
            await stack.aclose()
            await until(lambda: not world.documents._large.behind)
        assert world.made == ["a"]

    run(main())
