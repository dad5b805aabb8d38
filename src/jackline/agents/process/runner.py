"""Run an agent to its end with an agent program: start it, log its output, resume where it was cut.

Rules: (1) a process is recorded before it gets its prompt, and an earlier one of the same agent is
gone before; (2) every answer is in the log before the next piece is read; (3) after each answer
that another call follows the call gate is awaited for that call; a refusal ends the process once
the tools of that answer are done; (4) what a process uses is charged by `charges.py`, however the
process ends; (5) calls that nobody admits (of sub-agents, say) take no turn, but where tokens or
dollars are used up the next one ends the process, whatever tool runs; (6) at a quota, and at a
used-up window, the run parks, and the same session resumes afterwards; (7) a missing answer is
requested again twice at most, and an API failure never counts as that.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.prices import dollars, in_dollars
from jackline.agents.process.charges import GatewayCount, ProcessCharges
from jackline.agents.process.child import Child, end, is_alive, started
from jackline.agents.process.program import (
    Broken,
    Done,
    Incomplete,
    ProcessCost,
    ProcessExit,
    ProgramEvent,
    ProgramOutput,
    SavedSession,
    SessionOpened,
    StartCommand,
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
    changes_on_disk,
    resume_prompt,
)
from jackline.agents.runner import (
    TASK_VARIABLE,
    AgentLog,
    AgentTask,
    CallGate,
    JsonObject,
    StopAgentError,
    ending_of,
    within,
)
from jackline.agents.structured_answer import StructuredAnswer
from jackline.autopsy.figures import counted
from jackline.batches.processes import OrphanGuard, guard
from jackline.clock import Clock, SystemClock
from jackline.dialects import TokenUsage
from jackline.errors import BadArgumentError
from jackline.failures import Kind
from jackline.programs import find_program
from jackline.transcripts.saved_conversation import TranscriptToolCall
from jackline.user_errors import error_texts

_LONGEST_TEXT = 200_000
_LONGEST_RESULT = 4_000
_TOOLS_MAY_TAKE_S = 30.0
# What stays so until somebody acts; a machine that is short of something is another matter.
_NOT_RUNNABLE = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR)
_MOST_REASKS = 2
_GATEWAY_COUNTS_EVERY_S = 1.0
# A process of an owner that was killed notices its closed output by itself, if it is about to end.
_LEFTOVER_PATIENCE_S = 2.0
_CUT_OFF = "The process that carried you was cut off before its end."
_LIMIT_OVER = "A usage limit of the account stopped you. It is over now."
_WINDOW_OVER = "A budget that was used up stopped you. There is room in it again."
_TAG = re.compile(r"[A-Za-z0-9._~-]{1,64}")


@dataclass(frozen=True, slots=True)
class ProgramSetup:
    """Where a program is, which gateway it calls, and its environment; no secret shows."""

    base_url: str
    program: str
    environment: Mapping[str, str] = field(repr=False)
    token: str | None = field(repr=False)
    guard: OrphanGuard


class ProgramRunner(ABC):
    """Runs agents with an agent program; one serves any number of agents at once.

    `base_url` is a gateway's, `token` what it requires of its clients, `tag` the name under which
    it counts them (a run's id). `environment` is the program's: its credentials and its home are
    found there. `guard` ends the program if this process is killed.
    """

    name: str
    usual_program: str

    def __init__(
        self,
        base_url: str,
        *,
        program: str | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        tag: str | None = None,
        token: str | None = None,
        guard: OrphanGuard = guard,
    ) -> None:
        environ = dict(os.environ if environment is None else environment)
        wanted = program or self.usual_program
        found = find_program(wanted, environ) or wanted
        tagged = f"/t/{tag}" if tag is not None and _TAG.fullmatch(tag) else ""
        self._setup = ProgramSetup(base_url.rstrip("/") + tagged, found, environ, token, guard)
        self._clock = clock or SystemClock()

    @property
    def guard(self) -> OrphanGuard:
        """What ends its programs with this process."""
        return self._setup.guard

    async def run(self, task: AgentTask, log: AgentLog, gate: CallGate) -> Outcome[object]:
        """How the agent ended; it continues where the log and the program's records end."""
        return await _ProgramAgent(self, task, log, gate, self._clock).run()

    def task_prompt(self, task: AgentTask) -> str:
        """The task as the program gets it."""
        return task.prompt

    @abstractmethod
    def reask_prompt(self, fault: str | None) -> str:
        """What to say to an agent without a structured answer, or with one that has this fault."""

    def as_text(self, prompt: str) -> str:
        """The prompt so that the program takes no part of it for a command."""
        return prompt

    @abstractmethod
    def why_not(self, task: AgentTask) -> str | None:
        """Why it cannot do this task at all, and what to do instead; None when it can."""

    @abstractmethod
    def unfollowed_notice(self, cwd: Path) -> str:
        """Which settings of this folder it does not follow, as another agent may have written them.

        It also says what to do instead; empty when nothing is lost.
        """

    @abstractmethod
    def start(self, task: AgentTask, request: StartRequest) -> AbstractContextManager[StartCommand]:
        """How to start it; files that it needs are there for as long as the block runs."""

    @abstractmethod
    def output(self, task: AgentTask, session_id: str | None) -> ProgramOutput:
        """The parser of a process that is about to be started in this session."""

    @abstractmethod
    def saved_session(self, task: AgentTask, session_id: str | None) -> SavedSession:
        """What is on disk of this session; None means the one that the task would begin."""


class _ProgramAgent:
    """One agent, over all its processes."""

    def __init__(
        self, runner: ProgramRunner, task: AgentTask, log: AgentLog, gate: CallGate, clock: Clock
    ) -> None:
        self.runner = runner
        self.task = task
        self.log = log
        self.gate = gate
        self.clock = clock
        self.history = History.from_log(log.entries)
        self._answer: StructuredAnswer | None = None
        self._saved = SavedSession()
        self._started_at = clock.monotonic()
        self._reasks = 0
        self.gateway_count = GatewayCount(gate)

    async def run(self) -> Outcome[object]:
        done = self.history.done
        if done is not None:
            # It had ended, and only the report of that was cut off.
            await self._look_back()
            return self._outcome(Ending.COMPLETION, text=str(done["text"]), value=done["value"])
        why_not = self.runner.why_not(self.task)
        if why_not is not None:
            return self._outcome(Ending.REFUSED, Evidence(says=why_not))
        try:
            if self.task.schema is not None:
                self._answer = StructuredAnswer(self.task.schema, self.task.check)
            return await self._run_processes()
        except StopAgentError as stop:
            # It may have been stopped in the middle of its first process.
            await self._look_back()
            return self._outcome(stop.ending, stop.evidence)
        except BadArgumentError as error:
            return self._outcome(Ending.REFUSED, Evidence(says=error_texts(error).brief))

    async def _run_processes(self) -> Outcome[object]:
        await self._end_leftover()
        await self._look_back()
        known = self.history.session_id or self._saved.session_id
        if self.task.resume_session and not known:
            says = (
                f"there is no record of the session {self.task.resume_session} in the home and "
                "folder that this agent runs in: run it there, or without `resume`"
            )
            return self._outcome(Ending.REFUSED, Evidence(says=says))
        prompt = await self._first_prompt()
        await self.gateway_count.look(fresh=True)
        while True:
            self._check_limits()
            await self.gate.before_call()
            try:
                verdict = await self._run_process(prompt)
            except StopAgentError as stop:
                if not stop.may_resume:
                    raise
                await self._look_back()
                prompt = await self._resume_prompt(_WINDOW_OVER)
                continue
            await self._look_back()
            if isinstance(verdict, Done):
                value = verdict.text if self._answer is None else verdict.tool_input
                await self.log.write(DONE, {"value": value, "text": verdict.text})
                return self._outcome(Ending.COMPLETION, text=verdict.text, value=value)
            if isinstance(verdict, Broken):
                evidence = Evidence(says=verdict.says, private=verdict.private)
                return self._outcome(verdict.ending, evidence)
            if isinstance(verdict, Incomplete):
                if self._reasks == _MOST_REASKS:
                    evidence = Evidence(says=verdict.says, attempts=self._reasks + 1)
                    if verdict.ending is Ending.SCHEMA:
                        kind, sub = Kind.MISSING_STRUCTURED_OUTPUT, "absent"
                        sub = "invalid" if verdict.raw else sub
                        evidence = replace(evidence, failure=kind.value, sub=sub)
                    return self._outcome(verdict.ending, evidence, text=verdict.raw or None)
                self._reasks += 1
                prompt = verdict.prompt
                continue
            if ending_of(verdict.failure) is not Ending.QUOTA:
                return self._outcome(ending_of(verdict.failure), verdict.evidence)
            await self.gate.wall(verdict.failure, verdict.says)
            await self._look_back()
            prompt = await self._resume_prompt(_LIMIT_OVER)

    async def _end_leftover(self) -> None:
        mark = self.history.mark
        if mark is None:
            return
        lives = is_alive(mark)
        if lives:
            self.gate.waits("an earlier process of this agent has to end first", None)
        await end(mark, self.clock, wait_first=_LEFTOVER_PATIENCE_S)
        if lives:
            self.gate.waits("", None)

    async def _look_back(self) -> None:
        named = self.history.session_id or self.task.resume_session
        self._saved = await asyncio.to_thread(self.runner.saved_session, self.task, named)

    async def _first_prompt(self) -> str:
        history, task = self.history, self.task
        has_begun = history.session_id is not None or self._saved.holds_task
        if not has_begun and not any(self._missing_calls()) and not task.what_happened:
            return self.runner.task_prompt(task)
        if history.mark is not None or not history.last_end:
            happened = _CUT_OFF if has_begun else ""
        else:
            happened = f"You were stopped before the task was done: {history.last_end}."
        return await self._resume_prompt(task.what_happened or happened)

    async def _resume_prompt(self, what_happened: str) -> str:
        holds_task = self._saved.session_id is not None and self._saved.holds_task
        on_disk = await changes_on_disk(self.task.cwd)
        task = None if holds_task else self.runner.task_prompt(self.task)
        lost, finished = self._missing_calls()
        return resume_prompt(what_happened, lost, on_disk, finished=finished, task=task)

    def _missing_calls(
        self,
    ) -> tuple[list[TranscriptToolCall], list[tuple[TranscriptToolCall, str]]]:
        """The calls that the conversation lacks: without a result, and with the one that came.

        The program saves its records late, so a killed one may have done more than they hold.
        """
        saved, results = self._saved.conversation, self.history.results
        prompts = "\n".join(saved.prompts)
        calls = {call.id: call for call in (*saved.lost, *self.history.calls.values())}
        missing = [
            call
            for call in calls.values()
            if call.id not in saved.results and (not call.id or call.id not in prompts)
        ]
        return (
            [call for call in missing if call.id not in results],
            [(call, results[call.id]) for call in missing if call.id in results],
        )

    def _check_limits(self) -> None:
        task, cost = self.task, self._cost()
        if task.max_turns is not None and self.history.turns >= task.max_turns:
            says = f"it may take {counted(task.max_turns, 'turn')}, and has"
            raise StopAgentError(Ending.TURNS, Evidence(says=says))
        if task.max_dollars is not None and (cost or 0.0) >= task.max_dollars:
            says = f"it may spend {in_dollars(task.max_dollars)}, and has"
            raise StopAgentError(Ending.BUDGET, Evidence(says=says))

    async def _run_process(self, prompt: str) -> Verdict:
        task, history, cost = self.task, self.history, self._cost()
        request = StartRequest(
            self._saved.session_id,
            task.model or history.model,
            None if task.max_turns is None else task.max_turns - history.turns,
            None if task.max_dollars is None else task.max_dollars - (cost or 0.0),
        )
        async with self.gate.process():
            attempt = _ProcessRun(self)
            verdict, ended, spent = await attempt.run(prompt, request)
            verdict = self._validated(verdict)
            if ended is not None:
                await attempt.log_end(verdict, ended, spent)
            return verdict

    def _validated(self, verdict: Verdict) -> Verdict:
        """The same, unless the answer does not fit the schema."""
        answer = self._answer
        if answer is None or not isinstance(verdict, Done):
            return verdict
        if not isinstance(verdict.tool_input, dict):
            says = "it gave no structured answer"
            return Incomplete(self.runner.reask_prompt(None), says, raw=verdict.text)
        value = answer.value(verdict.tool_input)
        fault = answer.fault(verdict.tool_input)
        if fault is None:
            return replace(verdict, tool_input=value)
        return Incomplete(
            self.runner.reask_prompt(fault),
            "its answer is not what the schema asks for: "
            + answer.fault_for_people(verdict.tool_input),
            raw=json.dumps(value, ensure_ascii=False),
        )

    @property
    def _rest(self) -> float | None:
        """What it cost beyond what the program reported; None where no price is listed."""
        history = self.history
        return dollars(history.model or "", history.unpriced, self.task.prices)

    def _cost(self) -> float | None:
        """What the program reported, and for the rest the listed price."""
        reported, rest = self.history.cost, self._rest
        if reported is None and rest is None:
            return None
        return (reported or 0.0) + (rest or 0.0)

    def _outcome(
        self,
        ending: Ending,
        evidence: Evidence | None = None,
        *,
        text: str | None = None,
        value: object = None,
    ) -> Outcome[object]:
        history, task = self.history, self.task
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
            unpriced=self.history.unpriced.total if self._rest is None else 0,
            turns=history.turns,
            duration=self.clock.monotonic() - self._started_at,
            transcript=self._saved.transcript,
        )


class _ProcessRun:
    def __init__(self, agent: _ProgramAgent) -> None:
        self._runner, self._task, self._clock = agent.runner, agent.task, agent.clock
        self._log, self._gate, self._history = agent.log, agent.gate, agent.history
        self._reports_each_answer = False
        self._charges = ProcessCharges(
            self._runner.name, self._task, self._gate, self._history, agent.gateway_count
        )
        self._next_call = asyncio.Event()
        self._sub_agent_answered = asyncio.Event()
        self._prints_call = False
        """Whether it was printed that a tool was called, so that a call follows."""
        self._printed_answers = self._calls_due = 0
        """How many answers the agent itself got, and how many calls followed them, or will."""
        self._last_answer: str | None = None
        self._running_tools: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(
        self, prompt: str, request: StartRequest
    ) -> tuple[Verdict, ProcessExit | None, ProcessCost]:
        """Its verdict, how it ended, unless it could not be started, and what it cost."""
        # A long session's records take a while to read, and other agents share this loop.
        output = await asyncio.to_thread(self._runner.output, self._task, request.session_id)
        notice = await asyncio.to_thread(self._runner.unfollowed_notice, self._task.cwd)
        if notice:
            self._gate.warn(notice)
        try:
            return await self._started(prompt, request, output)
        finally:
            # However it ended: the gateway has counted the calls that were cut off with it.
            await self._charges.add_gateway_count(fresh=True)

    async def _started(
        self, prompt: str, request: StartRequest, output: ProgramOutput
    ) -> tuple[Verdict, ProcessExit | None, ProcessCost]:
        async with AsyncExitStack() as stack:
            # It reads files of the folder. If this is cancelled meanwhile, the thread ends first:
            # what it has written is removed.
            manager = self._runner.start(self._task, request)
            entering = asyncio.ensure_future(asyncio.to_thread(stack.enter_context, manager))
            stack.push_async_callback(asyncio.wait, (entering,))
            try:
                start = await asyncio.shield(entering)
            except OSError as error:
                says = f"the files for its start cannot be written: {error.strerror}"
                return Broken(says, Ending.REFUSED), None, ProcessCost()
            environment = {**start.environment, TASK_VARIABLE: self._task.task_id}
            running = started(
                start.command,
                cwd=self._task.cwd,
                environment=environment,
                clock=self._clock,
                guard=self._runner.guard,
            )
            try:
                child = await stack.enter_async_context(running)
            except OSError as error:
                return self._cannot_start(start.command[0], error), None, ProcessCost()
            before = None if output.counted is None else output.counted.to_json()
            await self._write(STARTED, {**asdict(child.mark), "counted": before})
            child.send(self._runner.as_text(prompt))
            self._charges.add_input(prompt)
            self._reports_each_answer = output.reports_each_answer
            try:
                await within(self._gate.time_limit, self._follow(child, output))
            except StopAgentError as stop:
                await stack.aclose()
                await self._charges.add_gateway_count(fresh=True)
                self._charges.close()
                await self._write(ENDED, {"verdict": "Stopped", "says": stop.evidence.says})
                raise
            ended = ProcessExit(child.exit_code, child.last_errors)
        return (
            output.judge(ended, now=self._clock.now()),
            ended,
            await asyncio.to_thread(output.cost),
        )

    async def log_end(self, verdict: Verdict, ended: ProcessExit, spent: ProcessCost) -> None:
        """Log how the process ended, and count what it had not reported piece by piece."""
        data: JsonObject = {
            "verdict": type(verdict).__name__,
            "says": "" if isinstance(verdict, Done) else verdict.says,
            "exit_code": ended.exit_code,
            "turns": spent.turns,
        }
        if spent.usage is not None:
            data["usage"] = self._charges.add_bill(spent.usage).to_json()
        self._charges.close()
        # The program prices the names that an upstream prints.
        data["cost"] = None if spent.cost is None else max(spent.cost, self._charges.dollars)
        await self._write(ENDED, data)

    async def _follow(self, child: Child, output: ProgramOutput) -> None:
        reading = asyncio.create_task(self._read(child, output))
        gating = asyncio.create_task(self._gate_calls())
        counting = asyncio.create_task(self._count_calls())
        binding = asyncio.create_task(self._bind_sub_agents())
        tasks = (reading, gating, counting, binding)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # An answer that came counts, also when another call was refused meanwhile.
            next(task for task in tasks if task in done).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, child: Child, output: ProgramOutput) -> None:
        async for piece in child.pieces():
            for event in output.feed(piece):
                await self._add(event)

    async def _gate_calls(self) -> None:
        """Await the gate for each call but the first; raises when no more are allowed."""
        admitted = 0
        while True:
            await self._next_call.wait()
            self._next_call.clear()
            is_printed, self._prints_call = self._prints_call, False
            await self._charges.add_gateway_count(fresh=is_printed)
            due, answers = self._calls_due, self._charges.answers
            if answers is not None and not self._reports_each_answer:
                # What it prints does not show all calls; what the gateway answers does. The newest
                # answer is followed by a call only if it is printed that a tool was called.
                due = answers if is_printed else answers - 1
            try:
                while admitted < due:
                    admitted += 1
                    # At a used-up window the gate would wait while the program works on.
                    if (stop := await self._gate.over_budget()) is not None:
                        raise stop
                    await self._gate.before_call(works_meanwhile=True)
            except StopAgentError:
                # What it has begun may end: half a tool is worse than a call that is cut at once.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TOOLS_MAY_TAKE_S):
                        await self._idle.wait()
                raise

    async def _count_calls(self) -> None:
        """Charge what the gateway counts, and look at the limits that this may have used up."""
        seen = 0
        over: tuple[int, TokenUsage] | None = None
        while True:
            await self._clock.sleep(_GATEWAY_COUNTS_EVERY_S)
            used = await self._charges.add_gateway_count()
            answers = self._charges.answers or 0
            if answers > seen and not self._reports_each_answer:
                seen = answers
                self._next_call.set()
            stop = await self._gate.over_budget()
            if stop is None:
                over = None
            elif over is None:
                over = answers, used  # by the last answer, perhaps: that one is not undone
            elif over != (answers, used):
                raise stop

    async def _bind_sub_agents(self) -> None:
        """Look at the limits after each answer of a sub-agent, which another call follows."""
        while True:
            await self._sub_agent_answered.wait()
            self._sub_agent_answered.clear()
            await self._charges.add_gateway_count(fresh=True)
            if (stop := await self._gate.over_budget()) is not None:
                raise stop

    async def _add(self, event: ProgramEvent) -> None:
        if isinstance(event, SessionOpened):
            known = (self._history.session_id, self._history.model)
            if known != (event.session_id, event.model or known[1]):
                await self._write(BEGAN, {"session": event.session_id, "model": event.model})
            return
        if isinstance(event, ToolResulted):
            self._charges.add_input(event.text)
            await self._write(RESULT, {"id": event.call_id, "text": event.text[:_LONGEST_RESULT]})
            self._last_answer = None  # whatever its id, what comes now is of a further call
            if event.is_error:
                # A structured answer that was refused: the model is asked again.
                self._calls_due = self._printed_answers
                self._next_call.set()
            self._running_tools.discard(event.call_id)
            if not self._running_tools:
                self._idle.set()
            return
        calls = [
            {"id": call.id, "name": call.name, "input": call.shown_input} for call in event.calls
        ]
        entry: JsonObject = {
            "id": event.id,
            "model": event.model,
            "usage": event.usage.to_json(),
            "text": event.text[:_LONGEST_TEXT],
            "calls": calls,
            "request": event.request_id,
            "agent": event.agent,
        }
        await self._write(ANSWER, entry)
        self._charges.add_answer(event, reports_each_answer=self._reports_each_answer)
        if event.agent is not None:
            self._sub_agent_answered.set()
            return
        begins = event.id is None or event.id != self._last_answer
        if begins if self._reports_each_answer else event.calls:
            self._last_answer = event.id
            self._printed_answers += 1
            self._calls_due = max(self._calls_due, self._printed_answers - 1)
        if event.calls:
            self._running_tools |= {call.id for call in event.calls if call.id}
            if self._running_tools:
                self._idle.clear()
            self._prints_call = True
            self._calls_due = self._printed_answers
        self._next_call.set()

    async def _write(self, kind: str, data: JsonObject) -> None:
        await self._log.write(kind, data)
        self._history.add(kind, data)

    def _cannot_start(self, program: str, error: OSError) -> Broken:
        cwd = self._task.cwd
        if not cwd.is_dir():
            says = f"its folder {cwd} does not exist: create it, or name another `cwd`"
        elif error.errno == errno.E2BIG:
            says = "its schema is too long for a command line: ask for less at once"
        elif error.errno in _NOT_RUNNABLE:
            says = f"{program} cannot be run ({error.strerror}): install it, or put it on the PATH"
        else:
            reason = error.strerror or type(error).__name__
            return Broken(f"{program} could not be started: {reason}")
        return Broken(says, Ending.REFUSED)
