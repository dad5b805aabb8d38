"""Give one agent leave to call the model, hear what it costs, and take note of walls.

Laws: (1) the gate comes first, then the budgets: a call that is refused was never sent; (2) a quota
parks the whole run or, if so ordered, ends it; (3) a spent rolling window is waited for alike.
Not here: the gate's states (gate.py), counting (spending.py, windows.py).
"""

from __future__ import annotations

from jackline.agents.endings import evidence_of
from jackline.agents.outcome import Ending, Evidence, Usage
from jackline.agents.ports import StopAgentError, TimeLimit
from jackline.agents.prices import dollars
from jackline.agents.time_limit import within
from jackline.failures import Failure, Kind
from jackline.flows.execution import Execution
from jackline.flows.gate import GateState, Ticket
from jackline.flows.notebook import KeptNotebook
from jackline.flows.progress import AT_WALL, AgentAnswered, AgentWaits
from jackline.flows.records import CallRecord
from jackline.flows.spending import Account
from jackline.flows.time_limits import Deadline, TimeLimits, WorkTime


class AgentLeave:
    """The leave of one agent; implements `agents.ports.Leave`."""

    def __init__(
        self,
        run: Execution,
        call: CallRecord,
        ticket: Ticket,
        account: Account,
        notebook: KeptNotebook,
        work: WorkTime,
        *,
        timeout: float | None,
        deadline: Deadline | None,
    ) -> None:
        self._run = run
        self._ticket = ticket
        self._account = account
        self._notebook = notebook
        self._work = work
        self._deadline = deadline
        is_limited = timeout is not None or deadline is not None
        self._limits = TimeLimits(run.clock, work, timeout, deadline) if is_limited else None
        self._task_id = call.task_id
        self._label = call.label

    @property
    def time_limit(self) -> TimeLimit | None:
        """What ends the agent's work."""
        return self._limits

    async def before_call(self) -> None:
        """Returns when the next model call may be made; StopAgentError when it never may."""
        await self._pass_gate()
        await self._work.learn()
        self._work.count()
        stop = None if self._limits is None else await self._limits.over()
        if stop is not None:
            raise stop
        while True:
            refusal = self._account.refusal_above()
            if refusal is not None:
                raise StopAgentError(refusal.ending, Evidence(says=refusal.says))
            spent = await self._spent_window()
            if spent is None:
                break
            says = Evidence(says=spent[1])
            await self._park(spent[1], spent[0], Ending.BUDGET, says, is_date=False)
        self._account.begin_turn()

    def spent(self, model: str, usage: Usage, cost: float | None = None) -> None:
        """A call was answered and paid for."""
        run = self._run
        if cost is None:
            cost = dollars(model, usage, run.host.prices)
        self._notebook.pay(model, usage, cost, self._account.turns)
        run.charge(self._account, usage.total, cost or 0.0)
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

    async def wall(self, failure: Failure, says: str) -> None:
        """A quota was met: parks the whole run; returns when it is time to ask again."""
        resets = self._run.clock.now() + failure.wait_from(self._run.clock.now())
        known = failure.resets_at is not None or failure.retry_after is not None
        await self.met_quota(
            evidence_of(failure, says=says),
            resets.timestamp() if known else None,
            needs_person=failure.kind is Kind.BILLING,
            is_date=failure.resets_at is not None and failure.resets_in is None,
        )

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
        """Tell people what this agent waits for; meanwhile it does not work."""
        self._work.says(waiting=bool(why))
        at = self._run.clock.wall()
        self._run.tell(AgentWaits(at, self._task_id, self._label, why, until))

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
        waits = gate.state is GateState.PARKED
        if waits:
            self.waits(AT_WALL, gate.wake_at)
        with self._work.waiting():
            await within(self._deadline, gate.enter(self._ticket))
        if waits:
            self.waits("", None)

    async def _spent_window(self) -> tuple[float, str] | None:
        for window in self._run.windows.values():
            spent = await window.spent_until()
            if spent is not None:
                return spent
        return None
