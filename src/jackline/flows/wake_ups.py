"""Back off from a wall that is met again and again, and stop asking it after a while.

    parked ──woke──► woken ──a call was answered──► nothing to count
       ▲               │
       └── met a wall ─┘   one more failed wake-up: a longer pause, at last a person's turn

Rules: (1) `WakeUps` is pure; (2) a wake-up has failed when a quota wall is met before any call was
answered; a person's own try is none; (3) the pause doubles with each failed one and never ends
before the wall's own reset; (4) the count is kept in a notebook of the run itself, so that every
process goes on with it. Whether a run may wake at its time is decided in waking.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from jackline.agents.task import JsonObject
from jackline.autopsy.figures import counted
from jackline.clock import Clock
from jackline.flows.engine import Claim, Engine
from jackline.flows.keys import call_key, task_id_of
from jackline.flows.records import CallKind, EntryRecord

FIRST_PAUSE = 300.0
LONGEST_PAUSE = 4 * 3600.0
_KIND = "flow:wake-ups"


@dataclass(frozen=True, slots=True)
class WakeUps:
    """How many wake-ups in a row have met a wall, and whether one is being tried."""

    failed: int = 0
    trying: bool = False

    def woke(self, *, by_person: bool = False) -> WakeUps:
        """The run goes on: by itself, or since a person said so."""
        return WakeUps() if by_person else WakeUps(self.failed, trying=True)

    def answered(self) -> WakeUps:
        """A call of an agent was answered: the wall is gone."""
        return WakeUps()

    def met_wall(self) -> WakeUps:
        """The run is parked."""
        return WakeUps(self.failed + self.trying)

    def is_over(self, most: int) -> bool:
        """Whether it is a person's turn; 0: never."""
        return 0 < most <= self.failed

    def wake_at(self, now: float, resets_at: float | None, most: int) -> float | None:
        """When to wake next; None when a person has to say so."""
        if resets_at is None or self.is_over(most):
            return None
        if not self.failed:
            return resets_at
        # The exponent is bounded, or a long count would overflow.
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.failed - 1, 16))
        return max(resets_at, now + pause)

    def why(self, wall: str, most: int) -> str:
        """Why it is parked, for a person."""
        if not self.is_over(most):
            return wall
        times = counted(self.failed, "time")
        return f"{wall.rstrip('.')}; it woke {times} in a row and met a wall each time"

    def to_json(self) -> JsonObject:
        """As it is kept."""
        return {"failed": self.failed, "trying": self.trying}

    @classmethod
    def from_json(cls, kept: JsonObject) -> WakeUps:
        """As it was kept."""
        failed = kept.get("failed")
        return cls(failed if isinstance(failed, int) else 0, trying=bool(kept.get("trying")))


class KeptWakeUps:
    """The wake-ups of one run, across processes."""

    def __init__(self, engine: Engine, claim: Claim, clock: Clock) -> None:
        self._engine = engine
        self._claim = claim
        self._clock = clock
        self._name = task_id_of(claim.run_id, call_key(CallKind.STEP, "", "wake-ups"), 0)
        self._lines = 0
        self._kept = WakeUps()
        self.now = WakeUps()
        """Where they stand."""

    async def load(self) -> None:
        """Read what earlier processes have counted."""
        for line in await self._engine.entries(self._name):
            self._lines = line.number
            self._kept = WakeUps.from_json(json.loads(line.data))
        self.now = self._kept

    async def keep(self) -> None:
        """Keep where they stand, if that is new."""
        now = self.now
        if now == self._kept:
            return
        self._kept = now
        self._lines += 1
        data = json.dumps(now.to_json()).encode()
        line = EntryRecord(self._name, self._lines, _KIND, data, self._clock.wall())
        await self._engine.write_entry(self._claim, line)
