"""Run one agent of a flow to its outcome: answered from the store, or begun, retried and saved.

Rules: (1) a finished agent is never started again; (2) its end is saved before its hooks run, and
those have run before the flow gets the outcome; (3) an agent that the flow's own code cancels
ends as `cancelled`; an agent that is interrupted with its run has not ended: it is resumed later;
(4) crashes, tool faults and outages are retried, in the same log; what would end alike is not;
(5) agents of a low class wait while the account's window is nearly used up, unless they have
begun; (6) an agent that a person cancels while no process runs it ends from what is saved of it:
its usage stays counted, and only its own clean-up runs; (7) events of an end are the same
wherever it was made; (8) an agent that continues another sees that one's lines before its own,
back to the first, writes none of them and sees none that came later.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import AgentTask, StopAgentError, within
from jackline.budgets.budget import Account
from jackline.errors import (
    BadArgumentError,
    JacklineError,
    JournalError,
    LeaseLostError,
    UsageError,
)
from jackline.flows.agent_spec import OWN_LOOP, AgentSpec, tools_for
from jackline.flows.execution.accounting import AgentAccounting
from jackline.flows.execution.agent_cancellation import (
    AgentCancelledError,
    CancelHandle,
    cancelled_by_person,
)
from jackline.flows.execution.call_gate import AgentCallGate
from jackline.flows.execution.execution import CURRENT, FlowScope
from jackline.flows.execution.gate import Ticket
from jackline.flows.execution.work_time import Deadline, TimeLimits
from jackline.flows.records import (
    CallKind,
    CallRecord,
    CallState,
    decode_outcome,
    encode_kept_beside,
    encode_outcome,
    session_id_of,
)
from jackline.flows.run_events import AgentBegan, AgentReplayed, AgentWaits
from jackline.flows.store.agent_log import (
    ContinuedAgent,
    StoredAgentLog,
    conversation,
    first_start_in,
)
from jackline.flows.store.run_store import how_to_accept
from jackline.flows.values import UnfitValueError, plain_json
from jackline.user_errors import error_texts

_RETRIED = frozenset({Ending.CRASH, Ending.TOOL_ERROR, Ending.OUTAGE, Ending.RATE_LIMIT})
_CUT_OFF = frozenset({Ending.CRASH, Ending.CANCELLED})
_FIRST_WAIT = 5.0
_LOOK_AGAIN = 60.0


def _what_happened(before: CallRecord | Outcome[Any] | None) -> str:
    """What cut the last attempt off, for the agent that continues; empty when there was none."""
    if isinstance(before, CallRecord):
        if before.state is CallState.RUNNING:
            return "The process that ran you ended before you were done."
        before = decode_outcome(before.outcome) if before.outcome and before.started_at else None
    if before is None:
        return ""
    says = before.evidence.says
    return f"Your last attempt ended by {before.terminated_by.value}{': ' + says if says else '.'}"


class AgentExecution:
    """One agent of one execution."""

    def __init__(self, spec: AgentSpec, scope: FlowScope) -> None:
        self._spec = spec
        self._scope = scope
        self._run = scope.run
        run = self._run
        name = spec.runner or run.settings.runner
        if name not in run.runners:
            names = ", ".join(sorted(run.runners)) or "none"
            raise BadArgumentError(
                f"There is no runner {name!r}.", hint=f"Choose one of these: {names}."
            )
        self._runner = run.runners[name]
        key = spec.key()
        occurrence, self._known, task_id = run.identify(key)
        known = self._known
        self._call = CallRecord(
            run.run_id,
            key,
            occurrence,
            CallKind.AGENT,
            known.label if known else spec.label or run.next_label(scope.phase, "agent"),
            scope.phase,
            task_id,
            CallState.RUNNING,
            attempts=known.attempts + 1 if known else 1,
            # What it had cost is saved already.
            tokens=known.tokens if known else 0,
            cost=known.cost if known else 0.0,
        )
        self._end_id = ""
        self._started_at = run.clock.wall()
        self._deadline: Deadline | None = None

    async def outcome(self) -> Outcome[Any]:
        """How it ended; from the store, when it is there."""
        accounting = self._run.accounting
        # Before it waits for anything, so that nobody else gets what it has used.
        accounting.recall(self._scope.account, self._call.task_id)
        run, known = self._run, self._known
        if known is not None and run.answers_from_store(known):
            outcome = known.decoded_outcome()
            if known.state is CallState.DONE:
                outcome = replace(outcome, value=self._spec.shape.decode(known.value or b"null"))
            run.count_agent(outcome, replayed=True)
            run.emit(AgentReplayed(run.clock.wall(), known.task_id, known.label, self._scope.phase))
            return outcome
        if self._scope.account.parent is not None and accounting.past:
            # A child flow knows what its calls have used once it has come to them: let those come
            # that are called with this one, before it uses what is theirs.
            await asyncio.sleep(0)
        self._deadline = await self._find_deadline()
        ticket = run.gate.ticket()
        cancellable = run.cancellations.cancellable(self._call.label, self._call.task_id)
        try:
            with run.running_call(), cancellable as handle:
                return await self._in_turn(ticket, handle)
        finally:
            run.gate.done(ticket)

    async def _in_turn(self, ticket: Ticket, handle: CancelHandle) -> Outcome[Any]:
        async with AsyncExitStack() as stack:
            try:
                with handle.interruptible():
                    await within(self._deadline, self._queued(stack, ticket))
            except StopAgentError as stop:
                return await self._never_began(stop.ending, stop.evidence)
            except AgentCancelledError:
                return await self._run.shielded(self._cancelled_before_start(handle.ordered))
            return await self._started(ticket, handle)

    async def _queued(self, stack: AsyncExitStack, ticket: Ticket) -> None:
        """Returns when its turn has come; the slot is released with the stack."""
        # A tool of an agent that holds a slot called it: waiting could be for ever.
        if not self._scope.task_id:
            slot = self._run.slot(process=self._runner.name != OWN_LOOP)
            await stack.enter_async_context(slot)
        # Before the gate: a stopping run does not wait for those that have not begun.
        run, call, reserve = self._run, self._call, self._run.settings.reserve
        if reserve is not None and self._spec.class_ in reserve.classes:
            # The part of the window that is left is reserved for other classes.
            while (used := await run.host.window_used()) is not None:
                now, (share, resets_at) = run.clock.wall(), used
                if share < reserve.share or resets_at <= now:
                    break
                why = (
                    f"{share:.0%} of the account's window is used, and the rest is kept for others"
                )
                run.emit(AgentWaits(now, call.task_id, call.label, why, resets_at))
                await run.clock.sleep(min(_LOOK_AGAIN, resets_at - now))
            run.emit(AgentWaits(run.clock.wall(), call.task_id, call.label, "", None))
        await run.gate.enter(ticket)

    async def _find_deadline(self) -> Deadline | None:
        """Its deadline; one in seconds counts from its first start, in whatever process."""
        run, deadline = self._run, self._spec.deadline
        if deadline is None:
            return None
        if isinstance(deadline, datetime):
            return Deadline(run.clock, deadline.timestamp())
        if self._known is not None:
            first = first_start_in(await run.engine.entries(self._call.task_id))
            self._started_at = self._started_at if first is None else first
        return Deadline(run.clock, self._started_at + deadline)

    # --- begun --------------------------------------------------------------------------------

    async def _started(self, ticket: Ticket, handle: CancelHandle) -> Outcome[Any]:
        run, spec = self._run, self._spec
        name = f"The agent {self._call.label}"
        account = run.accounting.open_account(name, spec.budget, self._scope.account)
        refused = run.accounting.begin_agent(self._scope.account, self._call.task_id)
        if refused is not None:
            return await self._never_began(refused.ending, refused.evidence)
        call = self._call = replace(self._call, started_at=run.clock.wall())
        if spec.on_end:
            self._end_id = await run.hooks.promise(call.task_id, spec.on_end)
        await run.begin(call)
        run.emit(
            AgentBegan(
                call.started_at,
                call.task_id,
                call.label,
                call.phase,
                self._runner.name,
                spec.model or run.settings.model,
                call.attempts,
            )
        )
        try:
            with handle.interruptible():
                outcome = await self._run_runner(ticket, account)
        except AgentCancelledError:
            outcome = Outcome(
                Ending.CANCELLED, evidence=cancelled_by_person(run.run_id, handle.ordered)
            )
        except asyncio.CancelledError:
            if run.interruption is None or not run.interruption.keeps_agents:
                evidence = Evidence(
                    says="The flow cancelled it: by a timeout, in a group, or as it ended."
                )
                # The cancellation has come, and the end must be saved nevertheless.
                await run.shielded(self._ended(Outcome(Ending.CANCELLED, evidence=evidence)))
            raise
        return await run.shielded(self._ended(outcome))

    async def _run_runner(self, ticket: Ticket, account: Account) -> Outcome[Any]:
        run, call, spec = self._run, self._call, self._spec
        log = StoredAgentLog(run.engine, run.claim, call.task_id, run.clock)
        is_timed = spec.timeout is not None or account.limits_seconds
        held = partial(self._held, call.task_id) if is_timed else None
        model = spec.model or run.settings.model
        agent = run.accounting.start_agent(call, account, log, held, model)
        try:
            session_id = session_id_of(call.task_id)
            await log.open(session_id)
            earlier = await self._continue(log)
            if isinstance(spec.deadline, float):
                log.started(self._started_at)
            agent.count_earlier()
            task = self._task(session_id, earlier)
            own = None if spec.budget is None else spec.budget.seconds
            limits = [limit for limit in (spec.timeout, own) if limit is not None]
            time_limits = None
            if limits or self._deadline is not None:
                least = min(limits, default=None)
                time_limits = TimeLimits(run.clock, agent.work, least, self._deadline)
            call_gate = AgentCallGate(run, call, ticket, agent, time_limits)
            if spec.cwd is not None and not await asyncio.to_thread(task.cwd.is_dir):
                # No refusal, so that the agent continues once its folder is back.
                says = f"Its folder {task.cwd} is not there."
                return Outcome(Ending.CRASH, evidence=Evidence(says=says))
            return await self._attempts(task, agent, call_gate, ticket)
        except StopAgentError as stop:
            return Outcome(stop.ending, evidence=stop.evidence)
        except UsageError as error:
            says, private = error_texts(error)
            return Outcome(Ending.REFUSED, evidence=Evidence(says=says, private=private))
        except JacklineError as error:
            run.lose(error)
            raise

    async def _held(self, task_id: str) -> float | None:
        reading = await self._run.host.read_task(task_id)
        return None if reading is None else reading.held

    async def _continue(self, log: StoredAgentLog) -> str | None:
        """The session that `resume=` or `continue_from=` names; its lines go before the log's own.

        BadArgumentError when there is no such session.
        """
        engine, spec = self._run.engine, self._spec
        is_own_loop = self._runner.name == OWN_LOOP
        if spec.resume is not None:
            call, session = await engine.find_session(spec.resume), spec.resume
        elif spec.continue_from is not None:
            call = await engine.find_task(spec.continue_from)
            saved = decode_outcome(call.outcome).session_id if call and call.outcome else ""
            session = saved or session_id_of(spec.continue_from if call is None else call.task_id)
        else:
            return None
        if call is None and (spec.resume is None or is_own_loop):
            raise BadArgumentError(
                f"There is no earlier agent {spec.resume or spec.continue_from} to go on with.",
                hint="Give the session id or outcome of an agent that"
                f" `jackline show {self._run.run_id}` lists.",
            )
        if call is None or (call.trusted and not is_own_loop):
            return session
        whom = log.follows or ContinuedAgent(call.task_id, len(await engine.entries(call.task_id)))
        lines = None
        if call.trusted:
            with suppress(ValueError):  # some of its lines are not ours
                lines = await conversation(engine, whom, trusted_only=True)
        if lines is None:
            raise BadArgumentError(
                f"The agent {call.task_id} was not written by this installation: it is not gone on"
                " with.",
                hint=how_to_accept(call.run_id),
            )
        log.follow(whom, lines)
        return session

    async def _attempts(
        self, task: AgentTask, agent: AgentAccounting, call_gate: AgentCallGate, ticket: Ticket
    ) -> Outcome[Any]:
        tries = 0
        while True:
            outcome = await self._once(task, agent, call_gate)
            evidence = outcome.evidence
            interruption = self._run.interruption
            if interruption is not None:
                if interruption.keeps_agents and outcome.terminated_by in _CUT_OFF:
                    # The stop itself cut it off (Ctrl-C reaches child processes, too): it has not
                    # ended. Before the closed gate it waits until the run lets go of it.
                    await self._run.gate.enter(ticket)
                return outcome
            if outcome.terminated_by is Ending.QUOTA:
                resets = evidence.resets_at
                await call_gate.park(
                    Ending.QUOTA,
                    evidence,
                    None if resets is None else resets.timestamp(),
                    needs_person=evidence.failure == "billing",
                )
            elif outcome.terminated_by in _RETRIED and tries < self._spec.retries:
                tries += 1
                wait = _FIRST_WAIT * 2.0**tries * (0.5 + self._run.host.draw())
                call_gate.waits(
                    f"{outcome.terminated_by}, tried again", self._run.clock.wall() + wait
                )
                try:
                    await within(self._deadline, self._run.clock.sleep(wait))
                except StopAgentError as stop:
                    return replace(outcome, terminated_by=stop.ending, evidence=stop.evidence)
                call_gate.waits("", None)
            elif outcome.ok:
                return outcome
            else:
                attempts = max(evidence.attempts, tries + 1)
                return replace(outcome, evidence=replace(evidence, attempts=attempts))
            task = replace(task, what_happened=_what_happened(outcome))

    async def _once(
        self, task: AgentTask, agent: AgentAccounting, call_gate: AgentCallGate
    ) -> Outcome[Any]:
        token = CURRENT.set(replace(self._scope, task_id=self._call.task_id))
        try:
            await agent.work.begin()
            try:
                outcome = await self._runner.run(task, agent.log, call_gate)
            finally:
                # Whatever ended it, nothing of it is in flight any more.
                call_gate.release()
                agent.work.end()
                if agent.is_timed:
                    agent.log.keep_time()
            await agent.work.deduct_held()
            # A runner may take a line that could not be written for its own trouble; it is ours.
            await agent.log.settle()
        except (LeaseLostError, JournalError):
            raise
        except Exception as error:  # noqa: BLE001 -- the border of one agent: the others go on
            says = f"The runner {self._runner.name} raised {type(error).__name__}."
            return Outcome(Ending.CRASH, evidence=Evidence(says=says))
        finally:
            CURRENT.reset(token)
        return outcome

    async def _ended(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Save the end, clean up, and only then let the flow know."""
        run, call = self._run, self._call
        agent = run.accounting.end_agent(call)
        if agent is not None:
            outcome = agent.with_all_used(outcome, self._scope.account)
        outcome = replace(
            outcome,
            label=call.label,
            task_id=call.task_id,
            session_id=outcome.session_id or session_id_of(call.task_id),
            duration=0.0 if agent is None else agent.work.count(),
        )
        data = None
        if not outcome.ok:
            outcome = replace(outcome, value=None)
        else:
            shape, value = self._spec.shape, outcome.value
            if value is None and shape.json_schema is None:
                value = outcome.text
            try:
                data = plain_json(value)
                outcome = replace(outcome, value=shape.decode(data))
            except UnfitValueError as error:
                says, private = error.message, error.private
                data, evidence = None, replace(outcome.evidence, says=says, private=private)
                unfit = replace(outcome, terminated_by=Ending.SCHEMA, evidence=evidence)
                outcome = replace(unfit, value=None, text=outcome.text or str(value))
        record = replace(
            call,
            state=CallState.DONE if outcome.ok else CallState.FAILED,
            value=data,
            outcome=encode_kept_beside(outcome),
            ended_at=run.clock.wall(),
            tokens=outcome.usage.total,
            cost=outcome.cost or 0.0,
            terminated_by=outcome.terminated_by.value,
        )
        await run.end(record)
        with replace(self._scope, task_id=call.task_id).entered():
            if self._end_id:
                await run.hooks.run(self._end_id, self._spec.on_end, outcome)
            await run.settle_registering()
            await run.resources.release_of_agent(call.task_id)
        run.emit_ended(call, outcome)
        run.count_agent(outcome, replayed=False)
        return outcome

    async def _never_began(self, ending: Ending, evidence: Evidence) -> Outcome[Any]:
        run, call = self._run, self._call
        outcome: Outcome[Any] = Outcome(
            ending, evidence=evidence, label=call.label, task_id=call.task_id
        )
        if self._known is None and not run.lost:
            # Saved like any other failure, so that it is shown, and `retry` finds it.
            record = replace(call, state=CallState.FAILED, outcome=encode_outcome(outcome))
            ended_at = run.clock.wall()
            await run.end(replace(record, ended_at=ended_at, terminated_by=ending.value))
        run.count_agent(outcome, replayed=False)
        run.emit_ended(call, outcome)
        return outcome

    async def _cancelled_before_start(self, name: str) -> Outcome[Any]:
        """It waited for its turn, in this process at least, and a person's order ended it."""
        if self._known is None:
            return await self._never_began(
                Ending.CANCELLED, cancelled_by_person(self._run.run_id, name)
            )
        outcome = await self._run.cancel_stored_agent(self._known, name)
        self._run.count_agent(outcome, replayed=False)
        return outcome

    def _task(self, session_id: str, resume_session: str | None) -> AgentTask:
        spec, call, run = self._spec, self._call, self._run
        budget = spec.budget
        tools, names = tools_for(spec.toolbox, self._runner.name)
        return AgentTask(
            task_id=call.task_id,
            session_id=session_id,
            prompt=spec.prompt,
            label=call.label,
            schema=spec.shape.json_schema,
            check=spec.shape.faults,
            model=spec.model or run.settings.model,
            system=spec.system,
            tools=tools,
            tool_names=names,
            mcp_servers=spec.toolbox.servers,
            cwd=Path(run.record.cwd or ".") / (spec.cwd or ""),
            max_tokens=spec.max_tokens,
            max_turns=None if budget is None else budget.turns,
            max_dollars=None if budget is None or budget.window is not None else budget.dollars,
            prices=run.host.prices,
            resume_session=resume_session,
            what_happened=_what_happened(self._known),
            class_=spec.class_,
            accepts_edits=spec.accepts_edits,
        )
