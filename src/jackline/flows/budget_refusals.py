"""Say in a sentence which budget refused a call, what ending that is, and what to change.

Rules: pure; a sentence names limits and amounts, no prompt and no answer.
Deciding is in budgets/ledger.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from jackline.agents.outcome import Ending
from jackline.agents.prices import in_dollars
from jackline.autopsy.figures import counted
from jackline.budgets.accounts import Limit
from jackline.budgets.budget import Unit
from jackline.budgets.ledger import Reason, Refusal

_ENDINGS = {Unit.TURNS: Ending.TURNS, Unit.SECONDS: Ending.TIMEOUT}


@dataclass(frozen=True, slots=True)
class StrictCall:
    """The call that a strict budget refused, for the sentence about it."""

    own_loop: bool
    model: str
    max_tokens: int


def ending_of_limit(limit: Limit) -> Ending:
    """How an agent ends that this limit refuses."""
    return _ENDINGS.get(limit.unit, Ending.BUDGET)


def no_more_agents(limit: Limit) -> str:
    """The sentence where no further agent may begin."""
    return f"{limit.account.name} may start {counted(int(limit.amount), 'agent')}, and has."


def nearly_used(limit: Limit) -> str:
    """The sentence where most of a budget is used."""
    name, used, may = limit.account.name, _amount(limit, limit.used), _amount(limit, limit.amount)
    return f"{name} has used {used} of {may}."


def window_used(limit: Limit, hours: float) -> str:
    """The reason of a run that is parked until a window has room again."""
    if limit.unit is Unit.DOLLARS:
        amounts = f"${limit.used:,.2f} of ${limit.amount:,.2f}"
    else:
        amounts = f"{limit.used:,.0f} of {limit.amount:,.0f} {limit.unit}"
    return f"{amounts} in {hours:g} h are used"


def refusal_sentence(refusal: Refusal, call: StrictCall) -> str:
    """Why no further call may be made."""
    limit = refusal.limit
    name, may = limit.account.name, _amount(limit, limit.amount)
    if refusal.reason is Reason.USED_UP:
        return f"{name} may use {may}, and has used {_amount(limit, limit.used)}."
    if refusal.reason is Reason.NO_BOUND:
        return f"{name} may use {may} and never more (strict), {_why_unbounded(call)}"
    need = _amount(limit, refusal.need)
    bound = f"one call may use up to {need}: its input and max_tokens={call.max_tokens}"
    if not limit.used:
        return (
            f"{name} may use {may} and never more (strict), which is less than one call: {bound}."
            f" Raise the budget to at least {need}, give agent(max_tokens=…) less, or leave out"
            " strict."
        )
    return (
        f"{name} may use {may} and never more (strict), and has used"
        f" {_amount(limit, limit.used)}: what is left is less than one call ({bound})."
    )


def _why_unbounded(call: StrictCall) -> str:
    if not call.own_loop:
        return (
            "and nobody knows beforehand what this runner's calls use: take"
            ' runner="messages", or leave out strict.'
        )
    return (
        f"and the price of {call.model} is not known: set it under [prices], limit tokens, or"
        " leave out strict."
    )


def _amount(limit: Limit, amount: float) -> str:
    if limit.unit is Unit.DOLLARS:
        # A bound of a cent's part must not be shown as nothing.
        return f"${amount:,.2f}" if amount >= 0.01 or not amount else in_dollars(amount)
    return counted(round(amount), limit.unit.removesuffix("s"))
