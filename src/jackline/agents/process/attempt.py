"""Run one process of an agent program: what it says goes to the notebook, what it costs to the run.

Laws: (1) its mark is durable before it is given its prompt; (2) after each answer that calls tools
leave is asked for the call that follows, and a refusal ends the process there, once the tools of
that answer are done; (3) tokens are counted once, however often they are told.
Not here: what follows from the verdict (carrying.py).
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, replace

from jackline.agents.messages.structured import StructuredAnswer
from jackline.agents.outcome import Ending, Usage
from jackline.agents.ports import Leave, Notebook, StopAgentError
from jackline.agents.process.child import Child, started
from jackline.agents.process.history import (
    ANSWER,
    BEGAN,
    ENDED,
    RESULT,
    STARTED,
    History,
    beyond,
    usage_to,
)
from jackline.agents.process.program import (
    Answered,
    Began,
    Ear,
    Ended,
    News,
    Order,
    Program,
    Resulted,
    Spent,
)
from jackline.agents.process.verdict import Broken, Done, Incomplete, Verdict
from jackline.agents.task import AgentTask, JsonObject
from jackline.agents.time_limit import within
from jackline.clock import Clock

_KEPT_TEXT = 200_000
_KEPT_RESULT = 4_000
_TOOLS_MAY_TAKE_S = 30.0
# What stays so until somebody acts; a machine that is short of something is another matter.
_NOT_RUNNABLE = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR)


class Attempt:
    """One process."""

    def __init__(
        self,
        program: Program,
        task: AgentTask,
        notebook: Notebook,
        leave: Leave,
        history: History,
        answer: StructuredAnswer | None,
    ) -> None:
        self._program = program
        self._task = task
        self._notebook = notebook
        self._leave = leave
        self._history = history
        self._answer = answer
        self._heard: dict[str, tuple[str, Usage]] = {}
        self._next_call = asyncio.Event()
        self._under_way: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, prompt: str, order: Order, clock: Clock) -> Verdict:
        """What it came to."""
        # A long session's records take a while to read, and other agents share this loop.
        ear = await asyncio.to_thread(self._program.ear, self._task, order.session_id)
        with self._program.start(self._task, order) as start:
            async with AsyncExitStack() as stack:
                running = started(
                    start.command, cwd=self._task.cwd, environment=start.environment, clock=clock
                )
                try:
                    child = await stack.enter_async_context(running)
                except OSError as error:
                    return _cannot_start(start.command[0], self._task, error)
                counted = None if ear.counted is None else usage_to(ear.counted)
                await self._write(STARTED, {**asdict(child.mark), "counted": counted})
                child.give(prompt)
                try:
                    await within(self._leave.time_limit, self._until_its_end(child, ear))
                except StopAgentError as stop:
                    await stack.aclose()
                    await self._write(ENDED, {"verdict": "Stopped", "says": stop.evidence.says})
                    raise
                ended = Ended(child.exit_code, child.last_errors)
        verdict = self._checked(ear.judge(ended, now=clock.now()))
        await self._settle(verdict, ended, await asyncio.to_thread(ear.spent))
        return verdict

    def _checked(self, verdict: Verdict) -> Verdict:
        """The same, unless the answer is not what the schema asks for."""
        if self._answer is None or not isinstance(verdict, Done):
            return verdict
        given = verdict.given
        if not isinstance(given, dict):
            says = "it gave no structured answer"
            return Incomplete(self._program.asks_again(None), says, raw=verdict.text)
        fault = self._answer.fault(given)
        if fault is None:
            return replace(verdict, given=self._answer.value(given))
        people = self._answer.fault_for_people(given)
        return Incomplete(
            self._program.asks_again(fault),
            f"its answer is not what the schema asks for: {people}",
            raw=json.dumps(self._answer.value(given), ensure_ascii=False),
        )

    async def _until_its_end(self, child: Child, ear: Ear) -> None:
        hearing = asyncio.create_task(self._hear_all(child, ear))
        asking = asyncio.create_task(self._ask_for_leave())
        try:
            done, _ = await asyncio.wait((hearing, asking), return_when=asyncio.FIRST_COMPLETED)
            # An answer that came counts, also when leave for another call was refused meanwhile.
            (hearing if hearing in done else asking).result()
        finally:
            for task in (hearing, asking):
                task.cancel()
            await asyncio.gather(hearing, asking, return_exceptions=True)

    async def _hear_all(self, child: Child, ear: Ear) -> None:
        async for piece in child.pieces():
            for news in ear.feed(piece):
                await self._take(news)

    async def _ask_for_leave(self) -> None:
        """Ask for each call but the first; returns never, raises when it may call no more."""
        while True:
            await self._next_call.wait()
            self._next_call.clear()
            try:
                await self._leave.before_call(works_meanwhile=True)
            except StopAgentError:
                # What it has begun may end: half a tool is worse than a call that is cut at once.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TOOLS_MAY_TAKE_S):
                        await self._idle.wait()
                raise

    async def _take(self, news: News) -> None:
        if isinstance(news, Began):
            known = (self._history.session_id, self._history.model)
            if known != (news.session_id, news.model or known[1]):
                await self._write(BEGAN, {"session": news.session_id, "model": news.model})
            return
        if isinstance(news, Resulted):
            await self._write(RESULT, {"id": news.call_id, "text": news.text[:_KEPT_RESULT]})
            self._under_way.discard(news.call_id)
            if not self._under_way:
                self._idle.set()
            return
        await self._write(ANSWER, _as_entry(news))
        name = news.id or f"without id, {len(self._heard)}"
        if name not in self._heard:
            self._heard[name] = (news.model, news.usage)
            self._leave.spent(news.model, news.usage)
        if news.calls and news.agent is None:
            self._under_way |= {call.id for call in news.calls if call.id}
            if self._under_way:
                self._idle.clear()
            self._next_call.set()

    async def _settle(self, verdict: Verdict, ended: Ended, spent: Spent) -> None:
        data: JsonObject = {
            "verdict": type(verdict).__name__,
            "says": getattr(verdict, "says", ""),
            "exit_code": ended.exit_code,
            "cost": spent.cost,
            "turns": spent.turns,
        }
        if spent.usage is not None:
            total = sum((usage for _, usage in spent.usage), Usage())
            data["usage"] = usage_to(_with_hours(total, self._heard.values()))
            for model, rest in _untold(spent.usage, self._heard.values()):
                self._leave.spent(model, rest)
        await self._write(ENDED, data)

    async def _write(self, kind: str, data: JsonObject) -> None:
        await self._notebook.write(kind, data)
        self._history.take(kind, data)


def _as_entry(news: Answered) -> JsonObject:
    return {
        "id": news.id,
        "model": news.model,
        "usage": usage_to(news.usage),
        "text": news.text[:_KEPT_TEXT],
        "calls": [{"id": call.id, "name": call.name, "input": call.given} for call in news.calls],
        "request": news.request_id,
        "agent": news.agent,
    }


def _untold(
    totals: Sequence[tuple[str, Usage]], heard: Iterable[tuple[str, Usage]]
) -> Iterator[tuple[str, Usage]]:
    """What each model cost beyond what was told as it came."""
    told: dict[str, Usage] = {}
    for model, usage in heard:
        told[_plain(model)] = told.get(_plain(model), Usage()) + usage
    known = {_plain(model) for model, _ in totals}
    # An answer may name its model otherwise than the bill does; it is not to be paid for twice.
    strange = sum((usage for model, usage in told.items() if model not in known), Usage())
    for model, usage in totals:
        rest = beyond(usage, told.get(_plain(model), Usage()))
        unbilled, strange = beyond(rest, strange), beyond(strange, rest)
        if unbilled.total:
            yield model, unbilled


def _with_hours(total: Usage, heard: Iterable[tuple[str, Usage]]) -> Usage:
    """The bill with what is kept for an hour, which bills of clients do not tell apart."""
    hours = sum(usage.cache_write_1h_tokens for _, usage in heard)
    hours = min(total.cache_write_tokens, max(hours, total.cache_write_1h_tokens))
    return replace(total, cache_write_1h_tokens=hours)


def _plain(model: str) -> str:
    """A model's name without its context option."""
    return model.partition("[")[0]


def _cannot_start(program: str, task: AgentTask, error: OSError) -> Broken:
    if not task.cwd.is_dir():
        says = f"its folder {task.cwd} does not exist: create it, or name another `cwd`"
    elif error.errno == errno.E2BIG:
        says = "its schema is too long for a command line: ask for less at once"
    elif error.errno in _NOT_RUNNABLE:
        says = f"{program} cannot be run ({error.strerror}): install it, or put it on the PATH"
    else:
        return Broken(f"{program} could not be started: {error.strerror or type(error).__name__}")
    return Broken(says, Ending.REFUSED)
