"""Run the tool calls of one turn, with each start, output and end in the log.

Rules: (1) a call's start is durable before it runs, and its end before anybody sees the result; (2)
a call that an earlier process started and did not end does not run again: the model learns that it
may or may not have run, and its output so far; (3) results are in the order of the calls, each with
its id, with one line about failures; (4) output of a running tool is logged after a quarter of a
second at the latest, up to a bounded size.
Not here: running calls side by side (batches/), which calls there are (conversation.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jackline.agents.messages.conversation import (
    RESULTS,
    TOOL_BEGAN,
    TOOL_ENDED,
    TOOL_OUTPUT,
    AgentConversation,
    ConversationLog,
    TurnToolCall,
)
from jackline.agents.messages.next_move import cut_in_words
from jackline.agents.messages.request import (
    NEEDS_CALLS,
    STRUCTURED_OUTPUT,
    MessagesSettings,
    is_nonsense,
    named_positions,
    own_arguments,
)
from jackline.agents.runner import JsonObject, ToolRun, ToolRuns
from jackline.batches.batch import OutputHistory, run_batch
from jackline.batches.tool import (
    BatchCall,
    BatchReport,
    CallResult,
    ClippedOutput,
    Tool,
    ToolContext,
    ToolFailedError,
    ToolOutput,
    label_for,
)
from jackline.clock import Clock

_SOON = 0.25
_MOST_PER_CALL = 64 * 1024


class OutputRecorder:
    """Gathers the output of the calls of one batch."""

    def __init__(self, log: ConversationLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._waiting: dict[str, list[str]] = {}
        self._jotted: dict[str, int] = {}
        self._flushing: asyncio.Task[None] | None = None

    def heard(self, call_id: str, text: str) -> None:
        """A call printed this."""
        room = _MOST_PER_CALL - self._jotted.get(call_id, 0)
        if room <= 0 or not text:
            return
        self._jotted[call_id] = self._jotted.get(call_id, 0) + len(text)
        self._waiting.setdefault(call_id, []).append(text[:room])
        if self._flushing is None:
            self._flushing = asyncio.ensure_future(self._flush_soon())

    async def close(self) -> None:
        """Jot down the rest."""
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
        running = {call.id for call in self._log.talk.calls if call.ended is None}
        for call_id, pieces in waiting.items():
            if call_id in running:
                self._log.jot(TOOL_OUTPUT, {"id": call_id, "text": "".join(pieces)})


_UNSURE = (
    "This call was cut off while it was running: it may or may not have run to its end. It was "
    "not run again. Check what it has done before you repeat it."
)
_NEVER_RAN = "This call did not run: the agent was cut off before it began."


@dataclass(slots=True)
class ToolTurn:
    """Runs the tools of an agent's turns."""

    log: ConversationLog
    tools: Mapping[str, Tool]
    context: ToolContext
    settings: MessagesSettings
    clock: Clock
    ran: ToolRuns = field(default_factory=ToolRuns)
    printing: OutputHistory = field(default_factory=OutputHistory)

    async def resolve(self, settled: Sequence[tuple[str, JsonObject]] = ()) -> None:
        """Give every call of the last answer its result; `settled` are those that need no run."""
        talk = self.log.talk
        answers = dict(settled)
        for call in list(talk.calls):
            if call.ended is not None:
                continue
            if call.id in answers:
                await self._end(call.id, answers[call.id])
            elif call.began:
                await self._end(call.id, self._echoing(call, _unsure(call, self._room)))
        await self._run_the_rest(talk)
        await self._seal(talk)

    async def give_up_calls(self) -> None:
        """Settle what an earlier agent of this conversation had left over, without running it."""
        left = [call for call in self.log.talk.calls if call.ended is None and not call.began]
        await self.resolve([(call.id, self._left_over(call)) for call in left])

    def _left_over(self, call: TurnToolCall) -> JsonObject:
        if call.name == STRUCTURED_OUTPUT:
            # The answer with which the earlier agent ended.
            return {"ok": True, "content": "Received.", "name": call.name}
        told = {"ok": False, "content": _NEVER_RAN, "name": call.name, "ended_by": "did not run"}
        return self._echoing(call, told)

    async def _run_the_rest(self, talk: AgentConversation) -> None:
        needs = {call.id: self._needs_of(call) for call in talk.calls}
        for position, call in enumerate(talk.calls, 1):
            if call.ended is None and is_nonsense(self._named(call), position):
                await self._end(call.id, self._echoing(call, _refused(call, position)))
        for call in talk.calls:
            if call.ended is None and (unmet := _unmet(needs[call.id], talk.calls)):
                await self._end(call.id, self._echoing(call, _skipped(call, unmet)))
        fresh = [call for call in talk.calls if call.ended is None]
        if not fresh:
            return
        ids = {call.id for call in fresh}
        calls = [self._batch_call(call, needs[call.id], ids) for call in fresh]
        jotter = OutputRecorder(self.log, self.clock)
        try:
            await run_batch(
                calls,
                context=self.context,
                limit=self.settings.tools_at_once,
                began=self._began,
                ended=self._ended,
                heard=jotter.heard,
                printing=self.printing,
                clock=self.clock,
            )
        finally:
            await jotter.close()

    def _batch_call(self, call: TurnToolCall, needs: Sequence[str], fresh: set[str]) -> BatchCall:
        arguments = own_arguments(call, self.tools.get(call.name))
        tool = self.tools.get(call.name) or _NoSuchTool(call.name, tuple(self.tools))
        # What ended well before does not have to be waited for.
        waits = tuple(need for need in needs if need in fresh)
        return BatchCall(call.id, tool, arguments, needs=waits)

    def _named(self, call: TurnToolCall) -> list[object]:
        return named_positions(call, self.tools.get(call.name))

    def _needs_of(self, call: TurnToolCall) -> tuple[str, ...]:
        """The ids of the calls that it names by their positions."""
        calls = self.log.talk.calls
        positions = [each for each in self._named(call) if isinstance(each, int)]
        return tuple(calls[each - 1].id for each in positions if 0 < each <= len(calls))

    def _echoing(self, call: TurnToolCall, data: JsonObject) -> JsonObject:
        """A result that no run has given, with what it answers before it, like any other's."""
        what = label_for(self._batch_call(call, (), set())).what
        return {**data, "content": f"[{what}] {data['content']}"}

    @property
    def _room(self) -> int:
        return self.settings.room_for_result(len(self.log.talk.calls))

    async def _began(self, call: BatchCall) -> None:
        await self.log.write(TOOL_BEGAN, {"id": call.id, "name": call.tool.name})

    async def _ended(self, call: BatchCall, result: CallResult) -> None:
        if result.skipped_because is not None:
            calls = self.log.talk.calls
            skipped = next(each for each in calls if each.id == call.id)
            # In the same words as when the needed call had failed in an earlier process.
            unmet = _unmet(self._needs_of(skipped), calls) or "?"
            await self._end(call.id, self._echoing(skipped, _skipped(skipped, unmet)))
            return
        begins = self.clock.wall() - result.seconds
        self.ran.add(ToolRun(call.tool.name, begins, result.seconds, result.ok, result.ended_by))
        text = _clipped(result.for_model, self._room)
        content: object = text
        if result.blocks:
            content = [{"type": "text", "text": text}, *result.blocks]
        data: JsonObject = {
            "ok": result.ok,
            "content": content,
            "name": result.name or call.tool.name,
            "ended_by": result.ended_by,
        }
        await self._end(call.id, data)

    async def _end(self, call_id: str, data: JsonObject) -> None:
        await self.log.write(TOOL_ENDED, {"id": call_id, **data})

    async def _seal(self, talk: AgentConversation) -> None:
        lines = []
        report = BatchReport(tuple(_result(call) for call in talk.calls))
        if not report.ok and len(report) > 1:
            lines.append(report.headline)
        if talk.cut_calls:
            lines.append(cut_in_words(talk.cut_calls))
        await self.log.write(RESULTS, {"summary": "\n".join(lines)})


class _NoSuchTool:
    """Stands for a tool that the model invented."""

    input_schema: JsonObject = {"type": "object"}  # noqa: RUF012 -- the protocol's shape
    description = ""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self._known = known

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- the protocol's shape
        """It changes nothing."""
        return True

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        """Say which tools there are."""
        known = ", ".join(self._known) or "none"
        raise ToolFailedError(
            f"there is no tool {self.name}; the tools are: {known}", ended_by="no such tool"
        )


def _unmet(needs: Sequence[str], calls: Sequence[TurnToolCall]) -> str | None:
    """The position of a needed call that has ended badly."""
    for position, call in enumerate(calls, 1):
        if call.id in needs and call.ended is not None and not call.ended.get("ok"):
            return str(position)
    return None


def _refused(call: TurnToolCall, position: int) -> JsonObject:
    why = (
        f"refused: {NEEDS_CALLS} may hold the positions of calls before this one, which is call "
        f"{position} of its turn"
    )
    return {"ok": False, "content": why, "name": call.name, "ended_by": "refused"}


def _skipped(call: TurnToolCall, unmet: str) -> JsonObject:
    why = f"skipped: it needs call {unmet} of this turn, which did not succeed"
    return {"ok": False, "content": why, "name": call.name, "ended_by": "", "skipped": why}


def _unsure(call: TurnToolCall, longest: int) -> JsonObject:
    printed = _clipped("".join(call.output), longest)
    so_far = f"It had printed so far:\n{printed}" if printed else "It had printed nothing yet."
    return {
        "ok": False,
        "content": f"{_UNSURE} {so_far}",
        "name": call.name,
        "ended_by": "may or may not have run",
    }


def _result(call: TurnToolCall) -> CallResult:
    ended = call.ended or {}
    skipped = ended.get("skipped")
    return CallResult(
        id=call.id,
        what=call.name,
        ok=bool(ended.get("ok")),
        name=str(ended.get("name") or call.name),
        ended_by=str(ended.get("ended_by") or ""),
        skipped_because=None if skipped is None else str(skipped),
    )


def _clipped(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    kept = ClippedOutput(longest)
    kept.add(text)
    return kept.text
