"""The model of a provider: requests arrive; answers, refusals and silences come out in time.

Rules: (1) no I/O, no clock, no randomness but the draws that are arguments; the same settings and
seed play the same provider; (2) time never goes back; (3) an exchange has at most one planned
step, the one with its ticket, so a cancelled one leaves nothing behind; (4) equal times preserve
the order in which they were planned; (5) windows are checked before rates; nothing is counted
unless every limit admits the request, and refusals have the headers of the limits, as answers do.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from jackline.simulator.exchange import (
    NO_HEADERS,
    OVERLOADED,
    SERVER_ERROR,
    THROTTLED,
    Accepted,
    Bytes,
    Completed,
    ConnectionBroken,
    How,
    ProviderEvent,
    ProviderRefusal,
    Rejected,
    SimRequest,
)
from jackline.simulator.faults import ActiveFault, Effect, Fault, FaultBoard
from jackline.simulator.ledger import LedgerEntry, RequestLedger, RequestOutcome
from jackline.simulator.limits import (
    BucketSettings,
    ConcurrencyCap,
    HiddenCapacity,
    HiddenCapacitySettings,
    ProviderLimit,
    QuotaWindow,
    QuotaWindowSettings,
    RateBucket,
)
from jackline.simulator.prompt_cache import Hit, PromptCache
from jackline.simulator.time_model import Calendar, ServiceSettings, seeded_random

MODELS = ("claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5-20251001")


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Limits, windows, scheduled faults and speeds; none of the first three by default.

    `demands_credential`: requests without any credential are refused. `admin_key` opens the
    vendors' rate-limits APIs; without it there are none.
    """

    buckets: tuple[BucketSettings, ...] = ()
    concurrency: ConcurrencyCap | None = None
    hidden: HiddenCapacitySettings | None = None
    windows: tuple[QuotaWindowSettings, ...] = ()
    faults: tuple[Fault, ...] = ()
    service: ServiceSettings = field(default_factory=ServiceSettings)
    calendar: Calendar = field(default_factory=Calendar)
    models: tuple[str, ...] = MODELS
    demands_credential: bool = False
    admin_key: str = ""


class Admission:
    """All limits of one provider."""

    def __init__(self, settings: ProviderSettings, draw: random.Random, start: float) -> None:
        calendar = settings.calendar
        self.windows = [QuotaWindow(one, calendar, start) for one in settings.windows]
        self.buckets = [RateBucket(one, calendar, start) for one in settings.buckets]
        self._limits: list[ProviderLimit] = [*self.windows, *self.buckets]
        if settings.concurrency is not None:
            self._limits.append(settings.concurrency)
        if settings.hidden is not None:
            self._limits.append(HiddenCapacity(settings.hidden, draw, start))

    def refusal(self, now: float, request: SimRequest, in_flight: int) -> ProviderRefusal | None:
        """The refusal of the first limit that refuses, or None."""
        for limit in self._limits:
            refusal = limit.check(now, request, in_flight)
            if refusal is not None:
                headers = self._announced(now, request)
                headers.update(refusal.headers)
                for other in self._limits:
                    other.refused(now, request)
                return replace(refusal, headers=headers)
        return None

    def take(self, now: float, request: SimRequest) -> Mapping[str, str]:
        """Count an admitted request; returns the headers of its answer."""
        if not self._limits:
            return NO_HEADERS
        for limit in self._limits:
            limit.take(now, request)
        return self._announced(now, request)

    def finished(self, now: float, request: SimRequest, output_tokens: int) -> None:
        """Count what an admitted request has generated."""
        for limit in self._limits:
            limit.finished(now, request, output_tokens)

    def _announced(self, now: float, request: SimRequest) -> dict[str, str]:
        headers: dict[str, str] = {}
        for limit in self._limits:
            limit.announce(now, request, headers)
        return headers


NO_STEP = -1


class PlannedStep(IntEnum):
    """What the next planned moment of an exchange is."""

    FIRST_BYTE = 0
    ALIVE = 1
    LAST_BYTE = 2
    REFUSAL = 3
    BREAK = 4
    SILENCE = 5


@dataclass(slots=True, eq=False)
class OpenExchange:
    """One open request; `ticket` is the heap entry that is still valid for it.

    `ends` is when a healthy answer would end, `stops` when this one ends, breaks or falls silent;
    `failure` is the text of an error event inside the answer.
    """

    id: int
    request: SimRequest
    entry: LedgerEntry
    ticket: int = NO_STEP
    admitted: bool = False
    begun: bool = False
    begins: float = 0.0
    ends: float = 0.0
    stops: float = 0.0
    last_step: PlannedStep = PlannedStep.LAST_BYTE
    output_tokens: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    refusal: ProviderRefusal | None = None
    how: How = How.CUT
    failure: ProviderRefusal = OVERLOADED
    at_byte: int | None = None
    silent_since: float | None = None

    def share(self, now: float) -> float:
        """How much of the answer is generated."""
        if now >= self.ends:
            return 1.0
        return max(0.0, (now - self.begins) / (self.ends - self.begins))


# Error events by status; without one it is an overload.
_EVENTS = {429: THROTTLED, 500: SERVER_ERROR}


class ProviderModel:
    """A provider without I/O; drive it with `arrive`, `next_at`, `advance` and `cancel`."""

    def __init__(self, settings: ProviderSettings, draw: random.Random, start: float = 0.0) -> None:
        self.settings = settings
        self.ledger = RequestLedger()
        # Requests that are no model calls: models listed, tokens counted.
        self.side_ledger = RequestLedger()
        self.cache = PromptCache()
        self.in_flight = 0
        self.now = start
        self._service_draw = seeded_random(draw)
        self._latency_draw = seeded_random(draw)
        self._board = FaultBoard(settings.calendar, seeded_random(draw))
        self.admission = Admission(settings, draw, start)
        self._ticket = 0
        self._heap: list[tuple[float, int, PlannedStep, OpenExchange | None]] = []
        self._fault_starts: dict[int, ActiveFault] = {}
        self._open: dict[int, OpenExchange] = {}
        self._ready: list[ProviderEvent] = []
        self._loaded: float | None = None
        for fault in settings.faults:
            self.add_fault(start, fault)

    # --- driving it -----------------------------------------------------------------

    def arrive(
        self, now: float, request: SimRequest, forced: ProviderRefusal | Fault | None = None
    ) -> int:
        """Accept a request; its id is in the events that follow.

        What a script has `forced` on this one request comes before faults and limits.
        """
        now = self._settle(now)
        if request.prompt is not None and not request.is_side_request:
            hit = self.cache.look(request.prompt, now)
            request = replace(request, hit=hit, input_tokens=request.prompt.tokens)
        # Model calls count upwards from zero, side requests downwards, so that ids stay unique.
        ledger = self._ledger_of(request)
        id = -1 - len(ledger) if request.is_side_request else len(ledger)  # noqa: A001
        exchange = OpenExchange(id, request, ledger.opened(id, now, request))
        self._open[id] = exchange
        if forced is None:
            active, effect = self._board.hit(now, request, self.in_flight, self._on_fault_start)
        else:
            active, effect = self._board.force(now, forced)
        if effect is Effect.HANG:
            return id
        if effect is Effect.REFUSED or effect is Effect.RESET:
            exchange.how = How(effect)
            self._plan(now + 0.05 * self._latency_draw.random(), exchange, PlannedStep.BREAK)
            return id
        refusal = None if isinstance(effect, Effect) else effect
        if refusal is None and not request.is_side_request:
            refusal = self.admission.refusal(now, request, self.in_flight)
        if refusal is None:
            self._admit(now, exchange, active)
            return id
        exchange.refusal = refusal
        if refusal.wall:
            self._ledger_of(request).met_wall(exchange.entry)
        latency = self.settings.service.refusal_latency(refusal.status, self._latency_draw)
        self._plan(now + latency, exchange, PlannedStep.REFUSAL)
        return id

    def next_at(self) -> float | None:
        """When something happens next, or None if nothing ever will."""
        if self._ready:
            return self.now
        heap = self._heap
        while heap:
            at, ticket, _, exchange = heap[0]
            if exchange is None or exchange.ticket == ticket:
                return at
            heapq.heappop(heap)
        return None

    def advance(self, now: float) -> list[ProviderEvent]:
        """Everything that has happened until now, in order."""
        self._settle(now)
        events, self._ready = self._ready, []
        return events

    def cancel(self, now: float, id: int) -> None:  # noqa: A002
        """The client hung up; what was generated for it until now is spent."""
        now = self._settle(now)
        exchange = self._open.get(id)
        if exchange is not None:
            spent = self._spent(now, exchange)
            self._close(now, exchange, RequestOutcome.CANCELLED, "cancelled", spent)

    def hit(self, id: int) -> Hit | None:  # noqa: A002
        """What the prompt caches hold of an open request; None for one without a prompt."""
        exchange = self._open.get(id)
        return None if exchange is None else exchange.request.hit

    # --- faults at run time ---------------------------------------------------------

    @property
    def faults(self) -> list[ActiveFault]:
        """The faults that are or will be active, and those just over."""
        return self._board.faults

    def add_fault(self, now: float, fault: Fault) -> int:
        """Add a fault; the handle clears it."""
        now = self._settle(now)
        active = self._board.add(fault)
        if fault.kills_in_flight or fault.freezes_in_flight:
            if fault.start <= now:
                self._on_fault_start(now, active)
            else:
                self._ticket += 1
                self._fault_starts[self._ticket] = active
                heapq.heappush(self._heap, (fault.start, self._ticket, PlannedStep.BREAK, None))
        return active.handle

    def clear_faults(self, now: float, handle: int | None = None) -> None:
        """End one fault, or all; those with a recovery recover from now on."""
        self._board.clear(self._settle(now), handle)

    def can_connect(self, now: float) -> tuple[bool, float | None]:
        """Whether clients can connect at all, and when that changes by schedule."""
        return self._board.can_connect(now)

    def _on_fault_start(self, now: float, active: ActiveFault) -> None:
        """Break or freeze what is in flight when a fault begins, or a recovery collapses."""
        if active not in self._board.faults:
            return  # it was cleared before it began
        fault = active.fault
        for exchange in list(self._open.values()):
            if not exchange.admitted or fault.model not in exchange.request.model:
                continue
            if fault.freezes_in_flight:
                exchange.ticket = NO_STEP
                exchange.silent_since = now
            elif active.draw.random() < fault.kills_in_flight:
                exchange.how = How.CUT if exchange.begun else How.RESET
                exchange.at_byte = None
                self._break(now, exchange)

    # --- deciding -------------------------------------------------------------------

    def _admit(self, now: float, exchange: OpenExchange, active: ActiveFault | None) -> None:
        request = exchange.request
        if request.is_side_request:
            exchange.begins = exchange.ends = exchange.stops = now
        else:
            exchange.headers = self.admission.take(now, request)
            self.in_flight += 1
            self.ledger.admitted(exchange.entry, request.hit)
            if request.hit is not None:
                self.cache.admitted(request.hit)
            service = self.settings.service
            first_byte, last_byte, tokens = service.course(request, self._service_draw)
            exchange.admitted = True
            exchange.output_tokens = tokens
            if self._loaded is None:
                # The first request lets the model load.
                self._loaded = now + service.cold_start
            loaded = max(0.0, self._loaded - now)
            exchange.begins = now + loaded + first_byte
            exchange.ends = exchange.stops = now + loaded + last_byte
        if active is not None:
            self._distort(now, exchange, active)
        # An answer in one piece is not sent before it is whole.
        first = exchange.begins if request.stream else exchange.stops
        self._plan(first, exchange, PlannedStep.FIRST_BYTE)

    def _distort(self, now: float, exchange: OpenExchange, active: ActiveFault) -> None:
        """Change the course of an admitted answer as the fault demands."""
        fault = active.fault
        length = exchange.ends - exchange.begins
        if fault.effect is Effect.LATE:
            exchange.begins += fault.lateness(now, exchange.request)
            exchange.ends = exchange.stops = exchange.begins + length
            return
        if fault.effect is Effect.SLOW_DRIP:
            exchange.ends = exchange.stops = exchange.begins + length * fault.slowness
            return
        exchange.at_byte = fault.at_byte
        share = fault.at_share if fault.at_byte is None else 0.0
        exchange.stops = exchange.begins + length * (
            active.draw.random() if share is None else share
        )
        if fault.effect is Effect.SILENCE:
            exchange.last_step = PlannedStep.SILENCE
        else:
            exchange.last_step = PlannedStep.BREAK
            exchange.how = How(fault.effect)
            exchange.failure = _EVENTS.get(fault.status or 0, OVERLOADED)

    # --- playing it out -------------------------------------------------------------

    def _plan(self, at: float, exchange: OpenExchange, step: PlannedStep) -> None:
        self._ticket += 1
        exchange.ticket = self._ticket
        heapq.heappush(self._heap, (at, self._ticket, step, exchange))

    def _settle(self, now: float) -> float:
        """Play out everything until now; returns the model's time, which never goes back."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, ticket, step, exchange = heapq.heappop(heap)
            self.now = max(self.now, at)
            if exchange is None:
                self._on_fault_start(at, self._fault_starts.pop(ticket))
            elif exchange.ticket == ticket:
                self._play(at, exchange, step)
        self.now = max(self.now, now)
        return self.now

    def _play(self, at: float, exchange: OpenExchange, step: PlannedStep) -> None:
        if step is PlannedStep.ALIVE:
            self._ready.append(Bytes(exchange.id, at, exchange.share(at)))
            self._plan_rest(at, exchange)
        elif step is PlannedStep.FIRST_BYTE:
            self._begin(at, exchange)
        elif step is PlannedStep.LAST_BYTE:
            self._complete(at, exchange)
        elif step is PlannedStep.REFUSAL:
            self._deliver_refusal(at, exchange)
        elif step is PlannedStep.BREAK:
            self._break(at, exchange)
        else:
            self._ready.append(Bytes(exchange.id, at, exchange.share(at)))
            exchange.ticket = NO_STEP
            exchange.silent_since = at

    def _begin(self, at: float, exchange: OpenExchange) -> None:
        if exchange.request.stream:
            self._accept(at, exchange)
            self._plan_rest(at, exchange)
        elif exchange.last_step is PlannedStep.LAST_BYTE:
            self._accept(at, exchange)
            self._complete(at, exchange)
        elif exchange.last_step is PlannedStep.SILENCE:
            exchange.ticket = NO_STEP
        elif exchange.how is How.ERROR_EVENT:
            exchange.refusal = exchange.failure
            self._deliver_refusal(at, exchange)
        else:
            self._accept(at, exchange)
            self._break(at, exchange)

    def _accept(self, at: float, exchange: OpenExchange) -> None:
        exchange.begun = True
        exchange.entry.first_byte = at
        if exchange.request.hit is not None:
            self.cache.begun(exchange.request.hit, at)
        self._ready.append(Accepted(exchange.id, at, exchange.headers))

    def _plan_rest(self, at: float, exchange: OpenExchange) -> None:
        every = self.settings.service.bytes_every
        if every and at + every < exchange.stops:
            self._plan(at + every, exchange, PlannedStep.ALIVE)
        else:
            self._plan(exchange.stops, exchange, exchange.last_step)

    def _complete(self, at: float, exchange: OpenExchange) -> None:
        tokens = exchange.output_tokens
        self._close(at, exchange, RequestOutcome.COMPLETED, "completed", tokens)
        self._ready.append(Completed(exchange.id, at, exchange.request.input_tokens, tokens))

    def _deliver_refusal(self, at: float, exchange: OpenExchange) -> None:
        refusal = exchange.refusal
        if refusal is None:
            raise AssertionError("a planned refusal is set")
        spent = self._spent(at, exchange)
        self._close(at, exchange, RequestOutcome.REJECTED, str(refusal.status), spent)
        parts = (refusal.status, refusal.headers, refusal.body, refusal.wall, refusal.over)
        self._ready.append(Rejected(exchange.id, at, *parts))

    def _break(self, at: float, exchange: OpenExchange) -> None:
        how, spent = exchange.how, self._spent(at, exchange)
        share = exchange.share(at) if exchange.begun else 0.0
        self._close(at, exchange, RequestOutcome.BROKEN, how.value, spent)
        body = exchange.failure.body if how is How.ERROR_EVENT else ""
        self._ready.append(ConnectionBroken(exchange.id, at, how, share, body, exchange.at_byte))

    def _spent(self, now: float, exchange: OpenExchange) -> int:
        """The output that was generated in vain."""
        if not exchange.admitted:
            return 0
        until = now if exchange.silent_since is None else exchange.silent_since
        return math.floor(exchange.output_tokens * exchange.share(until))

    def _close(
        self, now: float, exchange: OpenExchange, outcome: RequestOutcome, why: str, tokens: int
    ) -> None:
        exchange.ticket = NO_STEP
        del self._open[exchange.id]
        if exchange.admitted:
            self.in_flight -= 1
            self.admission.finished(now, exchange.request, tokens)
        self._ledger_of(exchange.request).ended(exchange.entry, now, outcome, why, tokens)

    def _ledger_of(self, request: SimRequest) -> RequestLedger:
        return self.side_ledger if request.is_side_request else self.ledger
