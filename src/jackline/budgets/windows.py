"""Keep what all runs have used within a rolling window, as far as it is known here.

Rules: (1) pure: `now` is real seconds on a line that nobody sets; (2) what this process uses counts
at once, what others use when somebody looks; (3) what was used here within the window is never
forgotten earlier, whatever a store says.
Asking the store, and waiting for a spent window, are the caller's.
"""

from __future__ import annotations

from collections import deque

from jackline.budgets.accounts import Account, Limit
from jackline.budgets.budget import Amount, Budget, Unit

_FRESH = 5.0
_LOOKS = 12
"""How often within a window one looks whether it has room again."""


class Window:
    """One budget with a window; `account` is what calls reserve from and are charged to."""

    def __init__(self, budget: Budget) -> None:
        self.seconds = budget.window_seconds or 0.0
        self.account = Account(f"The last {self.seconds / 3600:g} h")
        self.account.refills = True
        self.account.limits = [
            Limit(self.account, unit, amount, strict=budget.strict)
            for unit, amount in budget.rolling_limits
        ]
        self._looked_at: float | None = None
        # What was paid for here, and when: a store knows it by the wall clock's time alone.
        self._here: deque[tuple[float, Amount]] = deque()

    def record(self, now: float, amount: Amount) -> None:
        """Note when this was charged to the account."""
        self._here.append((now, amount))

    def is_stale(self, now: float) -> bool:
        """Whether it is time to look at what others have used."""
        return self._looked_at is None or now - self._looked_at >= _FRESH

    def look_again(self) -> None:
        """Let the next one look, however fresh the figures are."""
        self._looked_at = None

    def take(self, now: float, everywhere: Amount) -> None:
        """Somebody has looked: so much was used within the window, by all."""
        self._looked_at = now
        while self._here and self._here[0][0] < now - self.seconds:
            self._here.popleft()
        for unit in (Unit.TOKENS, Unit.DOLLARS):
            here = sum(amount.get(unit, 0) for _, amount in self._here)
            self.account.used[unit] = max(everywhere.get(unit, 0), here)

    @property
    def pause(self) -> float:
        """Seconds after which it is worth looking whether a spent window has room again."""
        return self.seconds / _LOOKS
