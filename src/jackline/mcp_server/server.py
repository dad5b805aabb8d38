"""Speak the Model Context Protocol with the official SDK; the only file that knows its types.

Rules: (1) the SDK is imported here alone, and this module only when a model connects; (2) bad
arguments and failures come back as results with `is_error`, in words that say what to do; (3) a
cancelled request cancels its tool; (4) a read-only service runs only tools that read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

import mcp_types as types
from jsonschema_rs import ValidationErrorKind
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from jackline import __version__
from jackline.agents.structured_answer import build_validator, fault_words, first_faults
from jackline.errors import InternalError, JacklineError
from jackline.mcp_server.handshake import INSTRUCTIONS, NAME
from jackline.mcp_server.model_tool import CancelledCalls, ModelTool, ToolCaller, discard_progress

FOLDER_HEADER = "x-jackline-folder"
"""Where the client works, percent-encoded; the bridge sends it."""
PATIENCE_HEADER = "x-jackline-patience-ms"
CLIENT_SESSION_HEADER = "x-jackline-client-session"
PARENT_TASK_HEADER = "x-jackline-parent-task"
SESSION_HEADER = "mcp-session-id"
_MOST_FAULTS = 3
# Of a patience in milliseconds; int() raises where there are thousands.
_MOST_DIGITS = 12

_log = logging.getLogger(__name__)


class ToolServer:
    """The protocol around a set of tools."""

    def __init__(
        self,
        tools: Sequence[ModelTool],
        cancelled_calls: CancelledCalls,
        news: Callable[[ToolCaller], Sequence[str]],
        takes_orders: Callable[[], bool],
    ) -> None:
        self._takes_orders = takes_orders
        self._cancelled_calls = cancelled_calls
        self._news = news
        self._tools = {tool.name: tool for tool in tools}
        self._checks = {tool.name: build_validator(tool.input_schema) for tool in tools}
        self._server = Server(
            NAME,
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    def sessions(self) -> StreamableHTTPSessionManager:
        """What answers HTTP requests, for one run of the service."""
        return StreamableHTTPSessionManager(self._server, max_sessions=1000)

    async def _list(
        self, _context: ServerRequestContext, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.input_schema,
                    annotations=types.ToolAnnotations(read_only_hint=tool.read_only),
                )
                for tool in self._tools.values()
            ]
        )

    async def _call(
        self, context: ServerRequestContext, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            known = ", ".join(self._tools)
            return _failed(f"There is no tool {params.name!r} here. There are: {known}.")
        if not tool.read_only and not self._takes_orders():
            return _failed(
                f"This service takes no orders from models (--read-only): {tool.name} did nothing.",
                "ask the user to start it without --read-only (listen.read_only = false)",
            )
        arguments = dict(params.arguments or {})
        faults = []
        for found in first_faults(self._checks[tool.name], arguments, _MOST_FAULTS + 1):
            where = ".".join(str(part) for part in found.instance_path) or "the input"
            why = fault_words(found)
            if isinstance(found.kind, ValidationErrorKind.Enum):
                # All that can be chosen, which the checker cuts short.
                why = "must be one of " + ", ".join(map(json.dumps, found.kind.options))
            faults.append(f"{where}: {why}")
        if faults:
            more = " (and more)" if len(faults) > _MOST_FAULTS else ""
            return _failed(f"{'; '.join(faults[:_MOST_FAULTS])}{more}. Nothing was done.")
        caller = self._caller(context)
        try:
            reply = await tool.run(arguments, caller)
        except JacklineError as error:
            return _failed(error.message, error.hint, error.to_json())
        except Exception as error:  # noqa: BLE001 -- the border of one tool call: others go on
            _log.error("a bug in Jackline in the tool %s", tool.name, exc_info=error)
            bug = InternalError(f"a bug in Jackline: {type(error).__name__}")
            return _failed(bug.message, "report it with the service's log", bug.to_json())
        text, data, news = reply.text, reply.data, self._news(caller)
        if news:
            agents = f"{len(news)} background agent{'s'[: len(news) > 1]}"
            text = f"{text}\n\n{agents} finished: {'; '.join(news)}."
            data = {**data, "finished_meanwhile": list(news)}
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=data,
            is_error=reply.failed,
        )

    def _caller(self, context: ServerRequestContext) -> ToolCaller:
        headers = {} if context.request is None else context.request.headers
        session, params = context.session, context.session.client_params
        folder = unquote(headers.get(FOLDER_HEADER, ""))
        patience = headers.get(PATIENCE_HEADER, "")
        step = 0

        async def progress(words: str) -> None:
            nonlocal step
            step += 1
            await session.report_progress(step, None, words)

        async def say(words: str) -> None:
            # Never raises: a client that has gone gets nothing.
            note = types.LoggingMessageNotificationParams(level="info", data=words)
            await session.send_notification(types.LoggingMessageNotification(params=note))

        return ToolCaller(
            progress,
            say if session.protocol_version not in MODERN_PROTOCOL_VERSIONS else discard_progress,
            "" if params is None else params.client_info.name,
            headers.get(CLIENT_SESSION_HEADER, ""),
            Path(folder) if folder else None,
            int(patience) / 1000
            if patience.isdecimal() and len(patience) <= _MOST_DIGITS
            else None,
            hears_progress=bool(context.meta and context.meta.get("progress_token") is not None),
            parent_task=headers.get(PARENT_TASK_HEADER, ""),
            is_cancelled=self._cancelled_calls.asker(
                headers.get(SESSION_HEADER, ""), context.request_id
            ),
        )


def _failed(
    words: str, hint: str = "", error: dict[str, object] | None = None
) -> types.CallToolResult:
    text = words if not hint else f"{words}\nhint: {hint}"
    data = {"error": error or {"message": words, "hint": hint or None}}
    json.dumps(data)  # whatever an error carries must be plain: found here, not in the client
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=data, is_error=True
    )
