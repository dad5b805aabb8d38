"""The gate of a run: agents pass it at turn boundaries while no quota limit is in the way.

    open ──limit──► parked ──time──► probing ──the probe's call was answered──► open
                      ▲                │
                      └──── limit ─────┘          any ──close──► closed

Rules: (1) while parked, no agent passes; (2) while probing, one agent passes, and when it ends
without an answer, the next one; (3) after an opening the waiting agents follow spread out, not at
once; (4) a limit met by a call that was sent before the last opening parks nobody again, unless it
names a time yet to come; (5) waiting may be cancelled at any time and loses nothing; (6) a wake-up
has failed when a quota limit is met before any call was answered; the pause doubles with each
failed one, never ends before the limit's own reset, and after so many a person has to act; (7) the
count of wake-ups is saved in a log of the run itself, so that every process continues it; `WakeUps`
is pure.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from jackline.agents.runner import JsonObject, StopAgentError
from jackline.autopsy.figures import counted
from jackline.clock import Clock
from jackline.flows.records import CallKind, EntryRecord, call_key, task_id_of
from jackline.flows.store.run_store import Claim, RunStore

_FIRST_GUESS = 900.0
_LONGEST_GUESS = 4 * 3600.0
_LONGEST_SPREAD = 60.0
_SPREAD_EACH = 0.25


class GateState(StrEnum):
    """Who may pass."""

    OPEN = "open"
    PARKED = "parked"
    PROBING = "probing"
    CLOSED = "closed"


class Ticket:
    """One agent or step before the gate; `working` while it is past it."""

    def __init__(self, *, may_probe: bool) -> None:
        self.may_probe = may_probe
        self.working = False
        self.opening = 0
        """Which opening it passed last."""
        self.underway = False
        """Whether it has passed before: those go first as probes."""
        self.waiting: asyncio.Future[float] | None = None


class Gate:
    """The one gate of a run."""

    def __init__(self, clock: Clock, draw: Callable[[], float]) -> None:
        self._clock = clock
        self._draw = draw
        self.state = GateState.OPEN
        self.why = ""
        self.wake_at: float | None = None
        # Whether somebody gave that date, or it is only where a pause ends.
        self._wakes_by_date = True
        self._parked_seconds = 0.0
        self.changed = asyncio.Event()
        self.came_to_rest = asyncio.Event()
        """Set when the gate is closed and nobody is past it."""
        self._parked_since: float | None = None
        self._opening = 0
        self._guesses = 0
        self._probe: Ticket | None = None
        self._stop: StopAgentError | None = None
        self._tickets: dict[Ticket, None] = {}

    # --- for those who pass -------------------------------------------------------------------

    def ticket(self, *, may_probe: bool = True) -> Ticket:
        """A place before the gate; end it with `done`."""
        ticket = Ticket(may_probe=may_probe)
        self._tickets[ticket] = None
        return ticket

    def done(self, ticket: Ticket) -> None:
        """The agent or step has ended."""
        self._tickets.pop(ticket, None)
        ticket.working = False
        self._probe_left(ticket)
        self._check_rest()

    async def enter(self, ticket: Ticket) -> None:
        """Returns when this one may go on; StopAgentError when it never may."""
        if self._may_pass(ticket):
            self._pass(ticket)
            return
        ticket.working = False
        # A probe that waits again has met the wall, or the gate is closed.
        self._probe_left(ticket)
        self._check_rest()
        while not self._may_pass(ticket):
            ticket.waiting = asyncio.get_running_loop().create_future()
            try:
                delay = await ticket.waiting
            finally:
                ticket.waiting = None
            if delay:
                await self._clock.sleep(delay)
        self._pass(ticket)

    def answered(self, ticket: Ticket) -> None:
        """A call of this one was answered; the probe's answer opens the gate."""
        if self.state is GateState.PROBING and ticket is self._probe:
            self._opening += 1
            self._guesses = 0
            self._probe = None
            self._set(GateState.OPEN)
            self._free(self._tickets, min(_LONGEST_SPREAD, _SPREAD_EACH * self.waiting))

    def wall(
        self,
        ticket: Ticket,
        why: str,
        resets_at: float | None,
        *,
        needs_person: bool = False,
        is_date: bool = True,
    ) -> None:
        """This one met a wall; with `needs_person`, only a person can take it away.

        `is_date`: the reset was announced as a date; otherwise it is reckoned from a duration.
        """
        now = self._clock.wall()
        if self.state is GateState.CLOSED:
            return
        if self.state is GateState.PARKED:
            if resets_at is not None and self.wake_at is not None and resets_at > self.wake_at:
                self.why, self.wake_at, self._wakes_by_date = why, resets_at, is_date
                self.changed.set()
            return
        sent_before = ticket.opening < self._opening
        if sent_before and (resets_at is None or resets_at <= now):
            return
        guess = 0.0
        if resets_at is None or resets_at <= now:
            # Nothing says when to try again: after a while, then ever more rarely.
            guess = now + min(_LONGEST_GUESS, _FIRST_GUESS * 2.0**self._guesses)
            self._guesses += 1
        self._wakes_by_date = is_date and not guess
        self.why, self._probe = why, None
        self.wake_at = None if needs_person else max(resets_at or 0.0, guess)
        self._set(GateState.PARKED)

    def wait_for(self, why: str, wake_at: float | None) -> None:
        """Stay parked until then, later than the wall's reset; None: until a person acts."""
        if self.state is GateState.PARKED and (why, wake_at) != (self.why, self.wake_at):
            self.why, self.wake_at, self._wakes_by_date = why, wake_at, False
            self.changed.set()

    def follow_clock(self, set_by: float) -> None:
        """The wall clock was set by so much: a pause still ends when it would have ended."""
        if self.wake_at is not None and not self._wakes_by_date:
            self.wake_at += set_by
            self.changed.set()

    # --- for the run --------------------------------------------------------------------------

    def probe(self) -> None:
        """It is time: one agent may pass, to see whether the wall is gone."""
        if self.state in (GateState.PARKED, GateState.OPEN):
            self._set(GateState.PROBING)
            self._probe = None
            self._free([ticket for ticket in self._tickets if not ticket.may_probe])
            self._next_probe()

    def close(self, stop: StopAgentError | None = None) -> None:
        """Nobody passes any more: those who come wait for good, or are stopped with `stop`."""
        self._stop = self._stop or stop
        self._set(GateState.CLOSED)
        if stop is not None:
            self._free(self._tickets)
        self._check_rest()

    def parked_for(self) -> float:
        """How long nobody passed, in all: the run's duration is without it."""
        if self._parked_since is None:
            return self._parked_seconds
        return self._parked_seconds + self._clock.monotonic() - self._parked_since

    @property
    def quiet(self) -> bool:
        """Whether nobody is past the gate."""
        return not any(ticket.working for ticket in self._tickets)

    @property
    def agents(self) -> int:
        """How many agents have not ended, before or past the gate."""
        return sum(ticket.may_probe for ticket in self._tickets)

    @property
    def waiting(self) -> int:
        """How many wait before the gate."""
        return sum(ticket.waiting is not None for ticket in self._tickets)

    # --- the machine --------------------------------------------------------------------------

    def _may_pass(self, ticket: Ticket) -> bool:
        if self.state is GateState.CLOSED:
            if self._stop is not None:
                raise StopAgentError(self._stop.ending, self._stop.evidence)
            return False
        if self.state is GateState.PROBING:
            return not ticket.may_probe or self._probe in (None, ticket)
        return self.state is GateState.OPEN

    def _pass(self, ticket: Ticket) -> None:
        if self.state is GateState.PROBING and ticket.may_probe:
            self._probe = ticket
        ticket.working = ticket.underway = True
        ticket.opening = self._opening

    def _set(self, state: GateState) -> None:
        now = self._clock.monotonic()
        if self._parked_since is not None:
            self._parked_seconds += now - self._parked_since
        self._parked_since = now if state is GateState.PARKED else None
        self.state = state
        self.changed.set()

    def _probe_left(self, ticket: Ticket) -> None:
        if ticket is self._probe:
            self._probe = None
            if self.state is GateState.PROBING:
                self._next_probe()

    def _next_probe(self) -> None:
        waiting = [t for t in self._tickets if t.waiting is not None and t.may_probe]
        # One that has begun shows as much as a new one, and costs more while it is idle.
        waiting.sort(key=lambda ticket: not ticket.underway)
        self._free(waiting[:1])

    def _free(self, tickets: Iterable[Ticket], spread: float = 0.0) -> None:
        """Let those of them that wait pass, within so many seconds."""
        for ticket in tickets:
            if ticket.waiting is not None and not ticket.waiting.done():
                ticket.waiting.set_result(self._draw() * spread if spread else 0.0)

    def _check_rest(self) -> None:
        if self.state is GateState.CLOSED and self.quiet:
            self.came_to_rest.set()


FIRST_PAUSE = 300.0
LONGEST_PAUSE = 4 * 3600.0
_KIND = "flow:wake-ups"


@dataclass(frozen=True, slots=True)
class WakeUps:
    """How many wake-ups in a row have met a wall, and whether one is being tried."""

    failed: int = 0
    trying: bool = False

    def woke(self, *, by_person: bool = False) -> WakeUps:
        """The run wakes: by itself, or since a person ordered it."""
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
        """When to wake next; None when a person has to decide."""
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
        """As it is saved."""
        return {"failed": self.failed, "trying": self.trying}

    @classmethod
    def from_json(cls, saved: JsonObject) -> WakeUps:
        """As it was saved."""
        failed = saved.get("failed")
        return cls(failed if isinstance(failed, int) else 0, trying=bool(saved.get("trying")))


class StoredWakeUps:
    """The wake-ups of one run, across processes."""

    def __init__(self, engine: RunStore, claim: Claim, clock: Clock) -> None:
        self._engine = engine
        self._claim = claim
        self._clock = clock
        self._name = task_id_of(claim.run_id, call_key(CallKind.STEP, "", "wake-ups"), 0)
        self._lines = 0
        self._saved = WakeUps()
        self.now = WakeUps()

    async def load(self) -> None:
        """Read what earlier processes have counted."""
        for line in await self._engine.entries(self._name):
            self._lines = line.number
            self._saved = WakeUps.from_json(json.loads(line.data))
        self.now = self._saved

    async def save(self) -> None:
        """Save the count, if it has changed."""
        now = self.now
        if now == self._saved:
            return
        self._saved = now
        self._lines += 1
        data = json.dumps(now.to_json()).encode()
        line = EntryRecord(self._name, self._lines, _KIND, data, self._clock.wall())
        await self._engine.write_entry(self._claim, line)
