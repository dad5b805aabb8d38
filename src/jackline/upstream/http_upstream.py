"""Send attempts to real providers over HTTP/1.1, on kept connections.

Laws: (1) those of `port.py`; (2) where a message goes is decided by configuration alone: the lane's
name picks the origin, and nothing in a message can change it.
Not here: connections (pool.py, connection.py), deciding what to send and when (calls/, lanes/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from jackline.errors import InternalError
from jackline.upstream.attempt import HttpAttempt
from jackline.upstream.origin import Origin
from jackline.upstream.pool import Pool
from jackline.upstream.port import Ear, Message


class HttpUpstream:
    """All origins behind one door; to be used inside a running event loop."""

    __slots__ = ("_pools", "_retired")

    def __init__(self, origins: Mapping[str, Origin]) -> None:
        self._pools = {name: Pool(origin) for name, origin in origins.items()}
        self._retired: list[Pool] = []

    def use(self, name: str, origin: Origin) -> None:
        """Send to another origin under this name from now on; what is under way goes on."""
        if name in self._pools:
            self._retired.append(self._pools[name])
        self._pools[name] = Pool(origin)

    def start(self, message: Message, lane: str, ear: Ear) -> HttpAttempt:
        """Begin one attempt at the origin that the lane's name begins with."""
        pool = self._pools.get(lane.partition("/")[0])
        if pool is None:
            raise InternalError(f"Lane {lane} belongs to no configured upstream.")
        return pool.start(message, ear)

    @property
    def open_connections(self) -> int:
        """How many connections there are, busy or idle."""
        return sum(pool.open_connections for pool in self._all())

    @property
    def idle_connections(self) -> int:
        """How many of them wait for a request."""
        return sum(pool.idle_connections for pool in self._all())

    async def close(self) -> None:
        """Break off whatever goes on; returns when no connection and no task is left."""
        await asyncio.gather(*(pool.close() for pool in self._all()))

    def _all(self) -> list[Pool]:
        return [*self._pools.values(), *self._retired]
