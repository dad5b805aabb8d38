"""Let an ASGI application answer some paths of the service's port.

Laws: (1) the request is complete before the application sees it; (2) when the client leaves, the
application is told by `http.disconnect`, as any ASGI server tells it; (3) an answer that the
application breaks off never ends cleanly; (4) a client that is behind is waited for.
Not here: what the application does (server.py), the sockets (gateway/).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from jackline.control.face import Asked

Message: TypeAlias = MutableMapping[str, Any]
Application: TypeAlias = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]

_log = logging.getLogger(__name__)


class AsgiAnswer:
    """One request on its way through an application."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._body_given = False
        self._left = asyncio.Event()
        # The client has caught up, or has left.
        self._moved = asyncio.Event()
        asked.on_gone = self._gone
        asked.on_resume = self._moved.set

    async def run(self, application: Application) -> None:
        """Let the application answer; whatever it does, the request gets an end."""
        asked = self._asked
        work = asyncio.ensure_future(application(scope_of(asked), self._receive, self._send))
        left = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                # It was told; what it does not end by itself has nobody left to answer.
                await asyncio.wait((work,), timeout=5.0)
        finally:
            left.cancel()
            if not work.done():
                work.cancel()
            await asyncio.gather(work, left, return_exceptions=True)
            if not work.cancelled() and (error := work.exception()) is not None:
                _log.error("a bug in Jackline while answering a model", exc_info=error)
        # No end by the application: never a clean one (law 3). Without a head yet, say so.
        asked.respond(500, [(b"content-type", b"text/plain")], b"Jackline: no answer was made.\n")
        asked.reset()

    async def _receive(self) -> Message:
        if not self._body_given:
            self._body_given = True
            return {"type": "http.request", "body": bytes(self._asked.body), "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        asked = self._asked
        if message["type"] == "http.response.start":
            asked.begin(message["status"], [(bytes(n), bytes(v)) for n, v in message["headers"]])
        elif message["type"] == "http.response.body":
            asked.send(message.get("body", b""))
            if not message.get("more_body", False):
                asked.finish()
            while asked.paused and not asked.gone:
                self._moved.clear()
                await self._moved.wait()

    def _gone(self) -> None:
        self._left.set()
        self._moved.set()


def scope_of(asked: Asked) -> Message:
    """The request in the words of ASGI."""
    path = asked.path.decode("latin-1")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": asked.method.decode("latin-1"),
        "scheme": "http",
        "path": path,
        "raw_path": asked.path,
        "root_path": "",
        "query_string": asked.query,
        "headers": [(name.lower(), value) for name, value in asked.headers],
        "client": None,
        "server": None,
    }
