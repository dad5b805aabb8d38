"""Give the telemetry what it tells, from the parts of the running service.

Laws: (1) everything is gathered when somebody asks; (2) a store of runs that cannot be read leaves
its metrics out, and nothing else.
Not here: what becomes of it (telemetry/).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from pathlib import Path

from jackline.assembly.observing import Observatory
from jackline.clock import Clock
from jackline.control.board import NO_FLOWS, Facts, Flows
from jackline.errors import JacklineError
from jackline.flows.local.counting import runs_by_state
from jackline.flows.records import RunState
from jackline.journal import Journal
from jackline.journal.commit_times import BOUNDS
from jackline.telemetry.exposition import Histogram
from jackline.telemetry.face import MetricsFace
from jackline.telemetry.own_process import OwnProcess
from jackline.telemetry.scrape import JournalTold, RunsTold, Seen

_log = logging.getLogger(__name__)


class Measuring:
    """The metrics of one service: their face, and the work that must go on for them."""

    def __init__(
        self,
        facts: Callable[[Flows], Facts],
        observatory: Observatory,
        journal: Journal,
        flows: Path,
        clock: Clock,
    ) -> None:
        self._facts = facts
        self._observatory = observatory
        self._journal = journal
        self._flows = flows
        self._process = OwnProcess(clock)
        self.face = MetricsFace(self._look, self._count_runs, clock)
        self.work: tuple[Callable[[], Coroutine[object, object, None]], ...] = (
            self.face.serve,
            self._process.watch,
        )

    def _look(self, runs: RunsTold | None) -> Seen:
        # First the facts: looking at the fleet counts what was put aside.
        facts = self._facts(NO_FLOWS)
        health, times = self._journal.health, self._journal.commit_times
        commits = Histogram.of(BOUNDS, times.counts, times.seconds)
        journal = JournalTold(health.ok, health.dropped, health.waiting, commits)
        return Seen(facts, self._observatory.tally, journal, self._process.told(), runs)

    def _count_runs(self) -> RunsTold | None:
        try:
            found = runs_by_state(self._flows)
        except JacklineError as error:
            _log.warning("metrics do not tell how runs stand: %s", error.message)
            return None
        _, need_you = found.get(RunState.PARKED, (0, 0))
        return RunsTold({state: count for state, (count, _) in found.items()}, need_you)
