"""Know what agents underway have used, and keep it before they end.

Laws: (1) what is kept of an agent underway counts once: its end adds only the rest; (2) a crash
costs a budget no more than what was used since the last answer, or since it was kept last.
Not here: when it is kept (running.py), what a notebook holds (notebook.py), budgets (budgets/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from jackline.flows.engine import Claim, Engine
from jackline.flows.notebook import KeptNotebook, Used
from jackline.flows.records import CallRecord
from jackline.flows.time_limits import WorkTime

CallName: TypeAlias = tuple[str, int]


class Underway:
    """The agents of one run that have begun in this process and not ended."""

    def __init__(self, engine: Engine, claim: Claim, known: dict[CallName, CallRecord]) -> None:
        self._engine = engine
        self._claim = claim
        self._known = known
        self._notebooks: dict[CallName, KeptNotebook] = {}
        self._timed: dict[KeptNotebook, WorkTime] = {}

    def add(self, name: CallName, notebook: KeptNotebook) -> None:
        """An agent has begun."""
        self._notebooks[name] = notebook

    def remove(self, name: CallName) -> KeptNotebook | None:
        """It ends: what it used is kept with its end."""
        notebook = self._notebooks.pop(name, None)
        if notebook is not None:
            self._timed.pop(notebook, None)
        return notebook

    def time(self, notebook: KeptNotebook, work: WorkTime) -> None:
        """The time of this one is limited: it is kept now and then."""
        self._timed[notebook] = work

    def is_timed(self, notebook: KeptNotebook) -> bool:
        """Whether its time is limited."""
        return notebook in self._timed

    async def keep(self) -> None:
        """Keep what all of them have used by now, for other processes and after a crash."""
        await asyncio.gather(*(work.deduct_held() for work in self._timed.values()))
        for timed in self._timed:
            timed.keep_time()
        # All at once, so that they are one write.
        await asyncio.gather(*(self._keep(name) for name in self._notebooks))

    @property
    def books(self) -> Iterable[KeptNotebook]:
        """All notebooks that are being written."""
        return set(self._notebooks.values())

    @property
    def used(self) -> list[Used]:
        """What each has used, in all processes."""
        return [notebook.used for notebook in self._notebooks.values()]

    def not_in_ledger(self) -> tuple[int, float]:
        """Tokens and dollars that were used and are not kept yet."""
        tokens, dollars = 0, 0.0
        for name, notebook in self._notebooks.items():
            call = self._known[name]
            tokens += max(0, notebook.used.usage.total - call.tokens)
            dollars += max(0.0, notebook.used.dollars - call.cost)
        return tokens, dollars

    async def _keep(self, name: CallName) -> None:
        notebook, call = self._notebooks.get(name), self._known[name]
        if notebook is None:
            return  # it has just ended, and its end tells all
        tokens, dollars = notebook.used.usage.total, notebook.used.dollars
        if tokens > call.tokens or dollars > call.cost:
            call = self._known[name] = replace(call, tokens=tokens, cost=dollars)
            await self._engine.begin_call(self._claim, call)
