"""Charge an agent for what one of its processes uses, from all who count it.

Rules: (1) the answers that the program prints, the gateway's count and the program's own bill count
the same calls: of each kind of tokens, and of dollars, the most that one of them counts is charged,
once; (2) the gateway's count is charged while the process runs and after its end, however it ended;
(3) what all of them say less of than is possible is charged by our own count; (4) the gateway knows
which model was requested, so that no name that an upstream prints makes anything cheaper; where the
gateway says nothing, or has counted no answer of the process, the dearer of the printed and the
agent's model is charged, and a model without a price costs as much as the agent's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from msgspec.structs import replace

from jackline.agents.own_count import ProgramCount, usage_notice
from jackline.agents.prices import dollars, dollars_of_answer
from jackline.agents.process.program import AnswerPart
from jackline.agents.process.resume import History
from jackline.agents.runner import AgentTask, CallGate
from jackline.agents.task_meter import TaskReading
from jackline.dialects import TokenUsage

_NOTHING = TokenUsage()


class GatewayCount:
    """What the gateway has counted for one agent since this began to look."""

    def __init__(self, gate: CallGate) -> None:
        self._gate = gate
        self._last: TaskReading | None = None
        self.answers = 0
        self.by_model: dict[str, TokenUsage] = {}

    @property
    def is_known(self) -> bool:
        """Whether a meter has ever counted something."""
        return self._last is not None and bool(self._last.epoch)

    async def look(self, *, fresh: bool = False) -> None:
        """Add what is new; the first reading only says where to begin."""
        reading = await self._gate.metered(fresh=fresh)
        if reading is None:
            return
        last = self._last
        if last is None:
            self._last = reading
            return
        if reading.epoch != last.epoch:
            last = TaskReading()  # another meter, which has counted from zero
        if not reading.epoch or reading.counted < last.counted:
            return  # no meter has counted anything, or this came later than a newer reading
        self._last = reading
        self.answers += reading.answers - last.answers
        for model, used in reading.usage.items():
            known = self.by_model.get(model, _NOTHING)
            self.by_model[model] = known + (used - last.usage.get(model, _NOTHING))


class ProcessCharges:
    """What one process has been charged for so far."""

    def __init__(
        self,
        program: str,
        task: AgentTask,
        gate: CallGate,
        history: History,
        gateway: GatewayCount,
    ) -> None:
        """`program` is its name for people, `history` knows the agent's model."""
        self._program = program
        self._task = task
        self._gate = gate
        self._history = history
        self._gateway = gateway
        self._answers_before = gateway.answers
        self._by_gateway_before = dict(gateway.by_model)
        self._printed: dict[str, TokenUsage] = {}
        self._printed_answers: set[str] = set()
        self._charged = _NOTHING
        self.dollars = 0.0
        """What was charged so far."""
        self._most_reported = _NOTHING
        self._own_count = ProgramCount()
        self._by_own_count = _NOTHING

    @property
    def answers(self) -> int | None:
        """How many answers the process got by the gateway's count; None where it says nothing."""
        return self._gateway.answers - self._answers_before if self._gateway.is_known else None

    def add_input(self, text: str) -> None:
        """The next call sends this: a prompt, a result."""
        self._own_count.add_input(text)

    def add_answer(self, part: AnswerPart, *, reports_each_answer: bool) -> None:
        """The program printed a piece of an answer."""
        name = part.id or f"without id, {len(self._printed_answers)}"
        begins = name not in self._printed_answers
        inputs = [json.dumps(call.input, ensure_ascii=False) for call in part.calls]
        text = "".join([part.text, *inputs])
        self._own_count.add_answer(text, begins=begins, of_agent=part.agent is None)
        if begins:
            self._printed_answers.add(name)
            self._printed[part.model] = self._printed.get(part.model, _NOTHING) + part.usage
            if not self._charge_up_to(self._printed.items()):
                self._gate.spent(part.model, _NOTHING)  # an answer came, whoever counts it
        if reports_each_answer:
            self._charge_missing(part.model, with_output=False)

    async def add_gateway_count(self, *, fresh: bool = False) -> TokenUsage:
        """Charge what the gateway has counted beyond what was charged; all that it has counted."""
        await self._gateway.look(fresh=fresh)
        before = self._by_gateway_before
        counted = [
            (model, used - before.get(model, _NOTHING))
            for model, used in self._gateway.by_model.items()
        ]
        self._charge_up_to(counted)
        return _sum(counted)

    def add_bill(self, bill: Iterable[tuple[str, TokenUsage]]) -> TokenUsage:
        """Charge what the program reports of the whole process; what that comes to."""
        counted = list(bill)
        self._charge_up_to(counted)
        total = _sum(counted)
        # Bills of clients do not separate what lives in the cache for an hour.
        hours = max(self._charged.cache_write_1h_tokens, total.cache_write_1h_tokens)
        return replace(total, cache_write_1h_tokens=min(total.cache_write_tokens, hours))

    def close(self) -> None:
        """The process has ended: charge by our own count what nobody has reported."""
        self._charge_missing(self._history.model or "", with_output=True)

    def _charge_up_to(self, counted: Iterable[tuple[str, TokenUsage]]) -> bool:
        """Charge what somebody counts beyond what was charged; whether that is anything.

        All models together are compared: one that answers under another name is not paid twice.
        """
        parts = [(model, used) for model, used in counted if used.total]
        total = _sum(parts)
        self._most_reported = max(self._most_reported, total, key=lambda used: used.total)
        costs = [self._cost(model, used) for model, used in parts]
        known = [cost for cost in costs if cost is not None]
        rest = total - self._charged
        cost = max(0.0, sum(known) - self.dollars) if known else None
        if not rest.total and not cost:
            return False
        self._charge(max(parts, key=lambda part: part[1].total)[0], rest, cost)
        return True

    def _charge_missing(self, model: str, *, with_output: bool) -> None:
        missing = self._own_count.missing(self._most_reported, with_output=with_output)
        missing -= self._by_own_count
        if missing.total:
            self._by_own_count += missing
            # A bill that comes after all counts these as charged.
            self._charge(model, missing, self._cost(model, missing))
            self._gate.warn(usage_notice(model or self._program))

    def _charge(self, model: str, used: TokenUsage, cost: float | None) -> None:
        self._charged += used
        self.dollars += cost or 0.0
        self._gate.spent(model, used, cost)

    def _cost(self, model: str, used: TokenUsage) -> float | None:
        own, prices = self._history.model or self._task.model or "", self._task.prices
        if not self.answers:
            return dollars_of_answer(own, model, used, prices)
        cost = dollars(model, used, prices)
        return dollars(own, used, prices) if cost is None else cost


def _sum(counted: Iterable[tuple[str, TokenUsage]]) -> TokenUsage:
    return sum((used for _, used in counted), _NOTHING)
