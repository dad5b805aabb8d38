"""Offer the tools of MCP servers to an agent, as long as the agent lives.

Rules: (1) each server lives in a task of its own, so that its death ends only its own calls; (2)
after the context ends no process and no connection is left; (3) a server that is not installed, not
found or not answering is reported before the first model call, with what the user has to change.
Not here: being an MCP server (mcp_server/), running calls side by side (batches/).
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
from jackline.errors import BadArgumentError
from jackline.failures.wording import redact

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
    # What a server printed that is no MCP is told here by whoever has set up logging, and else not
    # at all: it is the server's own text, and may hold anything.
    _SDK_LOG.addHandler(_SILENT)
    async with AsyncExitStack() as stack:
        running = [_Server(name, _marked(given, task_id), cwd) for name, given in servers.items()]
        for server in running:
            stack.push_async_callback(server.stop)
        listed = await asyncio.gather(*(server.start() for server in running))
        yield [tool for tools in listed for tool in tools]


def _marked(given: JsonObject, task_id: str) -> JsonObject:
    own = given.get("env", {})
    if not task_id or "command" not in given or not isinstance(own, dict):
        return given
    return {**given, "env": {**own, TASK_VARIABLE: task_id}}


class _Server:
    """One server and the task that it lives in."""

    def __init__(self, name: str, given: JsonObject, cwd: Path) -> None:
        self._name = name
        self._given = given
        self._cwd = cwd
        self._stopping = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._answers = False

    async def start(self) -> list[Tool]:
        """Its tools, once it answers."""
        ready: asyncio.Future[list[Tool]] = asyncio.get_running_loop().create_future()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            # A file of text, also where the system wraps it (Windows).
            errors = cast("TextIO", said)
            life = self._life = asyncio.ensure_future(self._live(ready, errors))
            first: list[asyncio.Future[None] | asyncio.Future[list[Tool]]] = [life, ready]
            await asyncio.wait(first, timeout=_START_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                return ready.result()
            await self.stop()
            raise self._cannot(life, _last_words(errors))

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
            life.exception()  # seen: what it died of was told by its calls, or by `start`

    async def _live(self, ready: asyncio.Future[list[Tool]], said: TextIO) -> None:
        async with AsyncExitStack() as stack:
            client = await self._connected(stack, said)
            tools = [_McpTool(self._name, tool, client) for tool in await _listed(client)]
            self._answers = True
            ready.set_result(list[Tool](tools))
            await self._stopping.wait()

    async def _connected(self, stack: AsyncExitStack, said: TextIO) -> mcp.Client:
        import mcp  # noqa: PLC0415
        from mcp.client.stdio import stdio_client  # noqa: PLC0415
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415
        from mcp.shared._httpx_utils import create_mcp_http_client  # noqa: PLC0415

        given = self._given
        if not any(isinstance(given.get(name), str) for name in ("command", "url")):
            raise ValueError("it has neither a `command` nor a `url`, or one that is no text")
        if "command" in given:
            parameters = mcp.StdioServerParameters.model_validate(
                {"cwd": str(self._cwd), **given}, extra="ignore"
            )
            return await stack.enter_async_context(mcp.Client(stdio_client(parameters, said)))
        headers = given.get("headers")
        http = await stack.enter_async_context(
            create_mcp_http_client(headers=headers if isinstance(headers, dict) else None)
        )
        transport = streamable_http_client(str(given["url"]), http_client=http)
        return await stack.enter_async_context(mcp.Client(transport))

    def _cannot(self, life: asyncio.Task[None], said: str) -> BadArgumentError:
        why = "it did not answer within a minute"
        if life.done() and not life.cancelled() and (error := life.exception()) is not None:
            why = self._in_words(error)
        words = f"; it said: {said}" if said else ""
        return BadArgumentError(
            f"The MCP server {self._name} cannot be used: {why}{words}.",
            hint="Correct its command or address, or leave it out.",
        )

    def _in_words(self, error: BaseException) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, FileNotFoundError) and "command" in self._given:
            return f"there is no program {self._given['command']}, or no folder {self._folder}"
        said = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        return redact(said)[:_SHOWN]

    @property
    def _folder(self) -> str:
        return str(self._given.get("cwd") or self._cwd)


class _McpTool:
    """One tool of a server."""

    def __init__(self, server: str, told: mcp_types.Tool, client: mcp.Client) -> None:
        self._told = told
        self._client = client
        self.name = _NO_LETTER.sub("_", f"mcp__{server}__{told.name}")[:_LONGEST_NAME]
        self.description = told.description or ""
        self.input_schema: JsonObject = dict(told.input_schema)

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- the protocol's shape
        """What the server promises."""
        hints = self._told.annotations
        return hints is not None and hints.read_only_hint is True

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        """What the server gave."""
        from mcp import MCPError  # noqa: PLC0415

        try:
            result = await self._client.call_tool(self._told.name, arguments)
        except MCPError as error:
            raise ToolFailedError(f"the MCP server says: {error}") from error
        output = _output(result)
        if result.is_error:
            raise ToolFailedError("the tool reports an error", output=output.text)
        return output


async def _listed(client: mcp.Client) -> list[mcp_types.Tool]:
    tools: list[mcp_types.Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def _output(result: mcp_types.CallToolResult) -> ToolOutput:
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
    return ToolOutput("\n".join(texts), tuple(blocks))


def _last_words(said: TextIO) -> str:
    said.seek(0)
    return redact(" ".join(said.read()[-_SHOWN:].split()))
