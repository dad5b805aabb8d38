"""Connect to a name by whichever of its addresses answers first (RFC 8305).

Laws: (1) address families take turns, and each address has a short head start over the next; (2)
one connection is left, or none; (3) when all fail, the error of the address tried first is told.
Not here: what is spoken on the connection (dialling.py).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from itertools import chain, zip_longest
from typing import TypeAlias

HEAD_START_SECONDS = 0.25
# A stream may be silent for minutes: middle boxes forget connections that are, and a peer that is
# gone must be told apart from one that thinks. So the other side's system is asked after half a
# minute of silence, every ten seconds, and after a minute without its word the connection is over.
_GONE_AFTER = 60
_TCP_OPTIONS = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPALIVE", 30),  # the same, on macOS
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 1000 * _GONE_AFTER),
)

# Family, host in numbers, port.
Place: TypeAlias = tuple[int, str, int]


async def connected_transport(host: str, port: int) -> asyncio.Transport:
    """A transport that is connected to the host and has no protocol to speak of, or an OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await first_connected(
        taking_turns((family, str(where[0]), int(where[1])) for family, _, _, _, where in found)
    )


def taking_turns(places: Iterable[Place]) -> list[Place]:
    """The places with their families taking turns, beginning with the first one's."""
    families: dict[int, list[Place]] = {}
    for place in places:
        families.setdefault(place[0], []).append(place)
    turns = chain.from_iterable(zip_longest(*families.values()))
    return [place for place in turns if place is not None]


async def first_connected(places: list[Place]) -> asyncio.Transport:
    """A transport connected to one of the places; those that lose the race are closed."""
    if len(places) == 1:
        return await _connect(places[0])
    started: list[asyncio.Task[asyncio.Transport]] = []
    winner: asyncio.Transport | None = None
    try:
        for place in places:
            started.append(asyncio.create_task(_connect(place)))
            winner = await _first(started, HEAD_START_SECONDS)
            if winner is not None:
                return winner
        winner = await _first(started, None)
    finally:
        await _clear_away(started, winner)
    if winner is not None:
        return winner
    raise next(error for task in started if (error := task.exception()) is not None)


async def _first(
    started: list[asyncio.Task[asyncio.Transport]], seconds: float | None
) -> asyncio.Transport | None:
    """The first success within the time, or None once it is over or all have failed."""
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    while running := [task for task in started if not task.done()]:
        left = None if end is None else max(0.0, end - loop.time())
        await asyncio.wait(running, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for task in started:
            if task.done() and task.exception() is None:
                return task.result()
        if end is not None and (loop.time() >= end or started[-1].done()):
            return None
    return None


async def _clear_away(
    started: list[asyncio.Task[asyncio.Transport]], winner: asyncio.Transport | None
) -> None:
    for task in started:
        task.cancel()
        task.add_done_callback(lambda done: _drop_if_won_late(done, winner))
    try:
        await asyncio.wait(started)
    except asyncio.CancelledError:
        if winner is not None:
            winner.abort()
        raise


def _drop_if_won_late(
    task: asyncio.Task[asyncio.Transport], winner: asyncio.Transport | None
) -> None:
    # Asking for the error also tells the loop that somebody has seen it.
    if not task.cancelled() and task.exception() is None and task.result() is not winner:
        task.result().abort()


async def _connect(place: Place) -> asyncio.Transport:
    family, host, port = place
    # No socket of ours is given to the loop: uvloop, cancelled at the wrong moment, would close
    # it and leave us believing that we own its number.
    transport, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, host, port, family=family
    )
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_OPTIONS:
        option: int | None = getattr(socket, name, None)
        if option is not None:  # not every system has every one
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return transport
