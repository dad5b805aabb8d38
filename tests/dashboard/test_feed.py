"""Watching costs nothing while nobody watches, and the same for one as for many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jackline import event_loop
from jackline.agents.prices import dollars
from jackline.clock import VirtualClock
from jackline.control.board import Facts, FlowFacts
from jackline.control.fleet import Fleet
from jackline.control.observatory import Burn
from jackline.control.stored_runs import StoredRuns
from jackline.dashboard import feed
from jackline.dashboard.feed import Feed
from jackline.flows.records import RunRecord, RunState
from jackline.flows.store import open_run_store, run_store_url
from tests.assembly.world import until

ANY_HEADERS = [(b"content-type", b"text/plain")]
START = datetime(2026, 11, 15, 12, tzinfo=UTC)
Headers = Sequence[tuple[bytes, bytes]]


class PageOnPaper:
    """A request for the stream that saves what it receives."""

    method, path, query = b"GET", b"/_jackline/feed", b""
    headers: list[tuple[bytes, bytes]]
    body: bytes | bytearray = b""

    def __init__(self) -> None:
        self.headers = []
        self.gone = False
        self.on_gone: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self.paused = False
        self.heads: list[object] = []
        self.shown: list[dict[str, Any]] = []
        self.finished = False

    def header(self, lowercase_name: bytes) -> bytes | None:
        return dict(self.headers).get(lowercase_name)

    def respond(
        self, status: int, headers: Headers = (), body: bytes = b"", notes: bytes = b""
    ) -> None:
        self.heads.append((status, headers, body, notes))

    def begin(self, status: int, headers: Headers = (), notes: bytes = b"") -> None:
        self.heads.append((status, headers, notes))

    def send(self, data: bytes) -> None:
        for line in data.split(b"\n"):
            if line.startswith(b"data: "):
                self.shown.append(json.loads(line[6:]))

    def finish(self) -> None:
        self.finished = True

    def reset(self) -> None:
        self.gone = True

    def leave(self) -> None:
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()


class World:
    """A feed in virtual time."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock(START)
        self.verdict = "Nothing is under way."
        self.ahead = 0.0
        self.flows = StoredRuns(run_store_url(folder), self.clock)
        self.stopping = False
        self.feed = Feed(self._facts, self.flows, self.clock, lambda: self.stopping)
        self._fleet, self._burn = Fleet(), Burn(dollars)

    def _facts(self, flows: FlowFacts) -> Facts:
        head = {"verdict": self.verdict}
        at = self.clock.wall() + self.ahead
        return Facts(at, head, {}, [], self._fleet, self._burn, at, (), flows)

    def open(self) -> PageOnPaper:
        page = PageOnPaper()
        self.feed.open(page)
        return page

    async def look(self) -> None:
        """Let the next look happen, however its threads are scheduled."""
        looks = self.feed.looks
        async with asyncio.timeout(120):
            while self.feed.looks == looks:
                await self.clock.advance(0.5)
                await asyncio.sleep(0.001)


def playing(folder: Path, play: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World(folder)
        serving = asyncio.ensure_future(world.feed.serve())
        try:
            await play(world)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    event_loop.run(main())


def test_while_nobody_watches_nothing_is_gathered(tmp_path: Path) -> None:
    async def play(world: World) -> None:
        await world.clock.advance(3600)
        assert world.feed.looks == 0
        page = world.open()
        await until(lambda: len(page.shown) == 1)
        page.leave()
        assert world.feed.watchers == 0
        looks = world.feed.looks
        await world.clock.advance(3600)
        assert world.feed.looks == looks

    playing(tmp_path, play)


def test_what_one_look_finds_is_reported_to_all(tmp_path: Path) -> None:
    async def play(world: World) -> None:
        pages = [world.open() for _ in range(5)]
        await until(lambda: all(page.shown for page in pages))
        looks = world.feed.looks
        world.verdict = "1 call running, none waiting."
        await world.look()
        await until(lambda: all(len(page.shown) == 2 for page in pages))
        assert world.feed.looks == looks + 1
        assert {page.shown[-1]["head"]["verdict"] for page in pages} == {world.verdict}

    playing(tmp_path, play)


def test_everything_is_made_once_a_second_for_all_pages_that_come_however_often_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    encode = feed.message

    def counted(piece: object) -> bytes:
        made.append(piece)
        return encode(piece)

    monkeypatch.setattr(feed, "message", counted)

    async def play(world: World) -> None:
        for _ in range(40):
            pages = [world.open() for _ in range(20)]
            await world.clock.advance(0.1)
            await asyncio.sleep(0.01)
            for page in pages:
                page.leave()
        page = world.open()
        await until(lambda: bool(made))
        while not page.shown:
            await world.look()
        # In these four seconds, and that of the last page.
        whole = [piece for piece in made if isinstance(piece, dict) and "schema" in piece]
        assert 1 <= len(whole) <= 6

    playing(tmp_path, play)


def test_quiet_is_not_reported_but_every_tenth_time_as_a_sign_of_life(tmp_path: Path) -> None:
    async def play(world: World) -> None:
        page = world.open()
        await until(lambda: bool(page.shown))
        for _ in range(10):
            await world.look()
        await until(lambda: len(page.shown) == 2)
        assert set(page.shown[1]) == {"at"}

    playing(tmp_path, play)


def test_a_clock_that_runs_faster_than_the_watchers_is_reported_each_time(tmp_path: Path) -> None:
    """In a drill at high speed the page cannot know the time by its own clock."""

    async def play(world: World) -> None:
        page = world.open()
        await until(lambda: bool(page.shown))
        for _ in range(3):
            world.ahead += 30
            await world.look()
        await until(lambda: len(page.shown) == 4)
        assert [set(shown) for shown in page.shown[1:]] == [{"at"}] * 3

    playing(tmp_path, play)


def test_who_is_behind_gets_all_there_is_when_it_has_caught_up(tmp_path: Path) -> None:
    async def play(world: World) -> None:
        page = world.open()
        await until(lambda: len(page.shown) == 1)
        page.paused = True
        world.verdict = "first"
        await world.look()
        world.verdict = "second"
        await world.look()
        assert len(page.shown) == 1
        page.paused = False
        await world.look()
        await until(lambda: len(page.shown) == 2)
        assert page.shown[1]["schema"]
        assert page.shown[1]["head"]["verdict"] == "second"

    playing(tmp_path, play)


def test_no_open_page_keeps_a_service_from_stopping(tmp_path: Path) -> None:
    async def play(world: World) -> None:
        page = world.open()
        await until(lambda: bool(page.shown))
        world.stopping = True
        await world.clock.advance(2)
        await until(lambda: page.finished)
        late = world.open()
        assert late.heads == [(503, ANY_HEADERS, b"the service is stopping\n", b"")]
        assert world.feed.watchers == 0

    playing(tmp_path, play)


def test_when_the_service_ends_every_stream_ends_cleanly(tmp_path: Path) -> None:
    pages: list[PageOnPaper] = []

    async def play(world: World) -> None:
        pages.append(world.open())
        await until(lambda: bool(pages[0].shown))

    playing(tmp_path, play)
    assert pages[0].finished


def test_the_store_of_runs_is_read_only_when_it_was_written(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock(START)
        book = StoredRuns(run_store_url(tmp_path), clock)
        assert (await book.look()).runs == {}
        assert not (tmp_path / "flows.db").exists()
        engine = open_run_store(run_store_url(tmp_path), wall=clock.wall)
        claim = await engine.create(RunRecord("r1", "f", "f.py", b"{}"), owner="x", lease=60)
        known = await book.look()
        assert set(known.runs) == {"r1"}
        for _ in range(5):
            await clock.advance(5)
            assert await book.look() is known
        assert book.reads == 1
        # Its owner died: nobody writes that down, and yet it is shown.
        await clock.advance(60)
        cut = (await book.look()).runs["r1"]
        assert isinstance(cut, dict)
        assert (cut["state"], cut["can"]) == ("cut off", ["resume", "cancel"])
        record = await engine.run("r1")
        assert record is not None
        await engine.let_go(claim, replace(record, state=RunState.PARKED, wake_at=9.0, why="quota"))
        await clock.advance(5)
        parked = (await book.look()).runs["r1"]
        assert isinstance(parked, dict)
        assert (parked["state"], parked["wake_at"], parked["why"]) == ("parked", 9.0, "quota")
        await engine.close()
        await book.close()

    event_loop.run(main())
