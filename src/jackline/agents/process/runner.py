"""Run an agent to its end with an agent program: start it, log its output, resume where it was cut.

Rules: (1) a process is recorded before it gets its prompt, and an earlier one of the same agent is
gone before; (2) every answer is in the log before the next piece is read; (3) after each answer
that calls tools the call gate is awaited for the next call; a refusal ends the process once the
tools of that answer are done; (4) tokens are counted once, however often they are reported; (5) at
a quota the run parks, and the same session resumes afterwards; (6) a missing answer is requested
again twice at most, and an API failure never counts as that.
Not here: what a program prints and means (claude_code/, codex/).
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, replace
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from jackline.agents.outcome import Ending, Evidence, Outcome, TokenUsage
from jackline.agents.prices import dollars, in_dollars
from jackline.agents.process.child import Child, end, is_alive, started
from jackline.agents.process.program import (
    AnswerPart,
    Broken,
    Done,
    Failed,
    Incomplete,
    ProcessCost,
    ProcessExit,
    Program,
    ProgramEvent,
    ProgramOutput,
    SavedSession,
    SessionOpened,
    StartRequest,
    ToolResulted,
    Verdict,
)
from jackline.agents.process.resume import (
    ANSWER,
    BEGAN,
    DONE,
    ENDED,
    RESULT,
    STARTED,
    History,
    ProgramToolCall,
    beyond,
    changes_on_disk,
    history_of,
    resume_prompt,
    usage_to,
)
from jackline.agents.runner import (
    TASK_VARIABLE,
    AgentLog,
    AgentTask,
    CallGate,
    JsonObject,
    StopAgentError,
    ending_of,
    evidence_of,
    within,
)
from jackline.agents.structured_answer import StructuredAnswer
from jackline.autopsy.figures import counted
from jackline.clock import Clock, SystemClock
from jackline.errors import BadArgumentError
from jackline.failures import Kind
from jackline.programs import find_program

_KEPT_TEXT = 200_000
_KEPT_RESULT = 4_000
_TOOLS_MAY_TAKE_S = 30.0
# What stays so until somebody acts; a machine that is short of something is another matter.
_NOT_RUNNABLE = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR)


class ProgramAttempt:
    """One process."""

    def __init__(
        self,
        program: Program,
        task: AgentTask,
        notebook: AgentLog,
        leave: CallGate,
        history: History,
        answer: StructuredAnswer | None,
    ) -> None:
        self._program = program
        self._task = task
        self._notebook = notebook
        self._leave = leave
        self._history = history
        self._answer = answer
        self._heard: dict[str, tuple[str, TokenUsage]] = {}
        self._next_call = asyncio.Event()
        self._under_way: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, prompt: str, order: StartRequest, clock: Clock) -> Verdict:
        """What it came to."""
        async with self._leave.process():
            return await self._run_process(prompt, order, clock)

    async def _run_process(self, prompt: str, order: StartRequest, clock: Clock) -> Verdict:
        # A long session's records take a while to read, and other agents share this loop.
        ear = await asyncio.to_thread(self._program.ear, self._task, order.session_id)
        unfollowed = await asyncio.to_thread(self._program.unfollowed, self._task.cwd)
        if unfollowed.notice:
            self._leave.warn(unfollowed.notice)
        async with AsyncExitStack() as stack:
            try:
                start = stack.enter_context(self._program.start(self._task, order, unfollowed))
            except OSError as error:
                says = f"the files for its start cannot be written: {error}"
                return Broken(says, Ending.REFUSED)
            environment = {**start.environment, TASK_VARIABLE: self._task.task_id}
            running = started(
                start.command, cwd=self._task.cwd, environment=environment, clock=clock
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
            ended = ProcessExit(child.exit_code, child.last_errors)
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

    async def _until_its_end(self, child: Child, ear: ProgramOutput) -> None:
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

    async def _hear_all(self, child: Child, ear: ProgramOutput) -> None:
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

    async def _take(self, news: ProgramEvent) -> None:
        if isinstance(news, SessionOpened):
            known = (self._history.session_id, self._history.model)
            if known != (news.session_id, news.model or known[1]):
                await self._write(BEGAN, {"session": news.session_id, "model": news.model})
            return
        if isinstance(news, ToolResulted):
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

    async def _settle(self, verdict: Verdict, ended: ProcessExit, spent: ProcessCost) -> None:
        data: JsonObject = {
            "verdict": type(verdict).__name__,
            "says": getattr(verdict, "says", ""),
            "exit_code": ended.exit_code,
            "cost": spent.cost,
            "turns": spent.turns,
        }
        if spent.usage is not None:
            total = sum((usage for _, usage in spent.usage), TokenUsage())
            data["usage"] = usage_to(_with_hours(total, self._heard.values()))
            for model, rest in _untold(spent.usage, self._heard.values()):
                self._leave.spent(model, rest)
        await self._write(ENDED, data)

    async def _write(self, kind: str, data: JsonObject) -> None:
        await self._notebook.write(kind, data)
        self._history.take(kind, data)


def _as_entry(news: AnswerPart) -> JsonObject:
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
    totals: Sequence[tuple[str, TokenUsage]], heard: Iterable[tuple[str, TokenUsage]]
) -> Iterator[tuple[str, TokenUsage]]:
    """What each model cost beyond what was told as it came."""
    told: dict[str, TokenUsage] = {}
    for model, usage in heard:
        told[_plain(model)] = told.get(_plain(model), TokenUsage()) + usage
    known = {_plain(model) for model, _ in totals}
    # An answer may name its model otherwise than the bill does; it is not to be paid for twice.
    strange = sum((usage for model, usage in told.items() if model not in known), TokenUsage())
    for model, usage in totals:
        rest = beyond(usage, told.get(_plain(model), TokenUsage()))
        unbilled, strange = beyond(rest, strange), beyond(strange, rest)
        if unbilled.total:
            yield model, unbilled


def _with_hours(total: TokenUsage, heard: Iterable[tuple[str, TokenUsage]]) -> TokenUsage:
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


MOST_ASKED_AGAIN = 2
# A process of an owner that was killed notices its closed output by itself, if it is about to end.
_LEFTOVER_PATIENCE_S = 2.0
_CUT_OFF = "The process that carried you was cut off before its end."
_LIMIT_OVER = "A usage limit of the account stopped you. It is over now."


async def carry(
    program: Program, task: AgentTask, notebook: AgentLog, leave: CallGate, clock: Clock
) -> Outcome[object]:
    """How the agent ended; goes on where the notebook and the program's own records end."""
    return await _Carrying(program, task, notebook, leave, clock).run()


class _Carrying:
    def __init__(
        self, program: Program, task: AgentTask, notebook: AgentLog, leave: CallGate, clock: Clock
    ) -> None:
        self._program = program
        self._task = task
        self._notebook = notebook
        self._leave = leave
        self._clock = clock
        self._history = history_of(notebook.entries)
        self._answer: StructuredAnswer | None = None
        self._left = SavedSession()
        self._started_at = clock.monotonic()
        self._asked_again = 0

    async def run(self) -> Outcome[object]:
        done = self._history.done
        if done is not None:
            # It had ended, and only the telling was cut off.
            self._left = await self._look_back()
            return self._outcome(Ending.COMPLETION, text=str(done["text"]), value=done["value"])
        why_not = self._program.why_not(self._task)
        if why_not is not None:
            return self._outcome(Ending.REFUSED, Evidence(says=why_not))
        try:
            if self._task.schema is not None:
                self._answer = StructuredAnswer(self._task.schema, self._task.check)
            return await self._to_the_end()
        except StopAgentError as stop:
            # It may have been stopped in the middle of its first process.
            self._left = await self._look_back()
            return self._outcome(stop.ending, stop.evidence)
        except BadArgumentError as error:
            return self._outcome(Ending.REFUSED, Evidence(says=f"{error.message} {error.next}"))

    async def _to_the_end(self) -> Outcome[object]:
        await self._end_leftover()
        self._left = await self._look_back()
        if self._task.resume_session and not self._history.begun and not self._left.session_id:
            says = (
                f"there is no record of the session {self._task.resume_session} in the home and "
                "folder that this agent runs in: run it there, or without `resume`"
            )
            return self._outcome(Ending.REFUSED, Evidence(says=says))
        prompt = await self._first_prompt()
        while True:
            self._refuse_what_is_used_up()
            await self._leave.before_call()
            verdict = await self._attempt(prompt)
            self._left = await self._look_back()
            if isinstance(verdict, Done):
                return await self._done(verdict)
            if isinstance(verdict, Broken):
                return self._outcome(verdict.ending, Evidence(says=verdict.says))
            if isinstance(verdict, Incomplete):
                if self._asked_again == MOST_ASKED_AGAIN:
                    evidence = _owed(verdict, self._asked_again + 1)
                    return self._outcome(verdict.ending, evidence, text=verdict.raw or None)
                self._asked_again += 1
                prompt = verdict.ask
                continue
            if ending_of(verdict.failure) is not Ending.QUOTA:
                return self._outcome(ending_of(verdict.failure), _evidence(verdict))
            await self._leave.wall(verdict.failure, verdict.says)
            self._left = await self._look_back()
            prompt = await self._going_on(_LIMIT_OVER)

    async def _end_leftover(self) -> None:
        mark = self._history.mark
        if mark is None:
            return
        lives = is_alive(mark)
        if lives:
            self._leave.waits("an earlier process of this agent has to end first", None)
        await end(mark, self._clock, wait_first=_LEFTOVER_PATIENCE_S)
        if lives:
            self._leave.waits("", None)

    async def _look_back(self) -> SavedSession:
        named = self._history.session_id or self._task.resume_session
        return await asyncio.to_thread(self._program.look_back, self._task, named)

    async def _first_prompt(self) -> str:
        history, task = self._history, self._task
        is_new = not (history.begun or self._left.holds_task or any(self._missing_calls()))
        if is_new and not task.what_happened:
            return self._program.task_words(task)
        if history.mark is not None or not history.last_end:
            told = _CUT_OFF if history.begun or self._left.holds_task else ""
        else:
            told = f"You were stopped before the task was done: {history.last_end}."
        return await self._going_on(task.what_happened or told)

    async def _going_on(self, what_happened: str) -> str:
        left = self._left
        holds = left.session_id is not None and left.holds_task
        on_disk = await changes_on_disk(self._task.cwd)
        words = None if holds else self._program.task_words(self._task)
        lost, finished = self._missing_calls()
        return resume_prompt(what_happened, lost, on_disk, finished=finished, task=words)

    def _missing_calls(self) -> tuple[list[ProgramToolCall], list[tuple[ProgramToolCall, str]]]:
        """The calls that the conversation lacks: without a result, and with the one that came.

        The program writes its records late, so a killed one may have done more than they hold.
        """
        left, results = self._left, self._history.results
        told = "\n".join(left.prompts)
        calls = {call.id: call for call in (*left.lost, *self._history.calls.values())}
        missing = [
            call
            for call in calls.values()
            if call.id not in left.settled and (not call.id or call.id not in told)
        ]
        return (
            [call for call in missing if call.id not in results],
            [(call, results[call.id]) for call in missing if call.id in results],
        )

    def _refuse_what_is_used_up(self) -> None:
        task, cost = self._task, self._cost()
        if task.max_turns is not None and self._history.turns >= task.max_turns:
            says = f"it may take {counted(task.max_turns, 'turn')}, and has"
            raise StopAgentError(Ending.TURNS, Evidence(says=says))
        if task.max_dollars is not None and (cost or 0.0) >= task.max_dollars:
            says = f"it may spend {in_dollars(task.max_dollars)}, and has"
            raise StopAgentError(Ending.BUDGET, Evidence(says=says))

    async def _attempt(self, prompt: str) -> Done | Incomplete | Failed | Broken:
        task, history, cost = self._task, self._history, self._cost()
        order = StartRequest(
            self._left.session_id,
            task.model or history.model,
            None if task.max_turns is None else task.max_turns - history.turns,
            None if task.max_dollars is None else task.max_dollars - (cost or 0.0),
        )
        attempt = ProgramAttempt(
            self._program, task, self._notebook, self._leave, history, self._answer
        )
        return await attempt.run(prompt, order, self._clock)

    async def _done(self, verdict: Done) -> Outcome[object]:
        value = verdict.text if self._answer is None else verdict.given
        await self._notebook.write(DONE, {"value": value, "text": verdict.text})
        return self._outcome(Ending.COMPLETION, text=verdict.text, value=value)

    def _cost(self) -> float | None:
        """What the program told, and for what it did not get to tell the listed price."""
        history = self._history
        rest = dollars(history.model or "", history.unpriced, self._task.prices)
        if history.cost is None and not rest:
            return None
        return (history.cost or 0.0) + (rest or 0.0)

    def _outcome(
        self,
        ending: Ending,
        evidence: Evidence | None = None,
        *,
        text: str | None = None,
        value: object = None,
    ) -> Outcome[object]:
        history, task = self._history, self._task
        return Outcome(
            ending,
            value,
            history.text if text is None else text,
            evidence or Evidence(),
            session_id=history.session_id or task.resume_session or task.session_id,
            task_id=task.task_id,
            label=task.label,
            usage=history.usage,
            cost=self._cost(),
            turns=history.turns,
            duration=self._clock.monotonic() - self._started_at,
            transcript=self._left.transcript,
        )


def _owed(verdict: Incomplete, times: int) -> Evidence:
    if verdict.ending is not Ending.SCHEMA:
        return Evidence(says=verdict.says, attempts=times)
    return Evidence(
        failure=Kind.MISSING_STRUCTURED_OUTPUT.value,
        sub="invalid" if verdict.raw else "absent",
        says=verdict.says,
        attempts=times,
    )


def _evidence(verdict: Failed) -> Evidence:
    return evidence_of(
        verdict.failure,
        says=verdict.says,
        status=verdict.status,
        attempts=verdict.attempts,
        request_id=verdict.request_id,
    )


class ProgramRunner:
    """Carries agents with a program; one serves any number of agents at once."""

    def __init__(self, program: Program, clock: Clock | None) -> None:
        self.name = program.name
        self._program = program
        self._clock = clock or SystemClock()

    async def carry(self, task: AgentTask, notebook: AgentLog, leave: CallGate) -> Outcome[object]:
        """How the agent ended. Goes on where the notebook and the program's own records end."""
        return await carry(self._program, task, notebook, leave, self._clock)


def found_program(
    program: str, environment: Mapping[str, str] | None
) -> tuple[str, Mapping[str, str]]:
    """The program's path, as far as it is found, and the environment it is given (ours if None)."""
    environ = dict(os.environ if environment is None else environment)
    return find_program(program, environ) or program, environ


class OutputParser(Protocol):
    """Takes in what a program prints."""

    def feed(self, data: bytes) -> Sequence[ProgramEvent]:
        """What the next piece tells."""
        ...


P = TypeVar("P", bound=OutputParser)
P_contra = TypeVar("P_contra", bound=OutputParser, contravariant=True)


class OutputVerdict(Protocol[P_contra]):
    """Judges what a program printed."""

    def __call__(
        self, printed: P_contra, ended: ProcessExit, *, schema: bool, now: datetime
    ) -> Verdict:
        """What its process came to."""
        ...


class ParsedProgramOutput(Generic[P]):
    """The part of an `Ear` that every program has: what it prints is taken in, then judged."""

    def __init__(self, printed: P, judge: OutputVerdict[P], *, schema: bool) -> None:
        self._printed = printed
        self._judge = judge
        self._schema = schema

    def feed(self, data: bytes) -> Sequence[ProgramEvent]:
        """What the next bytes tell."""
        return self._printed.feed(data)

    def judge(self, ended: ProcessExit, *, now: datetime) -> Verdict:
        """What the process came to."""
        return self._judge(self._printed, ended, schema=self._schema, now=now)
