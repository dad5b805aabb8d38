"""Send attempts to real providers over HTTP/1.1, on pooled connections.

Rules: (1) those of interface.py; (2) the lane's name selects the origin from the configuration;
nothing in a message can change it; (3) an attempt never waits for another one's connection; (4) a
request that met the end of a pooled connection is sent once more, on a new one, and never a third
time; (5) an idle connection lives for the origin's `idle_seconds`, watched by one timer; (6) after
`close` nothing is open.
Not here: how to connect (dialler.py), the bytes on a connection (connection.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from jackline.errors import InternalError
from jackline.lane_id import LaneId
from jackline.upstream.connection import Connection, HttpAttempt
from jackline.upstream.dialler import Dialler
from jackline.upstream.http_messages import HeadWriter
from jackline.upstream.interface import ClosedHereError, ResponseHandler, UpstreamRequest
from jackline.upstream.origin import Origin


class ConnectionPool:
    """The connections to one origin."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._writer = HeadWriter(origin)
        self._dialler = Dialler(origin)
        self._all: set[Connection] = set()
        # In the order in which they became idle.
        self._idle: dict[Connection, None] = {}
        self._dialling: dict[asyncio.Task[None], HttpAttempt] = {}
        self._to_flush: list[Connection] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._emptied: asyncio.Event | None = None

    @property
    def open_connections(self) -> int:
        """How many connections there are, busy or idle."""
        return len(self._all)

    @property
    def idle_connections(self) -> int:
        """How many of them wait for a request."""
        return len(self._idle)

    def start(self, message: UpstreamRequest, ear: ResponseHandler) -> HttpAttempt:
        """Send the message, at once where a connection is idle."""
        attempt = HttpAttempt(
            self._writer.head(message), message.body, message.method == b"HEAD", ear
        )
        idle = self._idle
        while idle and not message.fresh:
            connection, _ = idle.popitem()
            if connection.is_usable:
                connection.send(attempt)
                return attempt
        self._dial(attempt)
        return attempt

    async def close(self) -> None:
        """Break off whatever goes on; returns when every connection is gone."""
        self._emptied = asyncio.Event()
        tasks = list(self._dialling.items())
        for task, attempt in tasks:
            task.cancel()
            attempt.break_off(_closed())
        for connection in list(self._all):
            connection.break_off(_closed())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._idle.clear()
        await asyncio.gather(*(task for task, _ in tasks), return_exceptions=True)
        if self._all:
            await self._emptied.wait()

    # ---- opening

    def _dial(self, attempt: HttpAttempt) -> None:
        loop = self._loop = asyncio.get_running_loop()
        if self._emptied is not None:
            loop.call_soon(attempt.break_off, _closed())
            return
        task = loop.create_task(self._connect(attempt))
        attempt.dialling = task
        self._dialling[task] = attempt
        task.add_done_callback(self._dialled)

    async def _connect(self, attempt: HttpAttempt) -> None:
        connection = Connection(self)
        await self._dialler.open(connection)
        self._all.add(connection)
        attempt.dialling = None
        if attempt.is_over:
            connection.drop()
        else:
            connection.send(attempt)

    def _dialled(self, task: asyncio.Task[None]) -> None:
        attempt = self._dialling.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if isinstance(error, OSError):
            attempt.break_off(error)
            return
        attempt.break_off(ClosedHereError("connecting failed in an unforeseen way"))
        raise error

    # ---- what connections tell

    def free(self, connection: Connection) -> None:
        """Keep the connection for the next request."""
        loop = self._loop
        if loop is None or self._emptied is not None:
            connection.drop()
            return
        connection.idle_since = loop.time()
        self._idle[connection] = None
        if self._timer is None:
            self._timer = loop.call_later(self._origin.idle_seconds, self._drop_idle)

    def flush_soon(self, connection: Connection) -> None:
        """Let a connection write at the end of this turn of the loop."""
        if not self._to_flush:
            asyncio.get_running_loop().call_soon(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        waiting, self._to_flush = self._to_flush, []
        for connection in waiting:
            connection.flush()

    def lost(self, connection: Connection) -> None:
        """Forget the connection."""
        self._all.discard(connection)
        self._idle.pop(connection, None)
        if not self._all and self._emptied is not None:
            self._emptied.set()

    def resend(self, attempt: HttpAttempt) -> None:
        """Send the attempt on a new connection."""
        self._dial(attempt)

    def _drop_idle(self) -> None:
        self._timer = None
        loop = self._loop
        if loop is None:
            return
        oldest_allowed = loop.time() - self._origin.idle_seconds
        while self._idle:
            connection = next(iter(self._idle))
            if connection.idle_since > oldest_allowed:
                due = connection.idle_since + self._origin.idle_seconds
                self._timer = loop.call_at(due, self._drop_idle)
                return
            del self._idle[connection]
            connection.drop()


def _closed() -> ClosedHereError:
    return ClosedHereError("the gateway is being closed")


class HttpUpstream:
    """All origins behind one door; to be used inside a running event loop."""

    __slots__ = ("_pools", "_retired")

    def __init__(self, origins: Mapping[str, Origin]) -> None:
        self._pools = {name: ConnectionPool(origin) for name, origin in origins.items()}
        self._retired: list[ConnectionPool] = []

    def use(self, name: str, origin: Origin) -> None:
        """Send to another origin under this name from now on; what is under way goes on."""
        if name in self._pools:
            self._retired.append(self._pools[name])
        self._pools[name] = ConnectionPool(origin)

    def start(self, message: UpstreamRequest, lane: LaneId, ear: ResponseHandler) -> HttpAttempt:
        """Begin one attempt at the origin of the lane's upstream."""
        pool = self._pools.get(lane.upstream)
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

    def _all(self) -> list[ConnectionPool]:
        return [*self._pools.values(), *self._retired]
