"""Carry one agent to its end with an agent program: start it, hear it, go on where it was cut off.

Laws: (1) a process is known by its mark before it is given anything to do, and an earlier one of
the same agent is gone before; (2) every answer is in the notebook before the next piece is heard;
(3) at a quota the run is told, and the same session goes on afterwards; (4) what is owed is asked
for twice at most; an API failure never counts as that.
Not here: one process (attempt.py), what the program prints and means (claude_code/, codex/).
"""

from __future__ import annotations

import asyncio

from jackline.agents.endings import ending_of, evidence_of
from jackline.agents.messages.structured import StructuredAnswer
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.ports import Leave, Notebook, StopAgentError
from jackline.agents.prices import dollars, in_dollars
from jackline.agents.process.attempt import Attempt
from jackline.agents.process.ending import end
from jackline.agents.process.going_on import ToolCall, changes_on_disk, going_on
from jackline.agents.process.history import DONE, history_of
from jackline.agents.process.marks import is_alive
from jackline.agents.process.program import LeftBehind, Order, Program
from jackline.agents.process.verdict import Broken, Done, Failed, Incomplete
from jackline.agents.task import AgentTask
from jackline.autopsy.figures import counted
from jackline.clock import Clock
from jackline.errors import BadArgumentError
from jackline.failures import Kind

MOST_ASKED_AGAIN = 2
# A process of an owner that was killed notices its closed output by itself, if it is about to end.
_LEFTOVER_PATIENCE_S = 2.0
_CUT_OFF = "The process that carried you was cut off before its end."
_LIMIT_OVER = "A usage limit of the account stopped you. It is over now."


async def carry(
    program: Program, task: AgentTask, notebook: Notebook, leave: Leave, clock: Clock
) -> Outcome[object]:
    """How the agent ended; goes on where the notebook and the program's own records end."""
    return await _Carrying(program, task, notebook, leave, clock).run()


class _Carrying:
    def __init__(
        self, program: Program, task: AgentTask, notebook: Notebook, leave: Leave, clock: Clock
    ) -> None:
        self._program = program
        self._task = task
        self._notebook = notebook
        self._leave = leave
        self._clock = clock
        self._history = history_of(notebook.entries)
        self._answer: StructuredAnswer | None = None
        self._left = LeftBehind()
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

    async def _look_back(self) -> LeftBehind:
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
        return going_on(what_happened, lost, on_disk, finished=finished, task=words)

    def _missing_calls(self) -> tuple[list[ToolCall], list[tuple[ToolCall, str]]]:
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
        order = Order(
            self._left.session_id,
            task.model or history.model,
            None if task.max_turns is None else task.max_turns - history.turns,
            None if task.max_dollars is None else task.max_dollars - (cost or 0.0),
        )
        attempt = Attempt(self._program, task, self._notebook, self._leave, history, self._answer)
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
