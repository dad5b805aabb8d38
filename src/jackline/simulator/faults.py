"""Break the provider on schedule or on demand, and let it recover, as real ones do.

Rules: (1) a fault is a value with a window [start, until), the models and the share of requests
that it strikes; (2) each fault has its own draws, so adding one does not change another; (3)
faults are checked in the order in which they came, the first that strikes decides, and one that
can never strike again is dropped; (4) above the recovery ramp arrivals are refused as overloaded;
too many arrivals in a short time collapse it again, a bounded number of times.
Not here: the bytes of a broken answer (connection.py), limits (limits.py), effects on open
streams (provider.py).
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Literal, TypeAlias

from jackline.simulator.exchange import (
    BAD_GATEWAY,
    CAPTIVE_PORTAL,
    ENVOY_OVERFLOW,
    ENVOY_UNAVAILABLE,
    OVERLOADED,
    QUOTA_MESSAGE,
    SERVER_ERROR,
    THROTTLED,
    ProviderRefusal,
    SimRequest,
    quota_wall,
)
from jackline.simulator.limits import UNIFIED, WindowClaim, wall_headers, wall_text
from jackline.simulator.time_model import Calendar, seeded_random


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """A ramp from `first` to all of `streams` in `seconds`.

    It collapses for `collapse_seconds` when more than
    `herd_base + herd_factor * capacity / mean_service * herd_window` requests come in a window.
    """

    streams: float
    first: float = 0.1
    seconds: float = 120.0
    collapse_seconds: float = 60.0
    most_collapses: int = 8
    herd_window: float = 5.0
    herd_base: float = 10.0
    herd_factor: float = 3.0
    mean_service: float = 19.0


class RecoveryPhase(Enum):
    """What the recovering provider does with an arrival."""

    DOWN = "down"
    COLLAPSING = "collapsing"
    OVERLOADED = "overloaded"
    LETS_IN = "lets_in"


class Recovery:
    """The ramp after one outage."""

    def __init__(self, settings: RecoverySettings, begins: float) -> None:
        self.settings = settings
        self.collapses = 0
        self._begins = begins
        self._arrivals: deque[float] = deque()

    @property
    def ends(self) -> float:
        """When all capacity is back, if nothing collapses before."""
        return self._begins + self.settings.seconds

    def capacity(self, now: float) -> float:
        """The streams that fit on the ramp."""
        done = min(1.0, max(0.0, (now - self._begins) / self.settings.seconds))
        return self.settings.streams * (self.settings.first + (1 - self.settings.first) * done)

    def meet(self, now: float, in_flight: int) -> RecoveryPhase:
        """Count an arrival after the outage and say what becomes of it."""
        if now < self._begins:
            return RecoveryPhase.DOWN
        if now >= self.ends:
            return RecoveryPhase.LETS_IN
        settings = self.settings
        self._arrivals.append(now)
        while self._arrivals[0] < now - settings.herd_window:
            self._arrivals.popleft()
        capacity = self.capacity(now)
        flow = settings.herd_factor * capacity / settings.mean_service * settings.herd_window
        herd = len(self._arrivals) > settings.herd_base + flow
        if herd and self.collapses < settings.most_collapses:
            self.collapses += 1
            self._begins = now + settings.collapse_seconds
            self._arrivals.clear()
            return RecoveryPhase.COLLAPSING
        return (
            RecoveryPhase.LETS_IN
            if in_flight + 1 <= max(1.0, capacity)
            else RecoveryPhase.OVERLOADED
        )


class Effect(StrEnum):
    """What a fault does to a request; the value is its name in scenarios and on the wire."""

    THROTTLED = "throttled"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    BAD_GATEWAY = "bad_gateway"
    ENVOY = "envoy"
    ENVOY_OVERFLOW = "envoy_overflow"
    CAPTIVE_PORTAL = "captive_portal"
    QUOTA_WALL = "quota_wall"
    REFUSED = "refused"
    RESET = "reset"
    HANG = "hang"
    SILENCE = "silence"
    CUT = "cut"
    CLEAN_END = "clean_end"
    ERROR_EVENT = "error_event"
    SLOW_DRIP = "slow_drip"
    LATE = "late"


# Effects that refuse in words; the others act on the connection or inside the stream.
_REFUSALS: dict[Effect, ProviderRefusal] = {
    Effect.THROTTLED: THROTTLED,
    Effect.OVERLOADED: OVERLOADED,
    Effect.SERVER_ERROR: SERVER_ERROR,
    Effect.BAD_GATEWAY: BAD_GATEWAY,
    Effect.ENVOY: ENVOY_UNAVAILABLE,
    Effect.ENVOY_OVERFLOW: ENVOY_OVERFLOW,
    Effect.CAPTIVE_PORTAL: CAPTIVE_PORTAL,
}

ResetAnnouncement: TypeAlias = Literal["headers", "text", "no"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to break; `model` is a part of the names of the models it strikes."""

    effect: Effect
    start: float = 0.0
    until: float = math.inf
    model: str = ""
    share: float = 1.0
    status: int | None = None
    """Another status for the same words, such as 503 for a server error; for an error event,
    what it tells: 429 a throttle, 500 a server error, else an overload."""
    retry_after: float | None = None
    kills_in_flight: float = 0.0
    """The share of open streams that break when the fault begins."""
    freezes_in_flight: bool = False
    recovery: RecoverySettings | None = None
    at_share: float | None = None
    """Where in the answer silence, a cut or an error comes; drawn when not given."""
    at_byte: int | None = None
    slowness: float = 20.0
    """How much longer a dripping answer takes."""
    delay: float = 10.0
    """How much later a late answer begins, in seconds."""
    delay_per_kilotoken: float = 0.0
    """Seconds more for every thousand input tokens, as of a model that thinks."""
    doubles_every: float | None = None
    """The delay doubles every so many seconds, as in a brown-out."""
    claim: WindowClaim = WindowClaim.FIVE_HOUR
    reset_told: ResetAnnouncement = "headers"

    def lateness(self, now: float, request: SimRequest) -> float:
        """How much later the answer to a request begins that arrives now."""
        delay = self.delay + self.delay_per_kilotoken * request.input_tokens / 1000.0
        if self.doubles_every is None:
            return delay
        return delay * math.pow(2.0, (now - self.start) / self.doubles_every)


class ActiveFault:
    """A fault at work: its lots, and its recovery."""

    def __init__(self, handle: int, fault: Fault, calendar: Calendar, seed: int) -> None:
        self.handle = handle
        self.fault = fault
        self.draw = seeded_random(seed)
        self.recovery = Recovery(fault.recovery, fault.until) if fault.recovery else None
        self._calendar = calendar

    def over(self, now: float) -> bool:
        """Whether this fault can never strike again."""
        return now >= (self.recovery.ends if self.recovery else self.fault.until)

    def end(self, now: float) -> None:
        """Stop the fault now; a recovery begins, unless there is nothing to recover from."""
        begun = now >= self.fault.start
        if now < self.fault.until:
            self.fault = replace(self.fault, start=min(now, self.fault.start), until=now)
            fresh = self.fault.recovery if begun else None
            self.recovery = Recovery(fresh, now) if fresh else None

    def refuses_connections(self, now: float) -> bool:
        """Whether nobody can even connect now."""
        fault = self.fault
        total = fault.effect is Effect.REFUSED and fault.share >= 1.0 and not fault.model
        return total and fault.start <= now < fault.until

    def covers(self, request: SimRequest) -> bool:
        """Whether the fault is about the request's model."""
        return self.fault.model in request.model

    def strike(
        self,
        now: float,
        request: SimRequest,
        in_flight: int,
        collapse: Callable[[float, ActiveFault], None],
    ) -> ProviderRefusal | Effect | None:
        """What this fault does to an arriving request, or None."""
        fault = self.fault
        if now < fault.start or not self.covers(request):
            return None
        if request.errand and fault.effect is Effect.QUOTA_WALL:
            return None  # an account's windows count what models say
        if now >= fault.until:
            if self.recovery is None or request.errand:
                return None
            phase = self.recovery.meet(now, in_flight)
            if phase is RecoveryPhase.LETS_IN:
                return None
            if phase is RecoveryPhase.OVERLOADED:
                return OVERLOADED
            if phase is RecoveryPhase.COLLAPSING:
                collapse(now, self)
        elif fault.share < 1.0 and self.draw.random() >= fault.share:
            return None
        return self.blow(now)

    def where(self) -> float:
        """The share of the answer after which a stream breaks."""
        return self.draw.random() if self.fault.at_share is None else self.fault.at_share

    def blow(self, now: float) -> ProviderRefusal | Effect:
        """What the fault does to a request that it strikes."""
        fault = self.fault
        if fault.effect is Effect.QUOTA_WALL:
            return self._wall(now)
        refusal = _REFUSALS.get(fault.effect)
        if refusal is None:
            return fault.effect
        if fault.status is not None:
            refusal = replace(refusal, status=fault.status)
        if fault.retry_after is not None:
            wait = self._calendar.wait(fault.retry_after)
            refusal = replace(refusal, headers={**refusal.headers, "retry-after": wait})
        return refusal

    def _wall(self, now: float) -> ProviderRefusal:
        fault = self.fault
        resets = fault.until if math.isfinite(fault.until) else now + 5 * 3600.0
        if fault.reset_told == "headers":
            headers = wall_headers(fault.claim, self._calendar, now, resets)
            return quota_wall(QUOTA_MESSAGE, headers)
        if fault.reset_told == "text":
            return quota_wall(wall_text(fault.claim, self._calendar, resets), {})
        claim = {
            f"{UNIFIED}-status": "rejected",
            f"{UNIFIED}-representative-claim": fault.claim.value,
        }
        return quota_wall(QUOTA_MESSAGE, claim)


Struck: TypeAlias = tuple[ActiveFault | None, ProviderRefusal | Effect | None]


class FaultBoard:
    """The faults of one provider."""

    def __init__(self, calendar: Calendar, draw: random.Random) -> None:
        self.faults: list[ActiveFault] = []
        self._calendar = calendar
        self._seeds = draw
        self._handles = 0

    def add(self, fault: Fault) -> ActiveFault:
        """Put up a fault; its handle takes it down."""
        self._handles += 1
        seed = self._seeds.getrandbits(64)
        active = ActiveFault(self._handles, fault, self._calendar, seed)
        self.faults.append(active)
        return active

    def clear(self, now: float, handle: int | None) -> None:
        """End one fault, or all; those with a recovery recover from now on."""
        for active in self.faults:
            if handle in (None, active.handle):
                active.end(now)
        self._forget_past(now)

    def strike(
        self,
        now: float,
        request: SimRequest,
        in_flight: int,
        collapse: Callable[[float, ActiveFault], None],
    ) -> Struck:
        """The fault that strikes this request and what it does, or neither."""
        over = False
        for active in self.faults:
            if active.over(now):
                over = True
                continue
            blow = active.strike(now, request, in_flight, collapse)
            if blow is not None:
                return active, blow
        if over:
            self._forget_past(now)
        return None, None

    def aim(self, now: float, ordered: ProviderRefusal | Fault) -> Struck:
        """What a script has ordered for one request."""
        if isinstance(ordered, ProviderRefusal):
            return None, ordered
        active = ActiveFault(0, ordered, self._calendar, self._seeds.getrandbits(64))
        return active, active.blow(now)

    def door(self, now: float) -> tuple[bool, float | None]:
        """Whether one can connect at all, and when that changes by schedule."""
        shut = any(active.refuses_connections(now) for active in self.faults)
        edges = [
            edge
            for active in self.faults
            if active.fault.effect is Effect.REFUSED
            for edge in (active.fault.start, active.fault.until)
            if now < edge < math.inf
        ]
        return not shut, min(edges, default=None)

    def _forget_past(self, now: float) -> None:
        self.faults = [active for active in self.faults if not active.over(now)]
