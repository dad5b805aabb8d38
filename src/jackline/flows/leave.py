"""Give one agent leave to call the model, hear what it costs, and take note of walls.

Laws: (1) the gate comes first, then the budgets: a call that is refused was never sent; (2) what a
call will use is reserved before it is sent, and given back when it is answered or has failed, and
while it stands at a wall: a parked run holds no reservations; (3) a quota parks the whole run or,
if so ordered, ends it; (4) a spent rolling window is waited for alike.
Not here: the gate's states (gate.py), who gets what is left (budgets/ledger.py).
"""

from __future__ import annotations

from jackline.agents.endings import evidence_of
from jackline.agents.outcome import Ending, Evidence, Usage
from jackline.agents.ports import NextCall, StopAgentError
from jackline.agents.prices import dollars, price_of
from jackline.budgets.accounts import Account
from jackline.budgets.budget import Amount, Unit
from jackline.budgets.ledger import Demand, Reason, Refusal, Request, State
from jackline.failures import Failure, Kind
from jackline.flows.budget_refusals import (
    StrictCall,
    ending_of_limit,
    refusal_sentence,
    window_used,
)
from jackline.flows.execution import Execution
from jackline.flows.gate import GateState, Ticket
from jackline.flows.notebook import KeptNotebook
from jackline.flows.progress import AT_WALL, AgentAnswered, AgentWaits

WAITS_FOR_BUDGET = "calls in flight have reserved what is left of the budget"
_ONE_TURN: Amount = {Unit.TURNS: 1}
_SENT_ALREADY: Amount = {}


class AgentLeave:
    """The leave of one agent; implements `agents.ports.Leave`."""

    def __init__(
        self,
        run: Execution,
        ticket: Ticket,
        account: Account,
        notebook: KeptNotebook,
        *,
        task_id: str,
        label: str,
        model: str = "",
    ) -> None:
        self._run = run
        self._ticket = ticket
        self._account = account
        self._notebook = notebook
        self._task_id = task_id
        self._label = label
        self._model = model
        self._call: NextCall | None = None
        self._counted_input = 0
        self._is_limited = False
        """Whether what the call in flight uses counts against a limit."""
        self._request: Request | None = None
        """What the call in flight has reserved."""

    async def before_call(self, call: NextCall | None = None) -> None:
        """Returns when the next model call may be made; StopAgentError when it never may."""
        self.release()
        self._call = call
        await self._reserve(_ONE_TURN)

    def spent(self, model: str, usage: Usage, cost: float | None = None) -> None:
        """A call was answered and paid for."""
        run = self._run
        if cost is None:
            cost = dollars(model, usage, run.host.prices)
        self._notebook.pay(model, usage, cost, int(self._account.used[Unit.TURNS]))
        if self._is_limited:
            self._learn(usage, cost)
        request, self._request = self._request, None
        run.charge(self._account, usage.total, cost or 0.0, request)
        run.gate.answered(self._ticket)
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
        """Tell people what this agent waits for."""
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
        run.gate.wall(self._ticket, why, until, ask=needs_person, is_date=is_date)
        await self._pass_gate()

    async def _pass_gate(self) -> None:
        gate = self._run.gate
        waits = gate.state is GateState.PARKED
        if waits:
            self.waits(AT_WALL, gate.wake_at)
        worked = self._run.worked()
        await gate.enter(self._ticket)
        # The run does not count the time it was parked; the agent none that it stood here.
        self._account.began += self._run.worked() - worked
        if waits:
            self.waits("", None)

    # --- budgets ------------------------------------------------------------------------------

    async def _reserve(self, at_once: Amount) -> None:
        """Returns when what the call will use is reserved, and the gate lets it through."""
        run = self._run
        while True:
            await self._pass_gate()
            for window in run.windows.values():
                if await window.refresh():
                    run.reservations.review()
            self._account.count_seconds(run.worked())
            # Made anew each time: other agents may have brought windows of their own meanwhile.
            demand = self._demand(at_once)
            request = run.reservations.ask(run.accounts(self._account), demand)
            waited = request.state is State.WAITING
            if waited:
                await self._decided(request)
                self._account.count_seconds(run.worked())
            refusal = request.refusal or _time_is_up(request)
            if refusal is not None:
                run.reservations.withdraw(request)
                await self._refused(refusal)
            elif request.state is State.WAITING or (
                waited and run.gate.state is not GateState.OPEN
            ):
                # The run parked or stopped meanwhile: the gate says how it goes on.
                run.reservations.withdraw(request)
            else:
                self._request = request
                return

    async def _decided(self, request: Request) -> None:
        self.waits(WAITS_FOR_BUDGET, None)
        worked = self._run.worked()
        await self._run.reservations.decided(request)
        # Like the time before the gate: others' calls are no work of this agent.
        self._account.began += self._run.worked() - worked
        self.waits("", None)

    async def _refused(self, refusal: Refusal) -> None:
        """Returns when a window has been waited for; StopAgentError otherwise."""
        limit = refusal.limit
        fits_later = refusal.reason is Reason.USED_UP or (
            refusal.reason is Reason.TOO_LARGE and refusal.need <= limit.amount
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

    def _demand(self, at_once: Amount) -> Demand:
        limits = [
            limit
            for account in self._run.accounts(self._account)
            for limit in account.limits
            if limit.unit in (Unit.TOKENS, Unit.DOLLARS)
        ]
        self._is_limited = bool(limits)
        if not limits:
            return Demand(at_once=at_once)
        call = self._call
        self._counted_input = 0 if call is None else call.input_tokens()
        strict = any(limit.strict for limit in limits)
        return Demand(self._expected, self._most() if strict else {}, at_once)

    def _expected(self) -> Amount:
        call = self._call
        model = self._model if call is None else call.model
        estimate = self._run.reservations.estimates.expect(
            self._label,
            model,
            counted_input=self._counted_input,
            max_tokens=None if call is None else call.max_tokens,
        )
        usage = Usage(round(estimate.input_tokens), round(estimate.output_tokens))
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
            dearest = max(price.input, price.cache_write, price.cache_read)
            most[Unit.DOLLARS] = (tokens * dearest + call.max_tokens * price.output) / 1_000_000
        return most

    def _learn(self, usage: Usage, cost: float | None) -> None:
        call = self._call
        self._run.reservations.estimates.learn(
            self._label,
            self._model if call is None else call.model,
            counted_input=self._counted_input,
            input_tokens=usage.total - usage.output_tokens,
            output_tokens=usage.output_tokens,
            dollars=cost,
        )


def _time_is_up(request: Request) -> Refusal | None:
    """The limit of seconds that was used up while the request waited."""
    for limit in request.limits:
        if limit.unit is Unit.SECONDS and limit.is_used_up:
            return Refusal(limit, Reason.USED_UP)
    return None
