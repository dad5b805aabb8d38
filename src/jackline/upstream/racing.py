"""Connect to a name by whichever of its addresses answers first (RFC 8305).

Laws: (1) address families take turns, and each address has a short head start over the next; (2)
one socket is left, or none; (3) when all fail, the error of the address tried first is told.
Not here: what is spoken on the socket (dialling.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from itertools import chain, zip_longest
from typing import TypeAlias

HEAD_START_SECONDS = 0.25
# A stream may be silent for minutes; middle boxes forget connections that are.
_PROBE_AFTER_SECONDS = 60
_TCP_KEEPIDLE: int | None = getattr(socket, "TCP_KEEPIDLE", None)  # not on every system

# Family, and what `connect` takes for it.
Place: TypeAlias = "tuple[int, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]"


async def connected_socket(host: str, port: int) -> socket.socket:
    """A socket connected to the host, or an OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await first_connected(taking_turns((info[0], info[4]) for info in found))


def taking_turns(places: Iterable[Place]) -> list[Place]:
    """The places with their families taking turns, beginning with the first one's."""
    families: dict[int, list[Place]] = {}
    for place in places:
        families.setdefault(place[0], []).append(place)
    turns = chain.from_iterable(zip_longest(*families.values()))
    return [place for place in turns if place is not None]


async def first_connected(places: list[Place]) -> socket.socket:
    """A socket connected to one of the places; those that lose the race are closed."""
    if len(places) == 1:
        return await _connect(places[0])
    started: list[asyncio.Task[socket.socket]] = []
    winner: socket.socket | None = None
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
    started: list[asyncio.Task[socket.socket]], seconds: float | None
) -> socket.socket | None:
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
    started: list[asyncio.Task[socket.socket]], winner: socket.socket | None
) -> None:
    for task in started:
        task.cancel()
        task.add_done_callback(lambda done: _close_if_won_late(done, winner))
    try:
        await asyncio.wait(started)
    except asyncio.CancelledError:
        if winner is not None:
            winner.close()
        raise


def _close_if_won_late(task: asyncio.Task[socket.socket], winner: socket.socket | None) -> None:
    # Asking for the error also tells the loop that somebody has seen it.
    if not task.cancelled() and task.exception() is None and task.result() is not winner:
        task.result().close()


async def _connect(place: Place) -> socket.socket:
    family, address = place
    with contextlib.ExitStack() as undo:
        sock = socket.socket(family, socket.SOCK_STREAM)
        undo.callback(sock.close)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if _TCP_KEEPIDLE is not None:
            sock.setsockopt(socket.IPPROTO_TCP, _TCP_KEEPIDLE, _PROBE_AFTER_SECONDS)
        await asyncio.get_running_loop().sock_connect(sock, address)
        undo.pop_all()
        return sock
