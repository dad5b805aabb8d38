"""Offer the tools of MCP servers to an agent, as long as the agent lives.

Rules: (1) each server lives in a task of its own, so that its death ends only its own calls; (2)
after the context ends no process and no connection is left; (3) a server that is not installed, not
found or not answering is reported before the first model call, with what the user has to change.
"""

from __future__ import annotations

import asyncio
import logging
import re
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from jackline.agents.runner import TASK_VARIABLE, JsonObject
from jackline.batches.tool import Tool, ToolContext, ToolFailedError, ToolOutput
from jackline.errors import BadArgumentError, JacklineError
from jackline.failures.wording import redact
from jackline.user_errors import error_texts

if TYPE_CHECKING:
    import mcp
    import mcp_types

_SDK_LOG = logging.getLogger("mcp")
_SILENT = logging.NullHandler()
_NO_LETTER = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 128
_MOST_PAGES = 100
_START_WITHIN = 60.0
# Longer than the SDK itself takes from asking a process to end to killing it.
_STOP_WITHIN = 15.0
_SHOWN = 300


@asynccontextmanager
async def tools_of_servers(
    servers: Mapping[str, JsonObject], cwd: Path, task_id: str = ""
) -> AsyncIterator[list[Tool]]:
    """The tools of all servers, named `mcp__server__tool`; BadArgumentError when one cannot be had.

    `servers` are as in `.mcp.json`: {"command": …, "args": […], "env": {…}} or {"type": "http",
    "url": …, "headers": {…}}. Those that are started know for which agent they work: `task_id`.
    """
    try:
        # An extra, and a second to import: the other agents go on meanwhile.
        await asyncio.to_thread(import_module, "mcp")
    except ImportError as error:
        raise BadArgumentError(
            "An agent with MCP servers needs the package `mcp`, which is not installed.",
            hint="Install it with: pip install 'jackline[mcp]'",
        ) from error
    # What a server prints that is no MCP is its own text and may hold anything: it goes only to
    # those who have set up logging.
    _SDK_LOG.addHandler(_SILENT)
    async with AsyncExitStack() as stack:
        running = []
        for name, settings in servers.items():
            own = settings.get("env", {})
            if task_id and "command" in settings and isinstance(own, dict):
                settings = {**settings, "env": {**own, TASK_VARIABLE: task_id}}  # noqa: PLW2901
            running.append(_Server(name, settings, cwd))
        for server in running:
            stack.push_async_callback(server.stop)
        listed = await asyncio.gather(*(server.start() for server in running))
        yield [tool for tools in listed for tool in tools]


class _Server:
    """One server and the task that it lives in."""

    def __init__(self, name: str, settings: JsonObject, cwd: Path) -> None:
        self._name = name
        self._settings = settings
        self._cwd = cwd
        self._stopping = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._answers = False

    async def start(self) -> list[Tool]:
        """Its tools, once it answers."""
        ready: asyncio.Future[list[Tool]] = asyncio.get_running_loop().create_future()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as file:
            # A file of text, also where the system wraps it (Windows).
            errors = cast("TextIO", file)
            life = self._life = asyncio.ensure_future(self._live(ready, errors))
            first: list[asyncio.Future[None] | asyncio.Future[list[Tool]]] = [life, ready]
            await asyncio.wait(first, timeout=_START_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                return ready.result()
            await self.stop()
            errors.seek(0)
            raise self._cannot(life, redact(" ".join(errors.read()[-_SHOWN:].split()), _SHOWN))

    async def stop(self) -> None:
        """End it; returns when it is gone."""
        life = self._life
        if life is None:
            return
        self._stopping.set()
        if self._answers:
            await asyncio.wait([life], timeout=_STOP_WITHIN)
        if not life.done():
            life.cancel()
            await asyncio.wait([life])
        if not life.cancelled():
            life.exception()  # retrieved: its calls, or `start`, have reported what it died of

    async def _live(self, ready: asyncio.Future[list[Tool]], errors: TextIO) -> None:
        async with AsyncExitStack() as stack:
            client = await self._connected(stack, errors)
            tools: list[Tool] = []
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [_McpTool(self._name, tool, client) for tool in page.tools]
                cursor = page.next_cursor
                if cursor is None:
                    break
            self._answers = True
            ready.set_result(tools)
            await self._stopping.wait()

    async def _connected(self, stack: AsyncExitStack, errors: TextIO) -> mcp.Client:
        import mcp  # noqa: PLC0415
        from mcp.client.stdio import stdio_client  # noqa: PLC0415
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415
        from mcp.shared._httpx_utils import create_mcp_http_client  # noqa: PLC0415

        settings = self._settings
        if not any(isinstance(settings.get(name), str) for name in ("command", "url")):
            raise BadArgumentError("it has neither a `command` nor a `url`, or one that is no text")
        if "command" in settings:
            parameters = mcp.StdioServerParameters.model_validate(
                {"cwd": str(self._cwd), **settings}, extra="ignore"
            )
            return await stack.enter_async_context(mcp.Client(stdio_client(parameters, errors)))
        headers = settings.get("headers")
        http = await stack.enter_async_context(
            create_mcp_http_client(headers=headers if isinstance(headers, dict) else None)
        )
        transport = streamable_http_client(str(settings["url"]), http_client=http)
        return await stack.enter_async_context(mcp.Client(transport))

    def _cannot(self, life: asyncio.Task[None], printed: str) -> BadArgumentError:
        error: BaseException | None = None
        if life.done() and not life.cancelled():
            error = life.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        words: list[str] = []
        if error is None:
            why = "it did not answer within a minute"
        elif isinstance(error, FileNotFoundError) and "command" in self._settings:
            folder = self._settings.get("cwd") or self._cwd
            why = f"there is no program {self._settings['command']}, or no folder {folder}"
        else:
            why = error.message if isinstance(error, JacklineError) else type(error).__name__
            words = [redact(error_texts(error).private, _SHOWN)]
        return BadArgumentError(
            f"The MCP server {self._name} cannot be used: {why}.",
            hint="Correct its command or address, or leave it out.",
            private="; it said: ".join(filter(None, [*words, printed])),
        )


class _McpTool:
    def __init__(self, server: str, tool: mcp_types.Tool, client: mcp.Client) -> None:
        self._tool = tool
        self._client = client
        self.name = _NO_LETTER.sub("_", f"mcp__{server}__{tool.name}")[:_LONGEST_NAME]
        self.description = tool.description or ""
        self.input_schema: JsonObject = dict(tool.input_schema)

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- the protocol's shape
        hints = self._tool.annotations
        return hints is not None and hints.read_only_hint is True

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        from mcp import MCPError  # noqa: PLC0415

        try:
            result = await self._client.call_tool(self._tool.name, arguments)
        except MCPError as error:
            raise ToolFailedError(f"the MCP server says: {error}") from error
        texts: list[str] = []
        blocks: list[JsonObject] = []
        for part in result.content:
            if part.type == "text":
                texts.append(part.text)
            elif part.type == "image":
                source = {"type": "base64", "media_type": part.mime_type, "data": part.data}
                blocks.append({"type": "image", "source": source})
            elif part.type == "resource" and (words := getattr(part.resource, "text", None)):
                texts.append(words)
            else:
                texts.append(f"[{part.type} that cannot be shown]")
        text = "\n".join(texts)
        if result.is_error:
            raise ToolFailedError("the tool reports an error", output=text)
        return ToolOutput(text, tuple(blocks))
