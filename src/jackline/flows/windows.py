"""Look up what all runs have used within a rolling window, without asking the store at every call.

Rules: (1) what this process spends counts at once, what others spend within a third of a lease;
(2) setting the clock neither empties a window nor fills it.
The figures are kept in budgets/windows.py; the waiting is in leave.py and gate.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jackline.budgets.accounts import Account
from jackline.budgets.budget import Amount, Budget, Unit
from jackline.budgets.windows import Window
from jackline.clock import BelievedTime, Clock
from jackline.flows.engine import Engine


class RollingWindow:
    """One budget with a window, and the store that knows what other processes use of it."""

    def __init__(
        self,
        budget: Budget,
        engine: Engine,
        clock: Clock,
        underway: Callable[[], tuple[int, float]],
    ) -> None:
        self._window = Window(budget)
        self._engine = engine
        self._clock = clock
        # The store hears of a call's spending now and then, and when it ends; until then we count.
        self._underway = underway
        self._looking = asyncio.Lock()
        self._believed = BelievedTime(clock.wall, self._elapsed)

    @property
    def account(self) -> Account:
        """What calls reserve from and are charged to."""
        return self._window.account

    @property
    def hours(self) -> float:
        """How far back it looks."""
        return self._window.seconds / 3600

    def record(self, amount: Amount) -> None:
        """A call of this process was paid for, and charged to the account."""
        self._window.record(self._elapsed(), amount)

    async def refresh(self) -> bool:
        """Look at what others have used, if that is due; whether it was."""
        if not self._window.is_stale(self._elapsed()):
            return False
        # Whoever comes meanwhile waits for the same look: what it does not know yet is not unused.
        async with self._looking:
            now = self._elapsed()
            if not self._window.is_stale(now):
                return False
            since = self._believed.now() - self._window.seconds
            tokens, dollars = await self._engine.spent_since(since)
            underway = self._underway()
            everywhere = {Unit.TOKENS: tokens + underway[0], Unit.DOLLARS: dollars + underway[1]}
            self._window.take(now, everywhere)
            return True

    def pause(self) -> float:
        """When to look again at a spent window, by the wall clock; the next call does look."""
        self._window.look_again()
        return self._clock.wall() + self._window.pause

    def _elapsed(self) -> float:
        """Real seconds, in sleep too."""
        return self._clock.monotonic() + self._clock.slept()
