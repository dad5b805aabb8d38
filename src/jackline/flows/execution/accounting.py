"""What the agents of a run have used, may still use and have reserved: one ledger for all of it.

Rules: (1) what was used once counts for good, in every process, also when a call begins anew; a
fork counts nothing that another run has paid; an agent counts once, and its end adds only what was
not saved before; (2) what a call will use is reserved before it is sent: from its agent, the flows
above it, the run, and every rolling window; (3) a waiting call wakes when its reservation is
decided and when the run is interrupted; reservations are in memory and end with the process; (4) of
a rolling window, what this process uses counts at once, what others use within seconds; setting the
clock neither empties a window nor fills it; (5) a crash costs a budget no more than what was used
since the last answer; (6) a sentence names limits and amounts, no prompt and no answer; (7) where a
limit in dollars holds, a model without a known price is warned of before its first call, or when it
is first met. Who gets what is left is decided in budgets/ledger.py.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from jackline.agents.outcome import Ending, Evidence, Outcome, Tally
from jackline.agents.prices import Price, dollars, in_dollars, is_alias, price_of
from jackline.agents.runner import NextCall, StopAgentError
from jackline.autopsy.figures import counted
from jackline.budgets.budget import (
    ROLLING,
    Account,
    Amount,
    Budget,
    BudgetLimit,
    BudgetWindow,
    Unit,
)
from jackline.budgets.ledger import (
    BudgetLedger,
    BudgetRefusal,
    CallDemand,
    Estimator,
    RefusalReason,
    Reservation,
    ReservationState,
)
from jackline.clock import BelievedTime, Clock
from jackline.dialects import TokenUsage
from jackline.flows.execution.agent_cancellation import is_cancelled_by_person
from jackline.flows.execution.work_time import Held, WorkTime
from jackline.flows.records import (
    CallKind,
    CallRecord,
    EntryRecord,
    RunRecord,
)
from jackline.flows.run_totals import SAVED_UNITS, Used, begun_anew_log, used_by_call, used_by_run
from jackline.flows.store.agent_log import StoredAgentLog
from jackline.flows.store.run_store import Claim, RunStore

CallName: TypeAlias = tuple[str, int]
_ANEW = "flow:anew"
_ENDINGS = {Unit.TURNS: Ending.TURNS, Unit.SECONDS: Ending.TIMEOUT}


class RunAccounting:
    """The accounts of one run in one process, with what earlier processes have used."""

    def __init__(
        self,
        engine: RunStore,
        claim: Claim,
        clock: Clock,
        calls: dict[CallName, CallRecord],
        *,
        budgets: tuple[Budget, ...] = (),
        prices: Mapping[str, Price] | None = None,
        warn: Callable[[str], None],
        note: Callable[[str], None] = lambda _says: None,
    ) -> None:
        """`calls` are the run's, and also change elsewhere.

        `warn` gets each budget's warning, `note` what a person should know of prices.
        """
        self._engine = engine
        self._claim = claim
        self.clock = clock
        self._calls = calls
        self.prices = prices or {}
        self._warn = warn
        self.note = note
        self.warned_of: set[str] = set()
        """Models without a known price that `note` got."""
        self.account = Account("The run", budgets)
        self.estimates = Estimator()
        self._ledger = BudgetLedger()
        self._waiting: dict[Reservation, asyncio.Future[None]] = {}
        self._windows: dict[Budget, BudgetWindow] = {}
        self._reading_windows = asyncio.Lock()
        self._believed_time = BelievedTime(clock.wall, self._elapsed)
        self._active: dict[CallName, AgentAccounting] = {}
        self.past: Used = {}
        """What agents used in earlier processes, by task id."""
        # Agents that began anew leave what they had used in a log of the run itself.
        self._past_log = begun_anew_log(claim.run_id)
        self._past_lines = 0
        self._usage = TokenUsage()
        self._cost: float | None = None
        self._unpriced = 0
        self._turns = self._replayed = self._ok = 0
        self._failed: Counter[Ending] = Counter()
        self._by_hand: list[str] = []
        self._raise_to: dict[str, float] = {}
        for budget in budgets:
            self._open_window(budget)

    async def load(self, saved: RunRecord) -> None:
        """Read what earlier processes have used: from the run's calls, logs and record."""
        self._past_lines = len(await self._engine.entries(self._past_log))
        calls = list(self._calls.values())
        self.past = await used_by_run(self._engine, self._claim.run_id, calls)
        used = {unit: sum(each[unit] for each in self.past.values()) for unit in SAVED_UNITS}
        used[Unit.TOKENS] = max(saved.tokens, used[Unit.TOKENS])
        used[Unit.DOLLARS] = max(saved.cost, used[Unit.DOLLARS])
        self.account.add({**used, Unit.AGENTS: len(self.past)})

    async def begin_anew(self, calls: Sequence[CallRecord]) -> None:
        """Forget these failed calls, but not what they have used."""
        lines = []
        for call in calls:
            if call.kind is CallKind.AGENT and call.started_at:
                self._past_lines += 1
                used = dict.fromkeys(SAVED_UNITS, 0.0) | dict(
                    await used_by_call(self._engine, call)
                )
                data = json.dumps({"task_id": call.task_id, **used}).encode()
                at = self.clock.wall()
                lines.append(EntryRecord(self._past_log, self._past_lines, _ANEW, data, at))
        names = [(call.key, call.occurrence) for call in calls]
        await self._engine.forget_calls(self._claim, names, leaving=lines)
        for name in names:
            del self._calls[name]

    # --- accounts -----------------------------------------------------------------------------

    def open_account(self, name: str, budget: Budget | None, parent: Account) -> Account:
        """The account of a child flow or an agent; what it uses counts in its parent's, too."""
        self._open_window(budget)
        return Account(name, () if budget is None else (budget,), parent)

    def _open_window(self, budget: Budget | None) -> None:
        # It is over all runs, so that it limits the whole run from now on.
        if budget is not None and budget.window is not None and budget not in self._windows:
            self._windows[budget] = BudgetWindow(budget)

    def payers(self, account: Account) -> list[Account]:
        """All that pay for a call of this account: those above it, and the windows."""
        return [*account.chain(), *(window.account for window in self._windows.values())]

    def recall(self, account: Account, task_id: str) -> None:
        """Count in this account what one of its agents used in earlier processes."""
        if task_id in self.past:
            account.recall({**self.past[task_id], Unit.AGENTS: 1})

    def begin_agent(self, account: Account, task_id: str) -> StopAgentError | None:
        """Count one more agent, unless an earlier process did; what ends it if it may not begin."""
        limit = None if task_id in self.past else account.begin_agent()
        if limit is None:
            return None
        agents = counted(int(limit.amount), "agent")
        says = f"{limit.account.name} may start {agents}, and has."
        return StopAgentError(Ending.BUDGET, Evidence(says=says, raise_to=self.raise_to(limit)))

    def raise_to(self, limit: BudgetLimit, need: float = 0.0) -> str:
        """The limit as `--budget` takes it, such that work goes on; empty if it is not the run's.

        Whoever raises it does not want to be asked again soon: at least twice of what it is.
        """
        if limit.account is not self.account:
            return ""
        most = max(2 * limit.amount, 1.5 * limit.used, limit.used + 2 * need) or 1.0
        step = 10.0 ** (math.floor(math.log10(most)) - 1)
        rounded = math.ceil(most / step - 1e-6) * step
        return (
            f"{limit.unit}={rounded:.6g}"
            if limit.unit is Unit.DOLLARS
            else (f"{limit.unit}={math.ceil(rounded)}")
        )

    # --- what was used ------------------------------------------------------------------------

    def charge(
        self, account: Account, tokens: int, cost: float, reservation: Reservation | None = None
    ) -> None:
        """Something was paid for, and had this reserved; warns if a budget is nearly used."""
        amount: Amount = {Unit.TOKENS: tokens, Unit.DOLLARS: cost}
        for window in self._windows.values():
            window.record(self._elapsed(), amount)
        if reservation is None:
            self._wake(self._ledger.charge(self.payers(account), amount))
        else:
            self._wake(self._ledger.settle(reservation, amount, self.payers(account)))
        near = account.nearly_used()
        if near is not None:
            used, may = _amount(near, near.used), _amount(near, near.amount)
            self._warn(f"{near.account.name} has used {used} of {may}.")

    def charge_seconds(self, account: Account, seconds: float) -> None:
        """So much more was worked; less than nothing where time turned out to be no work."""
        self._wake(self._ledger.charge(account.chain(), {Unit.SECONDS: seconds}))

    def start_agent(
        self,
        call: CallRecord,
        account: Account,
        log: StoredAgentLog,
        held: Held | None,
        model: str | None,
    ) -> AgentAccounting:
        """An agent has begun in this process; `held` where its time is limited."""
        agent = AgentAccounting(self, call, account, log, held, model or "")
        self._active[call.key, call.occurrence] = agent
        return agent

    def end_agent(self, call: CallRecord) -> AgentAccounting | None:
        """It ends: what it used is saved with its end."""
        return self._active.pop((call.key, call.occurrence), None)

    async def save(self) -> None:
        """Save what all agents have used by now, for other processes and after a crash."""
        timed = [agent for agent in self._active.values() if agent.is_timed]
        await asyncio.gather(*(agent.work.deduct_held() for agent in timed))
        for agent in self._active.values():
            if agent.is_timed:
                agent.log.keep_time()
        # All at once, so that they are one write.
        await asyncio.gather(*(self._save(name) for name in self._active))

    async def _save(self, name: CallName) -> None:
        agent, call = self._active.get(name), self._calls[name]
        if agent is None:
            return  # it has just ended, and its end says all
        tokens, cost = agent.log.used.usage.total, agent.log.used.dollars
        if tokens > call.tokens or cost > call.cost:
            call = self._calls[name] = replace(call, tokens=tokens, cost=cost)
            await self._engine.begin_call(self._claim, call)

    @property
    def logs(self) -> list[StoredAgentLog]:
        """The logs that are being written."""
        return [agent.log for agent in self._active.values()]

    def count_ended(self, outcome: Outcome[object], *, replayed: bool) -> None:
        """An agent has ended, here or, `replayed`, in an earlier process or another run."""
        self._replayed += replayed
        if replayed and outcome.task_id not in self.past:
            # A fork got it from the run that has paid it.
            outcome = replace(outcome, usage=TokenUsage(), cost=None, turns=0)
        self._ok += outcome.ok
        if not outcome.ok:
            self._failed[outcome.terminated_by] += 1
            if is_cancelled_by_person(outcome):
                self._by_hand.append(outcome.label or outcome.task_id)
            unit, _, most = outcome.evidence.raise_to.partition("=")
            if most:
                self._raise_to[unit] = max(float(most), self._raise_to.get(unit, 0.0))
        self._usage += outcome.usage
        self._turns += outcome.turns
        if outcome.cost is not None:
            self._cost = (self._cost or 0.0) + outcome.cost
        self._unpriced += outcome.unpriced

    def used_so_far(self, ending: Ending, evidence: Evidence) -> Outcome[object]:
        """An outcome with what the agents that ended, and those at work, have used."""
        usage, cost, turns, unpriced = self._usage, self._cost, self._turns, self._unpriced
        for agent in self._active.values():
            used = agent.log.used
            usage, turns = usage + used.usage, turns + used.turns
            unpriced += used.unpriced
            if used.dollars:
                cost = (cost or 0.0) + used.dollars
        return Outcome(
            ending, evidence=evidence, usage=usage, cost=cost, turns=turns, unpriced=unpriced
        )

    @property
    def unpriced(self) -> int:
        """Tokens of all agents whose price is not known."""
        return self._unpriced + sum(agent.log.used.unpriced for agent in self._active.values())

    def tally(self, unfinished: int) -> Tally:
        """How the agents ended so far."""
        failed = self._failed.total()
        endings = tuple(self._failed.most_common())
        limits = {limit.unit: limit.amount for limit in self.account.limits}
        # One that was raised since then holds nobody any more.
        raise_to = ",".join(
            f"{unit}={most:.10g}"
            for unit, most in self._raise_to.items()
            if limits.get(Unit(unit), most) < most
        )
        return Tally(
            self._ok + failed,
            self._ok,
            failed,
            self._replayed,
            endings,
            unfinished,
            tuple(self._by_hand),
            raise_to,
        )

    # --- reservations -------------------------------------------------------------------------

    def reserve(self, account: Account, demand: CallDemand) -> Reservation:
        """A reservation that is granted, refused, or must be awaited with `decided`."""
        return self._ledger.reserve(self.payers(account), demand)

    def used_up(self, account: Account) -> BudgetRefusal | None:
        """The limit of tokens or dollars that lets no call of this account be made, if any."""
        for payer in self.payers(account):
            for limit in payer.limits:
                if limit.unit in ROLLING and limit.is_used_up:
                    return BudgetRefusal(limit, RefusalReason.USED_UP)
        return None

    async def decided(self, reservation: Reservation) -> None:
        """Returns when the reservation waits no more, or when the run was interrupted.

        Who stops waiting before that has to `withdraw` it.
        """
        if reservation.state is not ReservationState.WAITING:
            return
        self._waiting[reservation] = asyncio.get_running_loop().create_future()
        try:
            await self._waiting[reservation]
        finally:
            del self._waiting[reservation]

    def release(self, reservation: Reservation) -> None:
        """The call was sent and came to no answer."""
        self._wake(self._ledger.release(reservation))

    def withdraw(self, reservation: Reservation) -> None:
        """The call was not sent."""
        self._wake(self._ledger.withdraw(reservation))

    def interrupt(self) -> None:
        """Wake all waiting calls: the run goes no further, and the gate says how."""
        self._wake(list(self._waiting))

    def _wake(self, reservations: Iterable[Reservation]) -> None:
        for reservation in reservations:
            waiting = self._waiting.get(reservation)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    # --- rolling windows ----------------------------------------------------------------------

    async def refresh_windows(self) -> None:
        """Read what other processes have used of the windows, if that is due."""
        if not any(window.is_stale(self._elapsed()) for window in self._windows.values()):
            return
        # Who comes meanwhile waits for the same read: what it does not know yet is not unused.
        async with self._reading_windows:
            for window in list(self._windows.values()):
                now = self._elapsed()
                if not window.is_stale(now):
                    continue
                since = self._believed_time.now() - window.seconds
                tokens, cost = await self._engine.spent_since(since)
                # The store gets what an agent uses now and then, and at its end; until then we
                # count it.
                for name, agent in self._active.items():
                    call, used = self._calls[name], agent.log.used
                    tokens += max(0, used.usage.total - call.tokens)
                    cost += max(0.0, used.dollars - call.cost)
                window.update(now, {Unit.TOKENS: tokens, Unit.DOLLARS: cost})
                self._wake(self._ledger.review())

    def wait_for_window(self, refusal: BudgetRefusal) -> tuple[str, float] | None:
        """Why and until when the refused call waits for a window; None where that is no help."""
        limit = refusal.limit
        fits_later = refusal.reason is RefusalReason.USED_UP or (
            refusal.reason is RefusalReason.TOO_LARGE and refusal.need <= limit.amount
        )
        for window in self._windows.values():
            if window.account is limit.account and fits_later:
                window.expire()
                used, may, unit = f"{limit.used:,.0f}", f"{limit.amount:,.0f}", f" {limit.unit}"
                if limit.unit is Unit.DOLLARS:
                    used, may, unit = f"${limit.used:,.2f}", f"${limit.amount:,.2f}", ""
                why = f"{used} of {may}{unit} in {window.seconds / 3600:g} h are used"
                return why, self.clock.wall() + window.check_after
        return None

    def _elapsed(self) -> float:
        """Real seconds, in sleep too."""
        return self.clock.monotonic() + self.clock.slept()


class AgentAccounting:
    """What one agent at work uses: its account, its log, its time, and its call in flight."""

    def __init__(
        self,
        run: RunAccounting,
        call: CallRecord,
        account: Account,
        log: StoredAgentLog,
        held: Held | None,
        model: str,
    ) -> None:
        self._run = run
        self._label = call.label
        self.account = account
        self.log = log
        self.is_timed = held is not None
        """Whether its time is limited, and is saved now and then."""
        self.work = WorkTime(run.clock, held, partial(run.charge_seconds, account))
        self._default_model = model
        self._call: NextCall | None = None
        self._counted_input = 0
        self._is_limited = False
        """Whether what the call in flight uses counts against a limit."""
        self._limit_in_dollars: BudgetLimit | None = None
        self._granted: Reservation | None = None

    def count_earlier(self) -> None:
        """Count what the opened log says of earlier processes against the agent's own limits."""
        self.account.add(self.log.used.amount)
        self.work.resume_at(self.log.used.seconds)
        self.log.time_used = self.work.count

    @property
    def _model(self) -> str:
        return self._default_model if self._call is None else self._call.model

    def request(self, call: NextCall | None, at_once: Amount) -> Reservation:
        """A reservation of what the next call will use; `hold` it once it is granted."""
        self._call = call
        payers = self._run.payers(self.account)
        limits = [limit for each in payers for limit in each.limits if limit.unit in ROLLING]
        self._is_limited = bool(limits)
        demand = CallDemand(at_once=at_once)
        self._limit_in_dollars = next((each for each in limits if each.unit is Unit.DOLLARS), None)
        model = self._model
        if model and not is_alias(model) and price_of(model, self._run.prices) is None:
            self._warn_of_price(model)
        if limits:
            self._counted_input = 0 if call is None else call.input_tokens()
            most: dict[Unit, float] = {}
            # The most that the call can use, as far as that can be known.
            if call is not None and any(limit.strict for limit in limits):
                tokens = call.most_input()
                most[Unit.TOKENS] = tokens + call.max_tokens
                price = price_of(call.model, self._run.prices)
                if price is not None:
                    writes = max(price.cache_write, price.cache_write_1h)
                    dearest = max(price.input, writes, price.cache_read)
                    whole = tokens * dearest + call.max_tokens * price.output
                    most[Unit.DOLLARS] = whole / 1_000_000
            demand = CallDemand(self._expected, most, at_once)
        return self._run.reserve(self.account, demand)

    def hold(self, reservation: Reservation) -> None:
        """The call in flight has this reserved."""
        self._granted = reservation

    def release(self) -> None:
        """No call is in flight any more: give back what one had reserved."""
        granted, self._granted = self._granted, None
        if granted is not None:
            self._run.release(granted)

    def pay(self, model: str, usage: TokenUsage, cost: float | None) -> None:
        """The call was answered: save and charge what it used."""
        if cost is None:
            self._warn_of_price(model)
        self.log.pay(model, usage, cost, int(self.account.used[Unit.TURNS]))
        # What has no input is the rest of a call that was counted before.
        if self._is_limited and usage.total > usage.output_tokens:
            self._run.estimates.learn(
                self._label,
                self._model,
                counted_input=self._counted_input,
                input_tokens=usage.total - usage.output_tokens,
                output_tokens=usage.output_tokens,
                dollars=cost,
            )
        granted, self._granted = self._granted, None
        self._run.charge(self.account, usage.total, cost or 0.0, granted)

    def _warn_of_price(self, model: str) -> None:
        limit, warned = self._limit_in_dollars, self._run.warned_of
        if limit is not None and not limit.strict and model not in warned:
            warned.add(model)
            may = _amount(limit, limit.amount)
            self._run.note(
                f"The price of {model} is not known: what it uses does not count in the {may} that"
                f" {limit.account.name[:1].lower()}{limit.account.name[1:]} may use. Set it under"
                " [prices], or limit tokens."
            )

    def with_all_used(self, outcome: Outcome[object], payer: Account) -> Outcome[object]:
        """The outcome with all that it used: what the runner says, or what was paid for if more."""
        used = self.log.used
        unpaid = outcome.usage.total - used.usage.total
        if unpaid > 0:
            # A runner that only reports at its end what it used.
            self._run.charge(payer, unpaid, max(0.0, (outcome.cost or 0.0) - used.dollars))
        elif unpaid < 0:
            outcome = replace(outcome, usage=used.usage)
        if outcome.cost is None:
            priced = outcome.usage.total - used.unpriced if used.dollars else 0
            unpriced = max(outcome.unpriced, outcome.usage.total - max(0, priced))
            outcome = replace(outcome, cost=used.dollars or None, unpriced=unpriced)
        elif used.unpriced and not outcome.unpriced:
            # Only its program knew, at its end, what that had cost.
            self._run.charge(payer, 0, max(0.0, outcome.cost - used.dollars))
        if used.dollars > (outcome.cost or 0.0):
            outcome = replace(outcome, cost=used.dollars)
        if not outcome.turns:
            # It was ended from outside, and it is not known how far it had come.
            outcome = replace(outcome, turns=used.turns)
        return outcome

    def stop_for(self, refusal: BudgetRefusal) -> StopAgentError:
        """What ends the agent whose call was refused so."""
        limit, call = refusal.limit, self._call
        name, may = limit.account.name, _amount(limit, limit.amount)
        used, need = _amount(limit, limit.used), _amount(limit, refusal.need)
        says, raise_to = f"{name} may use {may} and never more (strict), ", ""
        if refusal.reason is RefusalReason.USED_UP:
            says = f"{name} may use {may}, and has used {used}."
            raise_to = self._run.raise_to(limit)
        elif call is None:
            says += (
                "and nobody knows beforehand what this runner's calls use: take"
                ' runner="messages", or leave out strict.'
            )
        elif refusal.reason is RefusalReason.NO_BOUND:
            says += (
                f"and the price of {call.model} is not known: set it under [prices], limit"
                " tokens, or leave out strict."
            )
        else:
            raise_to = self._run.raise_to(limit, refusal.need)
            bound = f"one call may use up to {need}: its input and max_tokens={call.max_tokens}"
            says += (
                f"and has used {used}: what is left is less than one call ({bound})."
                if limit.used
                else f"which is less than one call: {bound}. Raise the budget to at least {need},"
                " give agent(max_tokens=…) less, or leave out strict."
            )
        evidence = Evidence(says=says, raise_to=raise_to)
        return StopAgentError(_ENDINGS.get(limit.unit, Ending.BUDGET), evidence)

    def _expected(self) -> Amount:
        estimate = self._run.estimates.expect(
            self._label,
            self._model,
            counted_input=self._counted_input,
            max_tokens=None if self._call is None else self._call.max_tokens,
        )
        cost = estimate.dollars
        if cost is None:
            usage = TokenUsage(round(estimate.input_tokens), round(estimate.output_tokens))
            cost = dollars(self._model, usage, self._run.prices)
        # An unknown price counts as nothing.
        return {Unit.TOKENS: estimate.tokens, Unit.DOLLARS: cost or 0.0}


def _amount(limit: BudgetLimit, amount: float) -> str:
    if limit.unit is Unit.DOLLARS:
        # A bound of a cent's part must not be shown as nothing.
        return f"${amount:,.2f}" if amount >= 0.01 or not amount else in_dollars(amount)
    return counted(round(amount), limit.unit.removesuffix("s"))
