"""The tool `batch`: many small calls at once, each with its own result.

Rules: (1) one call's failure touches no other, and every result has its call's id; (2) nothing runs
that the user did not allow, and nothing outside the folder; a refusal says what the user would have
to write; (3) a cancelled call ends everything that it started.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from jackline.batches.batch import OutputHistory, run_batch
from jackline.batches.fetch import FetchTool
from jackline.batches.files import ReadTool, SearchTool
from jackline.batches.permission import permit
from jackline.batches.policy import Denied, Policy
from jackline.batches.shell import ShellTool
from jackline.batches.tool import (
    BatchCall,
    BatchReport,
    CallLabel,
    CallResult,
    LabelsCalls,
    Tool,
    ToolContext,
    ToolFailedError,
    ToolOutput,
)
from jackline.batches.tool import JsonObject as ToolInput
from jackline.mcp_server.agent_tools import longest_wait, object_schema, text
from jackline.mcp_server.model_tool import JsonObject, ModelTool, ToolCaller, ToolReply
from jackline.mcp_server.permissions import ToolSettings

_MOST_CALLS = 200
_LONGEST_ANSWER = 20_000_000
"""Characters of all results together."""
_LEFT_OUT = "left out: the results of this batch are too long together; give this call again alone"
_FETCH = "fetch:"


CallListener: TypeAlias = Callable[[BatchCall, CallResult, ToolCaller], None]
"""Hears of each call that has run, and for whom."""


def nobody(_call: BatchCall, _result: CallResult, _caller: ToolCaller) -> None:
    """Nobody listens."""


async def own_project(caller: ToolCaller) -> Path | None:
    """The folder that the user chose for this client, where no agent of ours is known."""
    return None if caller.parent_task else caller.folder


def batch_tools(
    settings: Callable[[], ToolSettings],
    ran: CallListener = nobody,
    project_of: Callable[[ToolCaller], Awaitable[Path | None]] = own_project,
) -> list[ModelTool]:
    """The tool; `project_of` is the folder that the user chose for a client."""
    # Kept over all batches, so that silence is noticed where there were words before.
    printing = OutputHistory()

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        allowed = settings()
        folder = allowed.agents.working_folder(
            cast("str | None", arguments.get("cwd")), caller.folder
        )
        trusted = allowed.agents.chosen_folders(await project_of(caller))
        allow = allowed.batch.allow
        policy = Policy(folder, allow, trusted=trusted)
        addresses = [item.removeprefix(_FETCH) for item in allow if item.startswith(_FETCH)]
        made: tuple[Tool, ...] = (ShellTool(), ReadTool(), SearchTool(), FetchTool(addresses))
        tools = {tool.name: _JudgedTool(tool, policy) for tool in made}
        longest = longest_wait(caller, allowed.agents)
        calls = [
            BatchCall(
                each["id"],
                tools[each["tool"]],
                each["input"],
                tuple(each.get("needs", ())),
                timeout=longest,
            )
            for each in cast("list[dict[str, Any]]", arguments["calls"])
        ]
        done = 0

        async def ended(call: BatchCall, result: CallResult) -> None:
            nonlocal done
            done += 1
            if result.skipped_because is None:
                ran(call, result, caller)
            await caller.progress(f"{done} of {len(calls)} calls have ended")

        context = ToolContext(folder)
        report = await run_batch(calls, context=context, printing=printing, ended=ended)
        return _reply(report, folder)

    return [
        ModelTool(
            "batch",
            "Runs many shell, read, search and fetch calls in parallel and gives every result under"
            ' its own id, with a headline such as "1 of 14 failed: grep (exit 3)". A failure stops'
            " no other call, except those that need it. Output that is strangely empty is noticed."
            " Only commands and addresses that the user allowed run; reading and searching in the"
            " project always do. One program a call, no shell: no pipes, no `&&`, no `*.py`.",
            object_schema(
                {
                    "calls": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": _MOST_CALLS,
                        "items": _CALL,
                    },
                    "cwd": text("Where they run: a folder at or below the project's."),
                },
                "calls",
            ),
            run,
        )
    ]


_CALL = object_schema(
    {
        "id": text("Your name for the call; its result bears it."),
        "tool": {"enum": ["shell", "read", "search", "fetch"]},
        "input": {
            "type": "object",
            "description": "shell: {command or argv, cwd, timeout}; read: {path, offset, limit};"
            " search: {pattern, path, files, any_case, most}; fetch: {url}.",
        },
        "needs": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Ids of calls that must have succeeded before this one runs.",
        },
    },
    *("id", "tool", "input"),
)


class _JudgedTool:
    """A tool behind the user's permission."""

    def __init__(self, tool: Tool, policy: Policy) -> None:
        self.name = tool.name
        self.description = tool.description
        self.input_schema = tool.input_schema
        self.read_only = tool.read_only
        self._tool = tool
        self._policy = policy

    def words(self, arguments: ToolInput) -> CallLabel:
        if isinstance(self._tool, LabelsCalls):
            return self._tool.words(arguments)
        return CallLabel(self.name, self.name)

    async def run(self, arguments: ToolInput, context: ToolContext) -> ToolOutput:
        judged = await permit(self._policy, BatchCall(context.call_id, self._tool, arguments))
        if isinstance(judged, Denied):
            raise ToolFailedError(
                f"not allowed: {judged.why}; {judged.hint}"
                " (batch.allow in the user's own jackline.toml)",
                ended_by="not allowed",
            )
        context = replace(context, guard=judged.guard, argv=judged.argv)
        return await self._tool.run(arguments, context)


def _reply(report: BatchReport, folder: Path) -> ToolReply:
    lines = [report.headline]
    results: list[JsonObject] = []
    left = _LONGEST_ANSWER
    for result in report:
        data = _result(result)
        left -= len(result.text)
        for block in result.blocks:
            source = block.get("source")
            content = source.get("data") if isinstance(source, dict) else block.get("text")
            left -= len(content) if isinstance(content, str) else 0
        if left < 0 and (result.text or result.blocks):
            data |= {"text": _LEFT_OUT}
            data.pop("blocks", None)
            lines.append(f"{result.id}: {_LEFT_OUT}")
        else:
            lines.append(f"{result.id}: {result.for_model}")
        results.append(data)
    data = {"headline": report.headline, "folder": str(folder), "results": results}
    return ToolReply("\n\n".join(lines), data, failed=not any(result.ok for result in report))


def _result(result: CallResult) -> JsonObject:
    data: JsonObject = {"id": result.id, "ok": result.ok, "text": result.text}
    more = {
        "error": result.error,
        "exit_code": result.exit_code,
        "skipped_because": result.skipped_because,
        "noticed": result.empty_noticed,
        "blocks": list(result.blocks),
    }
    data["seconds"] = round(result.seconds, 3)
    return data | {name: value for name, value in more.items() if value not in (None, "", [])}
