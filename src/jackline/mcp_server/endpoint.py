"""Answer `/mcp` on the service's port with the protocol's ASGI application.

Rules: (1) only a client with the control token is let in; (2) the SDK is loaded in a thread by the
first request, and without it the answer says what to install; (3) an answer that the application
breaks off never ends cleanly; (4) the request is complete before the application sees it; (5) when
the client leaves, the application gets `http.disconnect`; (6) a slow client is waited for; (7) a
request has a largest size, since it is read while everybody else waits.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from jackline.control.http_handler import ServiceRequest
from jackline.mcp_server.model_tool import CancelledCalls, ModelTool, ToolCaller

if TYPE_CHECKING:
    from jackline.mcp_server.server import ToolServer


Message: TypeAlias = MutableMapping[str, Any]
Application: TypeAlias = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]

_log = logging.getLogger(__name__)


class _AsgiExchange:
    """One request on its way through an application."""

    def __init__(self, request: ServiceRequest) -> None:
        self._request = request
        self._body_given = False
        self._left = asyncio.Event()
        # The client has caught up, or has left.
        self._moved = asyncio.Event()
        request.on_gone = self._gone
        request.on_resume = self._moved.set

    async def run(self, application: Application) -> None:
        """Let the application answer; whatever it does, the request gets an end."""
        request = self._request
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": request.method.decode("latin-1"),
            "scheme": "http",
            "path": request.path.decode("latin-1"),
            "raw_path": request.path,
            "root_path": "",
            "query_string": request.query,
            "headers": [(name.lower(), value) for name, value in request.headers],
            "client": None,
            "server": None,
        }
        work = asyncio.ensure_future(application(scope, self._receive, self._send))
        left = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                # It was cancelled; what it does not end by itself has nobody left to answer.
                await asyncio.wait((work,), timeout=5.0)
        finally:
            left.cancel()
            if not work.done():
                work.cancel()
            await asyncio.gather(work, left, return_exceptions=True)
            if not work.cancelled() and (error := work.exception()) is not None:
                _log.error("a bug in Jackline while answering a model", exc_info=error)
        # No end by the application: never a clean one. Without a head yet, say so.
        request.respond(500, [(b"content-type", b"text/plain")], b"Jackline: no answer was made.\n")
        request.reset()

    async def _receive(self) -> Message:
        if not self._body_given:
            self._body_given = True
            return {"type": "http.request", "body": bytes(self._request.body), "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        request = self._request
        if message["type"] == "http.response.start":
            request.begin(message["status"], [(bytes(n), bytes(v)) for n, v in message["headers"]])
        elif message["type"] == "http.response.body":
            request.send(message.get("body", b""))
            if not message.get("more_body", False):
                request.finish()
            while request.paused and not request.gone:
                self._moved.clear()
                await self._moved.wait()

    def _gone(self) -> None:
        self._left.set()
        self._moved.set()


PATH = b"/mcp"
LARGEST_REQUEST = 1024 * 1024
"""In bytes; no model writes as much in one answer."""
INSTALL = "pip install 'jackline[mcp]', then restart the service: jackline down; jackline up"


class McpEndpoint:
    """The tools, over streamable HTTP; `serve` must run for as long as the service does."""

    def __init__(
        self,
        tools: Callable[[], Sequence[ModelTool]],
        trusts: Callable[[ServiceRequest], bool],
        news: Callable[[ToolCaller], Sequence[str]],
        takes_orders: Callable[[], bool],
    ) -> None:
        self._tools = tools
        self._trusts = trusts
        self._news = news
        self._takes_orders = takes_orders
        self._cancelled_calls = CancelledCalls()
        self._wanted = asyncio.Event()
        self._ready: asyncio.Future[Application] = asyncio.get_running_loop().create_future()
        self._answers: set[asyncio.Task[None]] = set()

    def knows(self, request: ServiceRequest) -> bool:
        """Whether this is for the tools."""
        return request.path == PATH

    def answer(self, request: ServiceRequest) -> None:
        """Let the protocol answer, once it is loaded."""
        if not self._trusts(request):
            self._refuse(
                request, 401, "the tools need the control token", "use the bridge: jackline mcp"
            )
            return
        if len(request.body) > LARGEST_REQUEST:
            self._refuse(
                request,
                413,
                f"a call of a tool has at most {LARGEST_REQUEST:,} bytes, and this one"
                f" {len(request.body):,}: nothing was done",
                "send less at once: fewer calls or orders, or long texts as files",
            )
            return
        self._wanted.set()
        self._cancelled_calls.note(request)
        task = asyncio.get_running_loop().create_task(self._answer(request))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def serve(self) -> None:
        """Keep the protocol's sessions; loads nothing before the first request."""
        await self._wanted.wait()
        try:
            module = await asyncio.to_thread(import_module, "jackline.mcp_server.server")
        except ImportError as error:
            self._ready.set_exception(error)
            self._ready.exception()  # reported to each client: not a task's unread failure
            _log.warning("no model can use the tools: %s. %s", error, INSTALL)
            return
        make = cast("type[ToolServer]", module.ToolServer)
        async with AsyncExitStack() as stack:
            served = make(self._tools(), self._cancelled_calls, self._news, self._takes_orders)
            sessions = served.sessions()
            await stack.enter_async_context(sessions.run())
            stack.push_async_callback(self._end_answers)
            self._ready.set_result(cast("Application", sessions.handle_request))
            await asyncio.get_running_loop().create_future()

    async def _answer(self, request: ServiceRequest) -> None:
        try:
            application = await asyncio.shield(self._ready)
        except ImportError:
            self._refuse(request, 501, "the MCP SDK is not installed", INSTALL)
            return
        await _AsgiExchange(request).run(application)

    async def _end_answers(self) -> None:
        for task in self._answers:
            task.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)

    def _refuse(self, request: ServiceRequest, status: int, words: str, hint: str) -> None:
        body = json.dumps({"error": {"message": f"Jackline: {words}.", "hint": hint}}).encode()
        request.respond(status, [(b"content-type", b"application/json")], body)
