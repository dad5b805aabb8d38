"""Whether an upstream is down is judged by what known clients met, and by probes of our own."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from jackline.calls import CallRequest
from jackline.clock import VirtualClock
from jackline.gateway.lane_registry import LaneRegistry
from jackline.gateway.outage_evidence import OutageEvidence
from jackline.lane_id import LaneId
from jackline.lanes import Call, LaneController
from jackline.lanes.lane import Lane
from jackline.providers.provided_upstream import ProvidedUpstream, provider_for
from jackline.providers.settings import UpstreamSettings
from jackline.upstream.interface import UpstreamRequest
from jackline.upstream.origin import Dialler
from tests.assembly.world import http, provider, run
from tests.gateway.jumping_loop import JumpingLoop, on_jumping_loop
from tests.upstream.loopback import Handler, Server, Wire

UP, DOWN = http(401, b"{}"), http(503, b"{}")
KNOWN, UNKNOWN = b"known", b"unknown"
MODEL = "claude-x"


class World:
    """One upstream with lanes of two accounts, and how often a verdict has changed."""

    def __init__(self, url: str) -> None:
        settings = UpstreamSettings(name="theirs", url=url)
        self.clock = VirtualClock(datetime(2026, 3, 1, tzinfo=UTC))
        self.controller = LaneController([], lambda: 0.5, now=self.clock.steady())
        self.book = LaneRegistry(self.controller, (settings,), b"salt")
        self.upstream = ProvidedUpstream({"theirs": provider_for(settings, {})})
        self.changes = 0
        self.evidence = OutageEvidence(
            self.controller.lanes, self.book, self.upstream, self.clock, self._changed
        )
        self.book.clients.accept(url, KNOWN)
        self.mine = self.lane("mine")
        self.other = self.lane("other")

    def lane(self, account: str, model: str = "claude-x") -> Lane:
        opened = LaneId("theirs", model, account)
        self.book.open(opened, self.clock.steady())
        return self.controller.lanes[opened]

    def _changed(self) -> None:
        self.changes += 1

    def fails(self, credential: bytes, times: int = 1, model: str = MODEL) -> None:
        headers = ((b"x-api-key", credential),)
        mine = LaneId("theirs", model, "mine")
        message = UpstreamRequest(b"POST", b"/v1/messages", headers)
        request = CallRequest("c", message, Call(0, (mine,)))
        for _ in range(times):
            self.evidence.failed(request, mine, self.clock.steady())

    def is_down(self, model: str = MODEL) -> bool:
        return self.evidence.is_down(LaneId("theirs", model, "other"), self.clock.steady())

    async def probed(self) -> bool:
        """The verdict once the probes that this asks for are over."""
        self.is_down()
        while tasks := [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]:
            done, _ = await asyncio.wait(tasks, timeout=0.05)
            if not done:
                break
        return self.is_down()

    async def verdict(self) -> bool:
        """The same, however long they take by the loop's time."""
        before = asyncio.all_tasks()
        self.is_down()
        await asyncio.wait(asyncio.all_tasks() - before)
        return self.is_down()


@asynccontextmanager
async def world(*answers: bytes) -> AsyncIterator[tuple[World, list[bytes]]]:
    async with provider(*(answers or (UP,))) as (scripted, url):
        found = World(url)
        lines: list[bytes] = []
        try:
            yield found, lines
        finally:
            lines += [asked.raw for asked in scripted.asked]
            await found.evidence.close()
            await found.upstream.close()


def test_failures_of_known_clients_are_evidence_and_those_of_unknown_ones_are_none() -> None:
    async def main() -> None:
        async with world() as (here, _):
            here.fails(UNKNOWN, 50)
            assert not here.is_down()
            here.fails(KNOWN)
            assert not here.is_down()  # one alone may be chance
            here.fails(KNOWN)
            assert here.is_down()
            assert not here.is_down("theirs/claude-y")  # of another model it says nothing

    run(main())


def test_a_call_that_was_accepted_since_or_just_now_says_that_it_works() -> None:
    async def main() -> None:
        async with world() as (here, _):
            here.other.health.accepted(here.clock.steady())
            await here.clock.advance(1.0)
            here.fails(KNOWN, 5)
            assert not here.is_down()
            await here.clock.advance(10.0)
            assert here.is_down()  # nothing was accepted since they failed
            here.other.health.accepted(here.clock.steady())
            await here.clock.advance(30.0)
            assert not here.is_down()

    run(main())


def test_old_failures_are_no_evidence() -> None:
    async def main() -> None:
        async with world() as (here, _):
            here.fails(KNOWN, 2)
            await here.clock.advance(119.0)
            assert here.is_down()
            await here.clock.advance(2.0)
            assert not here.is_down()

    run(main())


@pytest.mark.parametrize(
    ("answers", "is_down"),
    [((DOWN,), True), ((DOWN, UP), False), ((UP,), False), ((http(429, b""),), False)],
    ids=["down", "one probe failed", "up", "throttled"],
)
def test_without_news_of_known_clients_two_probes_decide(
    answers: tuple[bytes, ...], is_down: bool
) -> None:
    async def main() -> None:
        async with world(*answers) as (here, asked):
            assert not here.is_down()  # in doubt it works
            assert await here.probed() is is_down
            assert here.changes == int(is_down)
        assert len(asked) <= 2
        assert all(raw.startswith(b"GET /v1/models HTTP/1.1\r\n") for raw in asked)
        assert all(KNOWN not in raw and UNKNOWN not in raw for raw in asked)

    run(main())


def test_an_upstream_that_cannot_be_reached_is_down() -> None:
    async def main() -> None:
        here = World("http://127.0.0.1:9")
        try:
            assert await here.probed()
        finally:
            await here.evidence.close()
            await here.upstream.close()

    run(main())


def test_a_verdict_of_probes_is_renewed_and_ends() -> None:
    async def main() -> None:
        async with world(DOWN, DOWN, UP) as (here, asked):
            assert await here.probed()
            await here.clock.advance(9.0)
            assert await here.probed()
            await here.clock.advance(2.0)
            assert here.is_down()  # while it is renewed
            assert not await here.probed()
        assert len(asked) == 3

    run(main())


def test_a_verdict_that_cannot_be_renewed_ends_after_a_while() -> None:
    async def main() -> None:
        hangs = asyncio.Event()

        async def serve(wire: Wire) -> None:
            while await wire.request():
                if hangs.is_set():
                    return
                await wire.say(DOWN)

        async with Server(serve) as server:
            here = World(server.url)
            try:
                assert await here.probed()
                hangs.set()
                await here.clock.advance(29.0)
                assert here.is_down()
                await here.clock.advance(2.0)
                assert not here.is_down()
            finally:
                await here.evidence.close()
                await here.upstream.close()

    run(main())


def test_many_questions_are_one_probe() -> None:
    async def main() -> None:
        async with world(DOWN) as (here, asked):
            for number in range(1000):
                assert not here.is_down(f"theirs/claude-{number}")
            assert await here.probed()
        assert len(asked) == 2

    run(main())


# --- this process stands still --------------------------------------------------------------------


async def verdict_of(serve: Handler) -> tuple[bool, int]:
    """What probes of such a server find, and how often it was asked."""
    asked = 0

    async def counted(wire: Wire) -> None:
        nonlocal asked
        asked += 1
        await serve(wire)

    async with Server(counted) as server:
        here = World(server.url)
        try:
            return await here.verdict(), asked
        finally:
            await here.evidence.close()
            await here.upstream.close()


@pytest.mark.parametrize("answer", [UP, b""], ids=["unread", "broken off"])
def test_a_standstill_of_ours_is_no_outage_of_theirs(answer: bytes) -> None:
    """The vendor answers at once, or hangs up on us; we do not run for longer than we would wait.

    Seen with a flood of requests that each held the loop for some tenths of a second.
    """

    async def play(loop: JumpingLoop) -> tuple[bool, int]:
        async def serve(wire: Wire) -> None:
            await wire.request()
            loop.ahead += 60.0
            await wire.say(answer)
            wire.close()

        return await verdict_of(serve)

    is_down, asked = on_jumping_loop(play)
    assert not is_down
    assert asked == (1 if answer else 5)  # what decides nothing is asked again


def test_after_a_standstill_the_next_probes_decide() -> None:
    async def play(loop: JumpingLoop) -> tuple[bool, int]:
        standstills = iter((60.0, 60.0))

        async def serve(wire: Wire) -> None:
            await wire.request()
            loop.ahead += next(standstills, 0.0)
            await wire.say(DOWN)

        return await verdict_of(serve)

    assert on_jumping_loop(play)[0]


def test_an_upstream_that_is_silent_while_we_run_on_time_is_down() -> None:
    async def play(loop: JumpingLoop) -> tuple[bool, int]:
        async def serve(wire: Wire) -> None:
            await wire.request()
            await loop.run_on_time(30.0)

        return await verdict_of(serve)

    assert on_jumping_loop(play) == (True, 2)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "too many open files"),
        OSError(errno.ENOBUFS, "no buffer space"),
        OSError(errno.EADDRNOTAVAIL, "no port is left"),
        OSError(errno.ENETUNREACH, "network is unreachable"),
        socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution"),
    ],
    ids=lambda error: str(error.args[1]),
)
def test_what_this_machine_lacks_is_no_outage_of_theirs(
    error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens as many connections as there can be makes our own probes fail."""

    async def fail(_self: Dialler, _protocol: asyncio.Protocol) -> None:
        raise error

    async def main() -> None:
        async with world(UP) as (here, _):
            monkeypatch.setattr(Dialler, "open", fail)
            assert not await here.probed()

    run(main())


def test_a_name_that_is_not_resolved_in_time_is_no_outage_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names are looked up in a few threads, which the connections of others may keep busy."""

    async def play(loop: JumpingLoop) -> bool:
        async def getaddrinfo(*_args: object, **_more: object) -> list[object]:
            await loop.run_on_time(30.0)
            return []

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        here = World("http://vendor.example")
        is_down = await here.verdict()
        await here.upstream.close()
        return is_down

    assert not on_jumping_loop(play)


def test_probes_count_for_nothing_where_calls_of_any_model_are_accepted() -> None:
    """They ask for the upstream as a whole; a caller names a model that nobody uses."""

    async def main() -> None:
        async with world(DOWN) as (here, _):
            assert await here.probed()
            used = here.lane("mine", "claude-used")
            used.health.accepted(here.clock.steady())
            await here.clock.advance(1.0)
            assert not here.is_down()

    run(main())
