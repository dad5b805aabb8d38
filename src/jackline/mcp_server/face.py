"""Answer `/mcp` on the service's port.

Laws: (1) only who knows the control token is let in; (2) the SDK is loaded in a thread by the first
request, so that no other client waits for it; (3) without the SDK the answer says what to install.
Not here: the protocol (server.py), ASGI (asgi_face.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING, cast

from jackline.control.face import Asked
from jackline.mcp_server.asgi_face import Application, AsgiAnswer
from jackline.mcp_server.model_tool import Caller, ModelTool
from jackline.mcp_server.taken_back import TakenBack

if TYPE_CHECKING:
    from jackline.mcp_server.server import ToolServer

PATH = b"/mcp"
INSTALL = "pip install 'jackline[mcp]', then restart the service: jackline down; jackline up"

_log = logging.getLogger(__name__)


class McpFace:
    """The tools, over streamable HTTP; `serve` must run for as long as the service does."""

    def __init__(
        self,
        tools: Callable[[], Sequence[ModelTool]],
        trusts: Callable[[Asked], bool],
        news: Callable[[Caller], Sequence[str]],
        takes_orders: Callable[[], bool],
    ) -> None:
        self._tools = tools
        self._trusts = trusts
        self._news = news
        self._takes_orders = takes_orders
        self._taken_back = TakenBack()
        self._wanted = asyncio.Event()
        self._ready: asyncio.Future[Application] = asyncio.get_running_loop().create_future()
        self._answers: set[asyncio.Task[None]] = set()

    def knows(self, asked: Asked) -> bool:
        """Whether this is for the tools."""
        return asked.path == PATH

    def answer(self, asked: Asked) -> None:
        """Let the protocol answer, once it is loaded."""
        if not self._trusts(asked):
            _refuse(asked, 401, "the tools need the control token", "use the bridge: jackline mcp")
            return
        self._wanted.set()
        self._taken_back.hear(asked)
        task = asyncio.get_running_loop().create_task(self._answer(asked))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def serve(self) -> None:
        """Keep the protocol's sessions; loads nothing before the first request."""
        await self._wanted.wait()
        try:
            module = await asyncio.to_thread(import_module, "jackline.mcp_server.server")
        except ImportError as error:
            self._ready.set_exception(error)
            self._ready.exception()  # told to each client: not a task's unheard failure
            _log.warning("no model can use the tools: %s. %s", error, INSTALL)
            return
        make = cast("type[ToolServer]", module.ToolServer)
        async with AsyncExitStack() as stack:
            served = make(self._tools(), self._taken_back, self._news, self._takes_orders)
            sessions = served.sessions()
            await stack.enter_async_context(sessions.run())
            stack.push_async_callback(self._end_answers)
            self._ready.set_result(cast("Application", sessions.handle_request))
            await asyncio.get_running_loop().create_future()

    async def _answer(self, asked: Asked) -> None:
        try:
            application = await asyncio.shield(self._ready)
        except ImportError:
            _refuse(asked, 501, "the MCP SDK is not installed", INSTALL)
            return
        await AsgiAnswer(asked).run(application)

    async def _end_answers(self) -> None:
        for task in self._answers:
            task.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)


def _refuse(asked: Asked, status: int, words: str, next_step: str) -> None:
    body = json.dumps({"error": {"message": f"Jackline: {words}.", "next": next_step}}).encode()
    asked.respond(status, [(b"content-type", b"application/json")], body)
