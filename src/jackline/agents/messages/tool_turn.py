"""Run the tool calls of one turn, with each start, output and end in the log.

Rules: (1) a call's start is durable before it runs, and its end before anybody sees the result; (2)
a call that an earlier process started and did not end does not run again: the model learns that it
may or may not have run, and its output so far; (3) results are in the order of the calls, each with
its id, with one line about failures; (4) output of a running tool is logged after a quarter of a
second at the latest, up to a bounded size; (5) a tool that has an argument `needs_calls` of its own
uses it itself, and only earlier calls of the same turn can be named, so that nothing waits for
itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from jackline.agents.messages.conversation import (
    RESULTS,
    TOOL_BEGAN,
    TOOL_ENDED,
    TOOL_OUTPUT,
    ConversationLog,
    MessagesSettings,
    TurnToolCall,
)
from jackline.agents.runner import JsonObject, ToolRun, ToolRuns
from jackline.agents.structured_answer import STRUCTURED_OUTPUT
from jackline.batches.batch import OutputHistory, run_batch
from jackline.batches.tool import (
    BatchCall,
    BatchReport,
    CallResult,
    ClippedOutput,
    MissingTool,
    Tool,
    ToolContext,
)
from jackline.clock import Clock
from jackline.errors import BadArgumentError

_SOON = 0.25
_MOST_PER_CALL = 64 * 1024
_UNSURE = (
    "This call was cut off while it was running: it may or may not have run to its end. It was "
    "not run again. Check what it has done before you repeat it."
)
# The argument by which a call names the calls that it needs; the tool itself does not get it.
_NEEDS_CALLS = "needs_calls"
_OFFERED_NEEDS: JsonObject = {
    "type": "array",
    "items": {"type": "integer"},
    "description": (
        "Optional. Positions (1 for the first) of earlier calls of this same turn that must have "
        "succeeded before this one runs; it is skipped if one of them fails."
    ),
}


def cut_calls_text(names: Sequence[str]) -> str:
    """For the model: these calls came without their whole input."""
    return (
        f"The input of your call of {', '.join(names)} was cut off at the output limit, so it did "
        "not run. Call it again with less at once, in several steps if need be."
    )


class _OutputRecorder:
    """Logs the output of the calls of one batch while they run."""

    def __init__(self, log: ConversationLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._waiting: dict[str, list[str]] = {}
        self._characters: dict[str, int] = {}
        self._flushing: asyncio.Task[None] | None = None

    def add(self, call_id: str, text: str) -> None:
        room = _MOST_PER_CALL - self._characters.get(call_id, 0)
        if room <= 0 or not text:
            return
        self._characters[call_id] = self._characters.get(call_id, 0) + len(text)
        self._waiting.setdefault(call_id, []).append(text[:room])
        if self._flushing is None:
            self._flushing = asyncio.ensure_future(self._flush_soon())

    async def close(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.wait([self._flushing])
        self._flush()

    async def _flush_soon(self) -> None:
        await self._clock.sleep(_SOON)
        self._flushing = None
        self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        running = {call.id for call in self._log.conversation.calls if call.ended is None}
        for call_id, pieces in waiting.items():
            if call_id in running:
                self._log.append_nowait(TOOL_OUTPUT, {"id": call_id, "text": "".join(pieces)})


class ToolTurn:
    """Runs the tool calls of an agent, turn by turn; `ran` gets what ran, for the gateway."""

    def __init__(
        self,
        log: ConversationLog,
        context: ToolContext,
        settings: MessagesSettings,
        clock: Clock,
        ran: ToolRuns,
    ) -> None:
        self._log = log
        self._context = context
        self._settings = settings
        self._clock = clock
        self._ran = ran
        self._tools: dict[str, Tool] = {}
        self._history = OutputHistory()

    def offer(self, tools: Sequence[Tool]) -> list[JsonObject]:
        """Use these tools; returns them as they are offered to the model."""
        for tool in tools:
            if tool.name in self._tools or tool.name == STRUCTURED_OUTPUT:
                message = f"Two tools are called {tool.name}, or Jackline needs that name itself."
                raise BadArgumentError(message, hint="Give each tool a name of its own.")
            self._tools[tool.name] = tool
        offered: list[JsonObject] = []
        for tool in tools:
            schema = dict(tool.input_schema)
            if _can_name_needs(schema):
                properties = schema.get("properties")
                known = properties if isinstance(properties, dict) else {}
                schema["properties"] = {**known, _NEEDS_CALLS: _OFFERED_NEEDS}
            offered.append(
                {"name": tool.name, "description": tool.description, "input_schema": schema}
            )
        return offered

    async def resolve(self, settled: Mapping[str, JsonObject]) -> None:
        """End every call of the last answer with a result; `settled` has those without a run."""
        conversation = self._log.conversation
        for call in conversation.calls:
            if call.ended is not None:
                continue
            if call.id in settled:
                await self._log.write(TOOL_ENDED, {"id": call.id, **settled[call.id]})
            elif call.began:
                printed = self._clipped("".join(call.output))
                so_far = f"so far:\n{printed}" if printed else "nothing yet."
                why = f"{_UNSURE} It had printed {so_far}"
                await self._end_without_run(call, why, "may or may not have run")
        await self._run_the_rest()
        lines = []
        results = []
        for call in conversation.calls:
            end = call.ended or {}
            skipped = end.get("skipped")
            result = CallResult(
                id=call.id,
                what=call.name,
                ok=bool(end.get("ok")),
                name=str(end.get("name") or call.name),
                ended_by=str(end.get("ended_by") or ""),
                skipped_because=None if skipped is None else str(skipped),
            )
            results.append(result)
        report = BatchReport(tuple(results))
        if not report.ok and len(report) > 1:
            lines.append(report.headline)
        if conversation.cut_calls:
            lines.append(cut_calls_text(conversation.cut_calls))
        await self._log.write(RESULTS, {"summary": "\n".join(lines)})

    async def give_up_calls(self) -> None:
        """End the calls that an earlier agent of this conversation left over, without a run."""
        for call in self._log.conversation.calls:
            if call.ended is not None or call.began:
                continue
            if call.name == STRUCTURED_OUTPUT:
                # The answer with which the earlier agent ended.
                received = {"ok": True, "content": "Received.", "name": call.name}
                await self._log.write(TOOL_ENDED, {"id": call.id, **received})
            else:
                await self._end_without_run(
                    call,
                    "This call did not run: the agent was cut off before it began.",
                    "did not run",
                )
        await self.resolve({})

    async def _run_the_rest(self) -> None:
        calls = self._log.conversation.calls
        for position, call in enumerate(calls, 1):
            named = self._named_positions(call)
            is_earlier = (isinstance(each, int) and 0 < each < position for each in named)
            if call.ended is None and not all(is_earlier):
                why = (
                    f"refused: {_NEEDS_CALLS} may hold the positions of calls before this one, "
                    f"which is call {position} of its turn"
                )
                await self._end_without_run(call, why, "refused")
        for call in calls:
            if call.ended is None and self._unmet_need(call) is not None:
                await self._skip(call)
        fresh = [call for call in calls if call.ended is None]
        if not fresh:
            return
        recorder = _OutputRecorder(self._log, self._clock)
        try:
            await run_batch(
                [self._batch_call(call) for call in fresh],
                context=self._context,
                limit=self._settings.tools_at_once,
                began=self._on_began,
                ended=self._on_ended,
                on_output=recorder.add,
                printing=self._history,
                clock=self._clock,
            )
        finally:
            await recorder.close()

    def _batch_call(self, call: TurnToolCall) -> BatchCall:
        tool = self._tools.get(call.name)
        arguments = dict(call.arguments)
        if tool is None or _can_name_needs(tool.input_schema):
            arguments.pop(_NEEDS_CALLS, None)
        # What ended well before does not have to be waited for.
        needed = self._needed_calls(call).values()
        needs = tuple(each.id for each in needed if each.ended is None)
        tool = tool or MissingTool(call.name, tuple(self._tools))
        return BatchCall(call.id, tool, arguments, needs=needs)

    def _named_positions(self, call: TurnToolCall) -> list[object]:
        """What the call names, valid or not; nothing where the argument is the tool's own."""
        tool = self._tools.get(call.name)
        if tool is not None and not _can_name_needs(tool.input_schema):
            return []
        named = call.arguments.get(_NEEDS_CALLS)
        return named if isinstance(named, list) else []

    def _needed_calls(self, call: TurnToolCall) -> dict[int, TurnToolCall]:
        named = self._named_positions(call)
        calls = enumerate(self._log.conversation.calls, 1)
        return {position: each for position, each in calls if position in named}

    def _unmet_need(self, call: TurnToolCall) -> int | None:
        """The position of a needed call that has ended badly."""
        for position, needed in self._needed_calls(call).items():
            if needed.ended is not None and not needed.ended.get("ok"):
                return position
        return None

    async def _skip(self, call: TurnToolCall) -> None:
        unmet = self._unmet_need(call) or "?"
        why = f"skipped: it needs call {unmet} of this turn, which did not succeed"
        await self._end_without_run(call, why, "", skipped=why)

    async def _end_without_run(
        self, call: TurnToolCall, why: str, ended_by: str, **more: object
    ) -> None:
        # Like any other result it begins with the call that it answers.
        content = f"[{self._batch_call(call).label.what}] {why}"
        end = {"ok": False, "content": content, "name": call.name, "ended_by": ended_by, **more}
        await self._log.write(TOOL_ENDED, {"id": call.id, **end})

    async def _on_began(self, call: BatchCall) -> None:
        await self._log.write(TOOL_BEGAN, {"id": call.id, "name": call.tool.name})

    async def _on_ended(self, call: BatchCall, result: CallResult) -> None:
        if result.skipped_because is not None:
            # In the same words as when the needed call had failed in an earlier process.
            await self._skip(next(c for c in self._log.conversation.calls if c.id == call.id))
            return
        begins = self._clock.wall() - result.seconds
        self._ran.add(ToolRun(call.tool.name, begins, result.seconds, result.ok, result.ended_by))
        text = self._clipped(result.for_model)
        end: JsonObject = {
            "id": call.id,
            "ok": result.ok,
            "content": [{"type": "text", "text": text}, *result.blocks] if result.blocks else text,
            "name": result.name or call.tool.name,
            "ended_by": result.ended_by,
        }
        await self._log.write(TOOL_ENDED, end)

    def _clipped(self, text: str) -> str:
        clipped = ClippedOutput(self._settings.room_for_result(len(self._log.conversation.calls)))
        clipped.add(text)
        return clipped.text


def _can_name_needs(schema: Mapping[str, object]) -> bool:
    """Whether the argument can be ours: the input is an object that does not have it yet."""
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict | None):
        return False
    return _NEEDS_CALLS not in (properties or {})
