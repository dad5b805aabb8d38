"""Give the telemetry what it tells, from the parts of the running service.

Laws: (1) everything is gathered when somebody asks; (2) a store of runs that cannot be read leaves
its metrics out, and nothing else.
Not here: what becomes of it (telemetry/).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path

from jackline.assembly.observing import Observatory
from jackline.clock import Clock
from jackline.control.board import NO_FLOWS, Facts, Flows
from jackline.control.fleet_reading import fleet_reading
from jackline.dashboard.flow_book import FlowBook
from jackline.errors import JacklineError
from jackline.flows.local.counting import runs_by_state
from jackline.flows.records import RunState
from jackline.journal import Journal
from jackline.journal.commit_times import BOUNDS
from jackline.telemetry.exposition import Histogram
from jackline.telemetry.face import ReadingsFace
from jackline.telemetry.own_process import OwnProcess
from jackline.telemetry.scrape import JournalTold, RunsTold, Seen

_log = logging.getLogger(__name__)


class Measuring:
    """What programs may read of one service: the face, and the work that must go on for it."""

    def __init__(
        self,
        facts: Callable[[Flows], Facts],
        observatory: Observatory,
        journal: Journal,
        flows: Path,
        book: FlowBook,
        clock: Clock,
    ) -> None:
        self._facts = facts
        self._observatory = observatory
        self._journal = journal
        self._store = flows
        self._book = book
        self._flows = NO_FLOWS
        self._runs: RunsTold | None = None
        self._process = OwnProcess(clock)
        self.face = ReadingsFace(self._look, self._fleet, self._refresh, clock)
        self.work: tuple[Callable[[], Coroutine[object, object, None]], ...] = (
            self.face.serve,
            self._process.watch,
        )

    def _fleet(self) -> dict[str, object]:
        return fleet_reading(self._facts(self._flows))

    def _look(self) -> Seen:
        # First the facts: looking at the fleet counts what was put aside.
        facts = self._facts(self._flows)
        health, times = self._journal.health, self._journal.commit_times
        commits = Histogram.of(BOUNDS, times.counts, times.seconds)
        journal = JournalTold(health.ok, health.dropped, health.waiting, commits)
        watched, process = self._observatory, self._process.told()
        return Seen(facts, watched.tally, journal, process, self._runs, watched.spent_before)

    async def _refresh(self) -> None:
        self._flows = await self._book.look()
        self._runs = await asyncio.to_thread(self._count_runs)

    def _count_runs(self) -> RunsTold | None:
        try:
            found = runs_by_state(self._store)
        except JacklineError as error:
            _log.warning("metrics do not tell how runs stand: %s", error.message)
            return None
        _, need_you = found.get(RunState.PARKED, (0, 0))
        return RunsTold({state: count for state, (count, _) in found.items()}, need_you)
