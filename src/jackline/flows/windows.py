"""Ask whether a rolling budget over all runs is spent, without asking the store at every call.

Laws: (1) what this process spends counts at once, what others spend within a third of a lease; (2)
a spent window is a reason to wait, not to fail; (3) setting the clock neither empties a window nor
fills it.
Not here: budgets of one run (spending.py), the waiting (gate.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from jackline.clock import BelievedTime, Clock
from jackline.flows.engine import Engine
from jackline.flows.settings import Budget

_FRESH = 5.0
_LOOKS = 12
"""How often within a window we look whether it has room again."""


class RollingWindow:
    """One budget with a window."""

    def __init__(
        self,
        budget: Budget,
        engine: Engine,
        clock: Clock,
        underway: Callable[[], tuple[int, float]],
    ) -> None:
        self._budget = budget
        self._window = budget.window_seconds or 0.0
        self._engine = engine
        self._clock = clock
        # The store hears of a call's spending now and then, and when it ends; until then we count.
        self._underway = underway
        self._believed = BelievedTime(clock.wall, self._elapsed)
        self._looked_at: float | None = None
        # What was paid for here, and when: the store knows it by the wall clock's time alone.
        self._here: deque[tuple[float, int, float]] = deque()
        self._tokens = 0
        self._dollars = 0.0

    def charge(self, tokens: int, dollars: float) -> None:
        """A call of this process was paid for."""
        self._here.append((self._elapsed(), tokens, dollars))
        self._tokens += tokens
        self._dollars += dollars

    async def spent_until(self) -> tuple[float, str] | None:
        """When to look again and the reason, if the window is spent."""
        now = self._elapsed()
        if self._looked_at is None or now - self._looked_at >= _FRESH:
            self._looked_at = now
            ended = await self._engine.spent_since(self._believed.now() - self._window)
            underway, here = self._underway(), self._spent_here(now)
            self._tokens = max(ended[0] + underway[0], here[0])
            self._dollars = max(ended[1] + underway[1], here[1])
        budget = self._budget
        hours = self._window / 3600
        if budget.tokens is not None and self._tokens >= budget.tokens:
            why = f"{self._tokens:,} of {budget.tokens:,} tokens in {hours:g} h are used"
        elif budget.dollars is not None and self._dollars >= budget.dollars:
            why = f"${self._dollars:,.2f} of ${budget.dollars:,.2f} in {hours:g} h are used"
        else:
            return None
        self._looked_at = None
        return self._clock.wall() + self._window / _LOOKS, why

    def _elapsed(self) -> float:
        """Real seconds, in sleep too."""
        return self._clock.monotonic() + self._clock.slept()

    def _spent_here(self, now: float) -> tuple[int, float]:
        while self._here and self._here[0][0] < now - self._window:
            self._here.popleft()
        return sum(each[1] for each in self._here), sum(each[2] for each in self._here)
