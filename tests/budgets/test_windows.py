"""A rolling window counts what was used here at once, and forgets it when it has rolled past."""

from __future__ import annotations

from jackline.budgets.budget import Budget, BudgetWindow, Unit

TOKENS = Unit.TOKENS


def test_what_was_used_here_is_not_forgotten_before_the_window_has_rolled_past() -> None:
    window = BudgetWindow(Budget(tokens=500, window="1h"))
    window.record(10.0, {TOKENS: 400})
    window.update(20.0, {TOKENS: 0})
    assert window.account.used[TOKENS] == 400, "a store that forgets does not empty the window"
    window.update(3_609.0, {TOKENS: 0})
    assert window.account.used[TOKENS] == 400
    window.update(3_611.0, {TOKENS: 30})
    assert window.account.used[TOKENS] == 30


def test_what_others_use_is_looked_up_again_after_a_while() -> None:
    window = BudgetWindow(Budget(dollars=5, window="1h", strict=True))
    assert window.is_stale(0.0)
    window.update(0.0, {Unit.DOLLARS: 1.5})
    assert not window.is_stale(4.9)
    assert window.is_stale(5.0)
    window.update(5.0, {Unit.DOLLARS: 1.5})
    window.expire()
    assert window.is_stale(5.0)
    (limit,) = window.account.limits
    assert (limit.unit, limit.amount, limit.used, limit.strict) == (Unit.DOLLARS, 5, 1.5, True)
