"""The model of a provider: requests arrive; answers, refusals and silences come out in time.

Rules: (1) no I/O, no clock, no randomness but the draws that are arguments; the same settings and
seed play the same provider; (2) time never goes back; (3) an exchange has at most one planned
step, the one whose ticket it holds, so a cancelled one leaves nothing behind; (4) equal times
preserve the order in which they were planned; (5) windows are checked before rates; nothing is
taken unless every limit admits the request, and refusals carry what the limits announce, as
answers do.
Not here: reading settings from a file (scenario.py), bytes (anthropic_wire.py), sockets
(server.py), what the model says (reply_script.py).
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
    ConcurrencySettings,
    HiddenCapacity,
    HiddenCapacitySettings,
    ProviderLimit,
    QuotaWindow,
    QuotaWindowSettings,
    RateBucket,
)
from jackline.simulator.prompt_cache import Hit, PromptCache
from jackline.simulator.time_model import (
    Calendar,
    ServiceSettings,
    child_random,
    healthy_course,
    refusal_latency,
)

MODELS = ("claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5-20251001")


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Limits, windows, scheduled faults and speeds; none of the first three by default."""

    buckets: tuple[BucketSettings, ...] = ()
    concurrency: ConcurrencySettings | None = None
    hidden: HiddenCapacitySettings | None = None
    windows: tuple[QuotaWindowSettings, ...] = ()
    faults: tuple[Fault, ...] = ()
    service: ServiceSettings = field(default_factory=ServiceSettings)
    calendar: Calendar = field(default_factory=Calendar)
    models: tuple[str, ...] = MODELS
    demands_credential: bool = False
    """Whether requests without a credential are refused; what it is does not matter."""
    admin_key: str = ""
    """Who sends it is told the limits by the vendors' rate-limits APIs; "" has no such API."""


class Admission:
    """All limits of one provider."""

    def __init__(self, settings: ProviderSettings, draw: random.Random, start: float) -> None:
        calendar = settings.calendar
        self.windows = [QuotaWindow(one, calendar, start) for one in settings.windows]
        self.buckets = [RateBucket(one, calendar, start) for one in settings.buckets]
        self._limits: list[ProviderLimit] = [*self.windows, *self.buckets]
        if settings.concurrency is not None:
            self._limits.append(ConcurrencyCap(settings.concurrency))
        if settings.hidden is not None:
            self._limits.append(HiddenCapacity(settings.hidden, draw, start))

    def refusal(self, now: float, request: SimRequest, in_flight: int) -> ProviderRefusal | None:
        """The words of the first limit that refuses, or None."""
        for limit in self._limits:
            refusal = limit.check(now, request, in_flight)
            if refusal is not None:
                headers = self._announced(now, request)
                headers.update(refusal.headers)
                for other in self._limits:
                    other.turned_away(now, request)
                return replace(refusal, headers=headers)
        return None

    def take(self, now: float, request: SimRequest) -> Mapping[str, str]:
        """Count an admitted request; gives the headers of its answer."""
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


class OpenExchange:
    """One request under way; `ticket` is the heap entry that is still valid for it."""

    __slots__ = (
        "admitted",
        "at_byte",
        "begins",
        "begun",
        "ends",
        "entry",
        "failure",
        "headers",
        "how",
        "id",
        "last_step",
        "output_tokens",
        "refusal",
        "request",
        "silent_since",
        "stops",
        "ticket",
    )

    def __init__(self, id: int, request: SimRequest, entry: LedgerEntry) -> None:  # noqa: A002
        self.id = id
        self.request = request
        self.entry = entry
        self.ticket = NO_STEP
        self.admitted = False
        self.begun = False
        self.begins = 0.0
        self.ends = 0.0
        """When a healthy answer would end."""
        self.stops = 0.0
        """When this one ends, breaks or falls silent."""
        self.last_step = PlannedStep.LAST_BYTE
        self.output_tokens = 0
        self.headers: Mapping[str, str] = NO_HEADERS
        self.refusal: ProviderRefusal | None = None
        self.how = How.CUT
        self.failure = OVERLOADED
        """What an error event inside the answer says."""
        self.at_byte: int | None = None
        self.silent_since: float | None = None

    def share(self, now: float) -> float:
        """How much of the answer is generated."""
        if now >= self.ends:
            return 1.0
        return max(0.0, (now - self.begins) / (self.ends - self.begins))


_BREAKS = {
    Effect.CUT: How.CUT,
    Effect.CLEAN_END: How.CLEAN_END,
    Effect.ERROR_EVENT: How.ERROR_EVENT,
}
_EVENTS = {429: THROTTLED, 500: SERVER_ERROR}
"""What error events of a given status tell; without one it is an overload."""


class ProviderModel:
    """A provider in a box; drive it with `arrive`, `next_at`, `advance` and `cancel`."""

    def __init__(self, settings: ProviderSettings, draw: random.Random, start: float = 0.0) -> None:
        self.settings = settings
        self.ledger = RequestLedger()
        self.errands = RequestLedger()
        """What was asked beside model calls: models listed, tokens counted."""
        self.cache = PromptCache()
        self.in_flight = 0
        self.now = start
        self._service_draw = child_random(draw)
        self._latency_draw = child_random(draw)
        self._board = FaultBoard(settings.calendar, child_random(draw))
        self.admission = Admission(settings, draw, start)
        self._ticket = 0
        self._heap: list[tuple[float, int, PlannedStep, OpenExchange | None]] = []
        self._onsets: dict[int, ActiveFault] = {}
        self._open: dict[int, OpenExchange] = {}
        self._ready: list[ProviderEvent] = []
        self._loaded: float | None = None
        for fault in settings.faults:
            self.add_fault(start, fault)

    # --- driving it -----------------------------------------------------------------

    def arrive(
        self, now: float, request: SimRequest, ordered: ProviderRefusal | Fault | None = None
    ) -> int:
        """Take a request; its id stands in the events that follow.

        What a script has `ordered` for this one request comes before faults and limits.
        """
        now = self._settle(now)
        if request.prompt is not None and not request.errand:
            hit = self.cache.look(request.prompt, now)
            request = replace(request, hit=hit, input_tokens=request.prompt.tokens)
        # Model calls count upwards from zero, errands downwards, so that they never meet.
        book = self._book(request)
        id = -1 - len(book) if request.errand else len(book)  # noqa: A001 -- the events' word
        exchange = OpenExchange(id, request, book.opened(id, now, request))
        self._open[id] = exchange
        if ordered is None:
            active, blow = self._board.strike(now, request, self.in_flight, self._onset)
        else:
            active, blow = self._board.aim(now, ordered)
        if isinstance(blow, Effect):
            if self._cut_off(now, exchange, blow):
                return id
            blow = None
        refusal = blow
        if refusal is None and not request.errand:
            refusal = self.admission.refusal(now, request, self.in_flight)
        if refusal is None:
            self._admit(now, exchange, active)
        else:
            self._refuse(now, exchange, refusal)
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
        """The client hung up; what it had generated by now is spent."""
        now = self._settle(now)
        exchange = self._open.get(id)
        if exchange is not None:
            self._close(
                now, exchange, RequestOutcome.CANCELLED, "cancelled", self._spent(now, exchange)
            )

    def hit(self, id: int) -> Hit | None:  # noqa: A002
        """What the prompt caches hold of an open request; None for one without a prompt."""
        exchange = self._open.get(id)
        return None if exchange is None else exchange.request.hit

    def last_byte(self, now: float, id: int) -> float | None:  # noqa: A002
        """When an open stream last gave a sign of life, for drivers that do without `Bytes`."""
        exchange = self._open.get(id)
        if exchange is None or not exchange.begun:
            return None
        return now if exchange.silent_since is None else exchange.silent_since

    # --- faults at run time ---------------------------------------------------------

    @property
    def faults(self) -> list[ActiveFault]:
        """The faults that are or will be at work, and those just over."""
        return self._board.faults

    def add_fault(self, now: float, fault: Fault) -> int:
        """Let a fault strike in its window; the handle clears it."""
        now = self._settle(now)
        active = self._board.add(fault)
        if fault.kills_in_flight or fault.freezes_in_flight:
            if fault.start <= now:
                self._onset(now, active)
            else:
                self._ticket += 1
                self._onsets[self._ticket] = active
                heapq.heappush(self._heap, (fault.start, self._ticket, PlannedStep.BREAK, None))
        return active.handle

    def clear_faults(self, now: float, handle: int | None = None) -> None:
        """End one fault, or all; those with a recovery recover from now on."""
        self._board.clear(self._settle(now), handle)

    def door(self, now: float) -> tuple[bool, float | None]:
        """Whether one can connect at all, and when that changes by schedule."""
        return self._board.door(now)

    def _onset(self, now: float, active: ActiveFault) -> None:
        """Break or freeze what is in flight when a fault begins, or a recovery collapses."""
        if active not in self._board.faults:
            return  # it was cleared before it began
        fault = active.fault
        for exchange in list(self._open.values()):
            if not exchange.admitted or not active.covers(exchange.request):
                continue
            if fault.freezes_in_flight:
                exchange.ticket = NO_STEP
                exchange.silent_since = now
            elif active.draw.random() < fault.kills_in_flight:
                exchange.how = How.CUT if exchange.begun else How.RESET
                exchange.at_byte = None
                self._break(now, exchange)

    # --- deciding -------------------------------------------------------------------

    def _refuse(self, now: float, exchange: OpenExchange, refusal: ProviderRefusal) -> None:
        exchange.refusal = refusal
        if refusal.wall:
            self._book(exchange.request).met_wall(exchange.entry)
        latency = refusal_latency(self.settings.service, refusal.status, self._latency_draw)
        self._plan(now + latency, exchange, PlannedStep.REFUSAL)

    def _cut_off(self, now: float, exchange: OpenExchange, effect: Effect) -> bool:
        """Whether the effect ends the exchange before any limit sees it."""
        if effect is Effect.HANG:
            return True
        if effect is Effect.REFUSED or effect is Effect.RESET:
            exchange.how = How.REFUSED if effect is Effect.REFUSED else How.RESET
            self._plan(now + 0.05 * self._latency_draw.random(), exchange, PlannedStep.BREAK)
            return True
        return False

    def _admit(self, now: float, exchange: OpenExchange, twist: ActiveFault | None) -> None:
        request = exchange.request
        if request.errand:
            exchange.begins = exchange.ends = exchange.stops = now
        else:
            exchange.headers = self.admission.take(now, request)
            self.in_flight += 1
            self.ledger.let_in(exchange.entry, request.hit)
            if request.hit is not None:
                self.cache.admitted(request.hit)
            course = healthy_course(self.settings.service, request, self._service_draw)
            exchange.admitted = True
            exchange.output_tokens = course.output_tokens
            loaded = max(0.0, self._loaded_at(now) - now)
            exchange.begins = now + loaded + course.first_byte
            exchange.ends = exchange.stops = now + loaded + course.last_byte
        if twist is not None:
            self._twist(now, exchange, twist)
        # An answer in one piece is not sent before it is whole.
        first = exchange.begins if request.stream else exchange.stops
        self._plan(first, exchange, PlannedStep.FIRST_BYTE)

    def _loaded_at(self, now: float) -> float:
        """When the model is there, which the first request lets load."""
        if self._loaded is None:
            self._loaded = now + self.settings.service.cold_start
        return self._loaded

    def _twist(self, now: float, exchange: OpenExchange, active: ActiveFault) -> None:
        """Bend the course of an admitted answer."""
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
        share = 0.0 if fault.at_byte is not None else active.where()
        exchange.stops = exchange.begins + length * share
        if fault.effect is Effect.SILENCE:
            exchange.last_step = PlannedStep.SILENCE
        else:
            exchange.last_step = PlannedStep.BREAK
            exchange.how = _BREAKS[fault.effect]
            exchange.failure = _EVENTS.get(fault.status or 0, OVERLOADED)

    # --- playing it out -------------------------------------------------------------

    def _plan(self, at: float, exchange: OpenExchange, step: PlannedStep) -> None:
        self._ticket += 1
        exchange.ticket = self._ticket
        heapq.heappush(self._heap, (at, self._ticket, step, exchange))

    def _settle(self, now: float) -> float:
        """Play out everything until now; gives the model's time, which never goes back."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, ticket, step, exchange = heapq.heappop(heap)
            self.now = max(self.now, at)
            if exchange is None:
                self._onset(at, self._onsets.pop(ticket))
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
            raise AssertionError("a planned refusal has its words")
        spent = self._spent(at, exchange)
        self._close(at, exchange, RequestOutcome.REJECTED, str(refusal.status), spent)
        told = (refusal.status, refusal.headers, refusal.body, refusal.wall, refusal.over)
        self._ready.append(Rejected(exchange.id, at, *told))

    def _break(self, at: float, exchange: OpenExchange) -> None:
        share = exchange.share(at) if exchange.begun else 0.0
        self._close(
            at, exchange, RequestOutcome.BROKEN, exchange.how.value, self._spent(at, exchange)
        )
        body = exchange.failure.body if exchange.how is How.ERROR_EVENT else ""
        self._ready.append(
            ConnectionBroken(exchange.id, at, exchange.how, share, body, exchange.at_byte)
        )

    def _spent(self, now: float, exchange: OpenExchange) -> int:
        """The output that was generated for nothing."""
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
        self._book(exchange.request).ended(exchange.entry, now, outcome, why, tokens)

    def _book(self, request: SimRequest) -> RequestLedger:
        return self.errands if request.errand else self.ledger
