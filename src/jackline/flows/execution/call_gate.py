"""Admit each model call of one agent: the gate, its time limits, then a reservation of its cost.

Rules: (1) the gate comes first, then the budgets: a refused call was never sent; (2) what a call
will use is reserved before it is sent, and released when it is answered or has failed, and while it
waits at a quota limit: a parked run has no reservations; (3) a quota limit parks the whole run or,
if so ordered, ends it; (4) a used-up rolling window is waited for in the same way; (5) waiting here
is no work of the agent, unless its program works on meanwhile, and no wait outlasts its deadline;
(6) a client process is started when the host has room for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, nullcontext

from jackline.agents.outcome import Ending, Evidence
from jackline.agents.prices import dollars
from jackline.agents.runner import NextCall, StopAgentError, TimeLimit, evidence_of, within
from jackline.agents.task_meter import TaskReading
from jackline.budgets.budget import Amount, Unit
from jackline.budgets.ledger import ReservationState
from jackline.dialects import TokenUsage
from jackline.failures import Failure, Kind
from jackline.flows.execution.accounting import AgentAccounting
from jackline.flows.execution.execution import Execution, first_done
from jackline.flows.execution.gate import GateState, Ticket
from jackline.flows.execution.work_time import TimeLimits
from jackline.flows.records import CallRecord
from jackline.flows.run_events import AT_WALL, AgentAnswered, AgentWaits

WAITS_FOR_BUDGET = "calls in flight have reserved what is left of the budget"
WAITS_FOR_PROCESSES = (
    "{most} client processes of agents run already, the most at once: it is in line"
)
_ONE_TURN: Amount = {Unit.TURNS: 1}
_SENT_ALREADY: Amount = {}


class AgentCallGate:
    """Admits the calls of one agent; implements `agents.runner.CallGate`."""

    def __init__(
        self,
        run: Execution,
        call: CallRecord,
        ticket: Ticket,
        agent: AgentAccounting,
        time_limits: TimeLimits | None,
    ) -> None:
        self._run = run
        self._task_id = call.task_id
        self._label = call.label
        self._ticket = ticket
        self._agent = agent
        self._time_limits = time_limits
        self._deadline = None if time_limits is None else time_limits.deadline
        self._call: NextCall | None = None
        self._works_meanwhile = False
        """Whether the agent's program works on while a call waits here."""

    @property
    def time_limit(self) -> TimeLimit | None:
        """What ends the agent's work."""
        return self._time_limits

    async def before_call(
        self, call: NextCall | None = None, *, works_meanwhile: bool = False
    ) -> None:
        """Returns when the next model call may be made; StopAgentError when it never may."""
        self.release()
        self._call = call
        self._works_meanwhile = works_meanwhile
        await self._reserve(_ONE_TURN)

    def spent(self, model: str, usage: TokenUsage, cost: float | None = None) -> None:
        """A call was answered and paid for."""
        run = self._run
        if cost is None:
            cost = dollars(model, usage, run.host.prices)
        self._agent.pay(model, usage, cost)
        run.gate.answered(self._ticket)
        run.wake_ups.now = run.wake_ups.now.answered()
        total = run.accounting.account
        run.emit(
            AgentAnswered(
                run.clock.wall(),
                self._task_id,
                self._label,
                model,
                usage.total,
                cost,
                total.tokens,
                total.dollars,
                run.accounting.unpriced,
            )
        )

    async def over_budget(self) -> StopAgentError | None:
        """What ends the agent's program because its tokens or dollars are used up, if they are."""
        accounting = self._run.accounting
        await accounting.refresh_windows()
        refusal = accounting.used_up(self._agent.account)
        if refusal is None:
            return None
        window = accounting.wait_for_window(refusal)
        if window is None:
            return self._agent.stop_for(refusal)
        # It waits for the window as everybody does: at the gate, before its next process.
        return StopAgentError(Ending.BUDGET, Evidence(says=window[0]), may_resume=True)

    async def metered(self, *, fresh: bool = False) -> TaskReading | None:
        """What the gateway has counted for the agent."""
        return await self._run.host.read_task(self._task_id, fresh=fresh)

    def release(self) -> None:
        """No call is in flight any more: give back what one had reserved."""
        self._agent.release()

    async def wall(self, failure: Failure, says: str) -> None:
        """A quota was met: parks the whole run; returns when it is time to send the call again."""
        # While it waits here, others may have what it had reserved.
        self.release()
        self._works_meanwhile = False
        resets = self._run.clock.now() + failure.wait_from(self._run.clock.now())
        known = failure.resets_at is not None or failure.retry_after is not None
        await self.park(
            Ending.QUOTA,
            evidence_of(failure, says=says),
            resets.timestamp() if known else None,
            needs_person=failure.kind is Kind.BILLING,
            is_date=failure.resets_at is not None and failure.resets_in is None,
        )
        await self._reserve(_SENT_ALREADY)

    async def park(
        self,
        ending: Ending,
        evidence: Evidence,
        until: float | None,
        *,
        needs_person: bool = False,
        is_date: bool = True,
    ) -> None:
        """Park the run at a quota or a used-up window, or end it if so ordered; returns later."""
        run = self._run
        if run.settings.on_quota == "abort":
            run.fail(ending, evidence, ending)
            raise StopAgentError(ending, evidence)
        run.wall = (ending, evidence)
        was_parked = run.gate.state is GateState.PARKED
        why = evidence.says or "a quota is used up"
        run.gate.wall(self._ticket, why, until, needs_person=needs_person, is_date=is_date)
        if ending is Ending.QUOTA and not was_parked and run.gate.state is GateState.PARKED:
            run.back_off()
        await self._pass_gate()

    def waits(self, why: str, until: float | None) -> None:
        """The runner waits for this instead of working; with an empty `why` it works on."""
        self._agent.work.set_waiting(bool(why))
        self._report_wait(why, until)

    def warn(self, says: str) -> None:
        """Report something to the user that does not stop the work."""
        self._run.events.warn(self._run.clock.wall(), says)

    @asynccontextmanager
    async def process(self) -> AsyncIterator[None]:
        """Within this, a client process may live; entered when the host has room for it."""
        slots = self._run.host.processes
        slot = slots.request(self._run.level)
        try:
            if not slot.granted.is_set():
                self._works_meanwhile = False
                why = WAITS_FOR_PROCESSES.format(most=slots.most)
                decided = first_done(slot.granted.wait(), self._run.interrupted.wait())
                await self._wait(decided, why)
                if not slot.granted.is_set():
                    await self._pass_gate()  # it is closed: a stopping run is not to wait for us
                    await self._wait(slot.granted.wait(), why)
            yield
        finally:
            slots.release(slot)

    async def _wait(
        self, event: Awaitable[object], why: str = "", until: float | None = None
    ) -> None:
        """Returns when it has happened; StopAgentError when the deadline comes first."""
        if why:
            self._report_wait(why, until)
        with nullcontext() if self._works_meanwhile else self._agent.work.waiting():
            await within(self._deadline, event)
        if why:
            self._report_wait("", None)

    def _report_wait(self, why: str, until: float | None) -> None:
        at = self._run.clock.wall()
        self._run.emit(AgentWaits(at, self._task_id, self._label, why, until))

    async def _pass_gate(self) -> None:
        gate = self._run.gate
        why = AT_WALL if gate.state is GateState.PARKED else ""
        await self._wait(gate.enter(self._ticket), why, gate.wake_at)

    async def _reserve(self, at_once: Amount) -> None:
        """Returns when what the call will use is reserved, and the gate lets it through."""
        run, agent = self._run, self._agent
        while True:
            await self._pass_gate()
            await agent.work.deduct_held()
            agent.work.count()
            stop = None if self._time_limits is None else await self._time_limits.over()
            if stop is not None:
                raise stop
            await run.accounting.refresh_windows()
            # Made anew each time: other agents may have brought windows of their own meanwhile.
            reservation = agent.request(self._call, at_once)
            waited = reservation.state is ReservationState.WAITING
            if waited:
                try:
                    await self._wait(run.accounting.decided(reservation), WAITS_FOR_BUDGET)
                except (asyncio.CancelledError, StopAgentError):
                    # It may have been granted at the same moment.
                    run.accounting.withdraw(reservation)
                    raise
            if reservation.refusal is not None:
                window = run.accounting.wait_for_window(reservation.refusal)
                if window is None:
                    raise agent.stop_for(reservation.refusal)
                why, until = window
                await self.park(Ending.BUDGET, Evidence(says=why), until, is_date=False)
            elif reservation.state is ReservationState.WAITING or (
                waited and run.gate.state is not GateState.OPEN
            ):
                # The run parked or stopped meanwhile: the gate decides how it continues.
                run.accounting.withdraw(reservation)
            else:
                agent.hold(reservation)
                return
