"""The tool `batch`: many small calls at once, each with its own result.

Rules: (1) one call's failure touches no other, and every result has its call's id; (2) nothing runs
that the user did not allow, and nothing outside the folder; a refusal says what the user would have
to write; (3) a cancelled call ends everything that it started; (4) what a call gave is left out,
with a sentence, as soon as it is more than may be held for its batch or for all batches.
"""

from __future__ import annotations

import asyncio
import sys
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
from jackline.outside_names import LONGEST_PATH

_MOST_CALLS = 200
LARGEST_ANSWER = 10_000_000
"""Bytes of all results of a batch together."""
HELD_IN_ALL = 40_000_000
"""Bytes of the results of all batches that have not been answered."""
LEFT_OUT = (
    "left out: the results of this batch, or of all batches under way, are too long together; give"
    " this call again alone"
)
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
    in_all = ResultRoom(HELD_IN_ALL)

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
        allowed = settings()
        cwd = cast("str | None", arguments.get("cwd"))
        folder = await asyncio.to_thread(allowed.agents.working_folder, cwd, caller.folder)
        trusted = allowed.agents.chosen_folders(await project_of(caller))
        allow = allowed.batch.allow
        policy = Policy(folder, allow, trusted=trusted)
        addresses = [item.removeprefix(_FETCH) for item in allow if item.startswith(_FETCH)]
        made: tuple[Tool, ...] = (ShellTool(), ReadTool(), SearchTool(), FetchTool(addresses))
        room = ResultRoom(LARGEST_ANSWER, in_all)
        tools = {tool.name: _JudgedTool(tool, policy, room) for tool in made}
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
        try:
            report = await run_batch(calls, context=context, printing=printing, ended=ended)
            return _reply(report, folder)
        finally:
            room.close()

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
            "items": {"type": "string", "maxLength": LONGEST_PATH},
            "maxItems": _MOST_CALLS,
            "description": "Ids of calls that must have succeeded before this one runs.",
        },
    },
    *("id", "tool", "input"),
)


class ResultRoom:
    """Room for the results of one batch within that of all batches."""

    def __init__(self, most: int, above: ResultRoom | None = None) -> None:
        self._left = most
        self._taken = 0
        self._above = above

    def fitted(self, output: ToolOutput) -> ToolOutput:
        """The same; without what it holds where there is no room for that."""
        return output if self.take(_size(output)) else replace(output, text=LEFT_OUT, blocks=())

    def close(self) -> None:
        """The results are no longer held."""
        if self._above is not None:
            self._above.give_back(self._taken)
        self._taken = 0

    def give_back(self, size: int) -> None:
        """So much is no longer held."""
        self._left += size

    def take(self, size: int) -> bool:
        """Whether there is room for so many bytes, which are held from now on."""
        if size > self._left or (self._above is not None and not self._above.take(size)):
            return False
        self._left -= size
        self._taken += size
        return True


def _size(output: ToolOutput) -> int:
    """Its bytes, as they are held: some signs take four."""
    size = sys.getsizeof(output.text)
    for block in output.blocks:
        source = block.get("source")
        content = source.get("data") if isinstance(source, dict) else block.get("text")
        size += sys.getsizeof(content) if isinstance(content, str) else 0
    return size


class _JudgedTool:
    """A tool behind the user's permission."""

    def __init__(self, tool: Tool, policy: Policy, room: ResultRoom) -> None:
        self._room = room
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
        return self._room.fitted(await self._tool.run(arguments, context))


def _reply(report: BatchReport, folder: Path) -> ToolReply:
    lines = [report.headline]
    results: list[object] = []
    for result in report:
        lines.append(f"{result.id}: {result.for_model}")
        results.append(_result(result))
    data: JsonObject = {"headline": report.headline, "folder": str(folder), "results": results}
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
