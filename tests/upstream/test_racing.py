"""Reaching a name by whichever of its addresses answers first."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.upstream.origin import (
    SocketAddress,
    first_connected,
    interleave_families,
    resolved,
)
from tests.ports import free_port
from tests.upstream.conftest import Run

# TEST-NET-1: nothing there ever answers, or the machine says at once that it has no way there.
SILENT: SocketAddress = (socket.AF_INET, "192.0.2.1", 9)


@given(families=st.lists(st.sampled_from([socket.AF_INET, socket.AF_INET6]), max_size=8))
def test_families_take_turns_beginning_with_the_first(families: list[int]) -> None:
    places: list[SocketAddress] = [(family, f"h{n}", n) for n, family in enumerate(families)]
    turns = interleave_families(places)
    assert sorted(turns) == sorted(places)
    for family in set(families):
        ours = [place for place in turns if place[0] == family]
        assert ours == [place for place in places if place[0] == family]
    fewer = min(families.count(family) for family in set(families)) if families else 0
    both = [place[0] for place in turns[: 2 * fewer]]
    if len(set(families)) == 2:
        assert both == [families[0], *both[1:2]] * fewer


@pytest.mark.parametrize("before", [0, 1, 3])
def test_an_address_that_refuses_or_is_silent_does_not_keep_from_the_next(
    run: Run, before: int
) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            good: SocketAddress = (socket.AF_INET, "127.0.0.1", listening.getsockname()[1])
            dead: SocketAddress = (socket.AF_INET, "127.0.0.1", free_port())
            for bad in (dead, SILENT):
                transport = await first_connected([*[bad] * before, good, bad])
                assert transport.get_extra_info("peername") == good[1:]
                transport.abort()
        await asyncio.sleep(0.01)  # aborted transports close their sockets in the next turns

    run(main())


def test_when_all_fail_the_first_error_is_told(run: Run) -> None:
    async def main() -> None:
        refused: SocketAddress = (socket.AF_INET, "127.0.0.1", free_port())
        unknown: SocketAddress = (socket.AF_INET6, "127.0.0.1", free_port())
        with pytest.raises(ConnectionRefusedError):
            await first_connected([refused, unknown])
        with pytest.raises(socket.gaierror):
            await first_connected([unknown, refused])

    run(main())


def test_giving_up_leaves_no_task_and_no_socket(run: Run) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        task = asyncio.create_task(first_connected([SILENT, SILENT, SILENT]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises((asyncio.CancelledError, OSError)):
            await task
        assert asyncio.all_tasks() == before

    run(main())


def test_a_name_is_looked_up(run: Run) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            transport = await first_connected(await resolved("localhost", port))
            assert transport.get_extra_info("peername")[1] == port
            transport.abort()
        await asyncio.sleep(0.01)  # aborted transports close their sockets in the next turns

    run(main())


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="an option of Linux")
def test_a_peer_that_is_gone_is_found_out_within_a_minute() -> None:
    """Silence of a living peer is borne; the peer's system must say within a minute that it is."""

    async def main() -> tuple[int, int, int, int]:
        server = await asyncio.start_server(lambda _, line: line.close(), "127.0.0.1", 0)
        async with server:
            transport = await first_connected(await resolved(*server.sockets[0].getsockname()))
            sock = transport.get_extra_info("socket")
            names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
            idle, every, count, gone = (
                sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names
            )
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            transport.abort()
            return idle, every, count, gone

    idle, every, count, gone = asyncio.run(main())
    assert idle + every * count <= 60
    assert gone == 60_000
