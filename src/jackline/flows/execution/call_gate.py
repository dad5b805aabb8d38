"""Admit each model call of one agent: the gate, its time limits, then a reservation of its cost.

Rules: (1) the gate comes first, then the budgets: a refused call was never sent; (2) what a call
will use is reserved before it is sent, and released when it is answered or has failed, and while it
waits at a quota limit: a parked run has no reservations; (3) a quota limit parks the whole run or,
if so ordered, ends it; (4) a used-up rolling window is waited for in the same way; (5) waiting here
is no work of the agent, unless its program works on meanwhile, and no wait outlasts its deadline;
(6) a client process is started when the host has room for it.
Not here: the gate's states (flows/execution/gate.py), who gets what is left (budgets/ledger.py),
how time is measured (budget/usage.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, nullcontext

from jackline.agents.outcome import Ending, Evidence, TokenUsage
from jackline.agents.prices import dollars, price_of
from jackline.agents.runner import NextCall, StopAgentError, TimeLimit, evidence_of, within
from jackline.budgets.budget import Account, Amount, Unit
from jackline.budgets.ledger import (
    BudgetRefusal,
    CallDemand,
    RefusalReason,
    Reservation,
    ReservationState,
)
from jackline.failures import Failure, Kind
from jackline.flows.budget.reservations import (
    StrictCall,
    ending_of_limit,
    refusal_sentence,
    window_used,
)
from jackline.flows.budget.usage import TimeLimits, WorkTime
from jackline.flows.execution.execution import Execution
from jackline.flows.execution.gate import GateState, Ticket
from jackline.flows.process_slots import ProcessSlot
from jackline.flows.records import CallRecord
from jackline.flows.run_events import AT_WALL, AgentAnswered, AgentWaits
from jackline.flows.store.agent_log import StoredAgentLog

WAITS_FOR_BUDGET = "calls in flight have reserved what is left of the budget"
WAITS_FOR_PROCESSES = (
    "{most} client processes of agents run already, the most at once: it is in line"
)
_ONE_TURN: Amount = {Unit.TURNS: 1}
_SENT_ALREADY: Amount = {}


class AgentCallGate:
    """The leave of one agent; implements `agents.ports.Leave`."""

    def __init__(
        self,
        run: Execution,
        call: CallRecord,
        ticket: Ticket,
        account: Account,
        notebook: StoredAgentLog,
        work: WorkTime,
        *,
        time_limits: TimeLimits | None,
        model: str,
    ) -> None:
        self._run = run
        self._task_id = call.task_id
        self._label = call.label
        self._ticket = ticket
        self._account = account
        self._notebook = notebook
        self._work = work
        self._model = model
        self._time_limits = time_limits
        self._deadline = None if time_limits is None else time_limits.deadline
        self._call: NextCall | None = None
        self._works_meanwhile = False
        """Whether the agent's program works on while leave is waited for."""
        self._counted_input = 0
        self._is_budgeted = False
        """Whether what the call in flight uses counts against a limit."""
        self._request: Reservation | None = None
        """What the call in flight has reserved."""

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
        self._notebook.pay(model, usage, cost, int(self._account.used[Unit.TURNS]))
        if self._is_budgeted:
            self._learn(usage, cost)
        request, self._request = self._request, None
        run.charge(self._account, usage.total, cost or 0.0, request)
        run.gate.answered(self._ticket)
        run.progressed()
        run.tell(
            AgentAnswered(
                run.clock.wall(),
                self._task_id,
                self._label,
                model,
                usage.total,
                cost,
                run.account.tokens,
                run.account.dollars,
            )
        )

    def release(self) -> None:
        """No call is in flight any more: give back what one had reserved."""
        request, self._request = self._request, None
        if request is not None:
            self._run.reservations.release(request)

    async def wall(self, failure: Failure, says: str) -> None:
        """A quota was met: parks the whole run; returns when it is time to ask again."""
        # For as long as it stands here, others may have what it had reserved.
        self.release()
        self._works_meanwhile = False
        resets = self._run.clock.now() + failure.wait_from(self._run.clock.now())
        known = failure.resets_at is not None or failure.retry_after is not None
        await self.met_quota(
            evidence_of(failure, says=says),
            resets.timestamp() if known else None,
            needs_person=failure.kind is Kind.BILLING,
            is_date=failure.resets_at is not None and failure.resets_in is None,
        )
        await self._reserve(_SENT_ALREADY)

    async def met_quota(
        self,
        evidence: Evidence,
        resets_at: float | None,
        *,
        needs_person: bool,
        is_date: bool = True,
    ) -> None:
        """The same for a runner that only tells at its end that it met a quota."""
        await self._park(
            evidence.says or "a quota is used up",
            resets_at,
            Ending.QUOTA,
            evidence,
            needs_person=needs_person,
            is_date=is_date,
        )

    def waits(self, why: str, until: float | None) -> None:
        """The runner waits for this instead of working; with an empty `why` it works on."""
        self._work.set_waiting(bool(why))
        self._report_wait(why, until)

    def warn(self, says: str) -> None:
        """Tell the user something that does not stop the work."""
        self._run.telling.warn(self._run.clock.wall(), says)

    @asynccontextmanager
    async def process(self) -> AsyncIterator[None]:
        """Within this, a client process may live; entered when the host has room for it."""
        slots = self._run.host.processes
        slot = slots.ask(self._run.level)
        try:
            if not slot.granted.is_set():
                self._works_meanwhile = False
                why = WAITS_FOR_PROCESSES.format(most=slots.most)
                await self._wait(self._granted_or_interrupted(slot), why)
                if not slot.granted.is_set():
                    await self._pass_gate()  # it is closed: a stopping run is not to wait for us
                    await self._wait(slot.granted.wait(), why)
            yield
        finally:
            slots.give_back(slot)

    async def _granted_or_interrupted(self, slot: ProcessSlot) -> None:
        ways = [
            asyncio.ensure_future(event.wait()) for event in (slot.granted, self._run.interrupted)
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()

    # --- waiting ------------------------------------------------------------------------------

    async def _wait(
        self, event: Awaitable[object], why: str = "", until: float | None = None
    ) -> None:
        """Returns when it has happened; StopAgentError when the deadline comes first."""
        if why:
            self._report_wait(why, until)
        with nullcontext() if self._works_meanwhile else self._work.waiting():
            await within(self._deadline, event)
        if why:
            self._report_wait("", None)

    def _report_wait(self, why: str, until: float | None) -> None:
        at = self._run.clock.wall()
        self._run.tell(AgentWaits(at, self._task_id, self._label, why, until))

    # --- walls --------------------------------------------------------------------------------

    async def _park(
        self,
        why: str,
        until: float | None,
        ending: Ending,
        evidence: Evidence,
        *,
        needs_person: bool = False,
        is_date: bool = True,
    ) -> None:
        run = self._run
        if run.settings.on_quota == "abort":
            run.fail(ending, evidence, ending)
            raise StopAgentError(ending, evidence)
        run.wall = (ending, evidence)
        was_parked = run.gate.state is GateState.PARKED
        run.gate.wall(self._ticket, why, until, ask=needs_person, is_date=is_date)
        if ending is Ending.QUOTA and not was_parked and run.gate.state is GateState.PARKED:
            run.back_off()
        await self._pass_gate()

    async def _pass_gate(self) -> None:
        gate = self._run.gate
        why = AT_WALL if gate.state is GateState.PARKED else ""
        await self._wait(gate.enter(self._ticket), why, gate.wake_at)

    async def _check_time(self) -> None:
        """Count what was worked by now; StopAgentError when that or the deadline is the end."""
        await self._work.deduct_held()
        self._work.count()
        stop = None if self._time_limits is None else await self._time_limits.over()
        if stop is not None:
            raise stop

    # --- budgets ------------------------------------------------------------------------------

    async def _reserve(self, at_once: Amount) -> None:
        """Returns when what the call will use is reserved, and the gate lets it through."""
        run = self._run
        while True:
            await self._pass_gate()
            await self._check_time()
            for window in run.windows.values():
                if await window.refresh():
                    run.reservations.review()
            # Made anew each time: other agents may have brought windows of their own meanwhile.
            demand = self._demand(at_once)
            request = run.reservations.ask(run.accounts(self._account), demand)
            waited = request.state is ReservationState.WAITING
            if waited:
                await self._decided(request)
            if request.refusal is not None:
                await self._refused(request.refusal)
            elif request.state is ReservationState.WAITING or (
                waited and run.gate.state is not GateState.OPEN
            ):
                # The run parked or stopped meanwhile: the gate says how it goes on.
                run.reservations.withdraw(request)
            else:
                self._request = request
                return

    async def _decided(self, request: Reservation) -> None:
        reservations = self._run.reservations
        try:
            await self._wait(reservations.decided(request), WAITS_FOR_BUDGET)
        except (asyncio.CancelledError, StopAgentError):
            # It may have been granted at the same moment.
            reservations.withdraw(request)
            raise

    async def _refused(self, refusal: BudgetRefusal) -> None:
        """Returns when a window has been waited for; StopAgentError otherwise."""
        limit = refusal.limit
        fits_later = refusal.reason is RefusalReason.USED_UP or (
            refusal.reason is RefusalReason.TOO_LARGE and refusal.need <= limit.amount
        )
        if limit.account.refills and fits_later:
            for window in self._run.windows.values():
                if window.account is limit.account:
                    why = window_used(limit, window.hours)
                    says = Evidence(says=why)
                    await self._park(why, window.pause(), Ending.BUDGET, says, is_date=False)
                    return
        call = self._call
        refused = StrictCall(
            call is not None, call.model if call else self._model, call.max_tokens if call else 0
        )
        says = Evidence(says=refusal_sentence(refusal, refused))
        raise StopAgentError(ending_of_limit(limit), says)

    def _demand(self, at_once: Amount) -> CallDemand:
        limits = [
            limit
            for account in self._run.accounts(self._account)
            for limit in account.limits
            if limit.unit in (Unit.TOKENS, Unit.DOLLARS)
        ]
        self._is_budgeted = bool(limits)
        if not limits:
            return CallDemand(at_once=at_once)
        call = self._call
        self._counted_input = 0 if call is None else call.input_tokens()
        strict = any(limit.strict for limit in limits)
        return CallDemand(self._expected, self._most() if strict else {}, at_once)

    def _expected(self) -> Amount:
        call = self._call
        model = self._model if call is None else call.model
        estimate = self._run.reservations.estimates.expect(
            self._label,
            model,
            counted_input=self._counted_input,
            max_tokens=None if call is None else call.max_tokens,
        )
        usage = TokenUsage(round(estimate.input_tokens), round(estimate.output_tokens))
        cost = dollars(model, usage, self._run.host.prices)
        if estimate.dollars is not None:
            cost = estimate.dollars
        # An unknown price counts as nothing.
        return {Unit.TOKENS: estimate.tokens, Unit.DOLLARS: cost or 0.0}

    def _most(self) -> Amount:
        """The most that the call can use, as far as that can be known."""
        call = self._call
        if call is None:
            return {}
        tokens = call.most_input()
        most: dict[Unit, float] = {Unit.TOKENS: tokens + call.max_tokens}
        price = price_of(call.model, self._run.host.prices)
        if price is not None:
            written = max(price.cache_write, price.cache_write_1h)
            dearest = max(price.input, written, price.cache_read)
            most[Unit.DOLLARS] = (tokens * dearest + call.max_tokens * price.output) / 1_000_000
        return most

    def _learn(self, usage: TokenUsage, cost: float | None) -> None:
        call = self._call
        self._run.reservations.estimates.learn(
            self._label,
            self._model if call is None else call.model,
            counted_input=self._counted_input,
            input_tokens=usage.total - usage.output_tokens,
            output_tokens=usage.output_tokens,
            dollars=cost,
        )
