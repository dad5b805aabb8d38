"""Break the provider on schedule or on demand, and let it recover, as real ones do.

Rules: (1) a fault is a value with a window [start, until), the models and the share of requests
that it hits; (2) each fault has its own random draws, so adding one does not change another; (3)
faults are checked in the order in which they were added, the first that hits decides, and one
that can never hit again is dropped; (4) above the recovery ramp arrivals are refused as overloaded;
too many arrivals in a short time collapse it again, a bounded number of times.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Literal, Self, TypeAlias

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
)
from jackline.simulator.limits import UNIFIED, WindowClaim
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
    OPEN = "open"


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

    def on_arrival(self, now: float, in_flight: int) -> RecoveryPhase:
        """Count an arrival after the outage, and return what happens to it."""
        if now < self._begins:
            return RecoveryPhase.DOWN
        if now >= self.ends:
            return RecoveryPhase.OPEN
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
        fits = in_flight + 1 <= max(1.0, capacity)
        return RecoveryPhase.OPEN if fits else RecoveryPhase.OVERLOADED


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


# Effects with an HTTP answer; the others act on the connection or inside the stream.
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
    """One way to break.

    `model` is a part of the names of the models that it hits, `share` the share of requests.
    `status` replaces the status of the same refusal, such as 503 for a server error; an error
    event is a throttle for 429, a server error for 500, else an overload. `kills_in_flight` is the
    share of open streams that break when the fault begins. `at_share` or `at_byte` is where in the
    answer silence, a cut or an error comes; drawn when both are None. A dripping answer takes
    `slowness` times as long. A late one begins `delay` seconds later, plus `delay_per_kilotoken`
    for every thousand input tokens; the delay doubles every `doubles_every` seconds.
    """

    effect: Effect
    start: float = 0.0
    until: float = math.inf
    model: str = ""
    share: float = 1.0
    status: int | None = None
    retry_after: float | None = None
    kills_in_flight: float = 0.0
    freezes_in_flight: bool = False
    recovery: RecoverySettings | None = None
    at_share: float | None = None
    at_byte: int | None = None
    slowness: float = 20.0
    delay: float = 10.0
    delay_per_kilotoken: float = 0.0
    doubles_every: float | None = None
    claim: WindowClaim = WindowClaim.FIVE_HOUR
    reset_announced: ResetAnnouncement = "headers"

    def lateness(self, now: float, request: SimRequest) -> float:
        """How much later the answer to a request begins that arrives now."""
        delay = self.delay + self.delay_per_kilotoken * request.input_tokens / 1000.0
        if self.doubles_every is None:
            return delay
        return delay * math.pow(2.0, (now - self.start) / self.doubles_every)

    def later(self, seconds: float) -> Self:
        """The same fault, later."""
        return replace(self, start=self.start + seconds, until=self.until + seconds)


class ActiveFault:
    """A fault in use: its random draws, and its recovery."""

    def __init__(self, handle: int, fault: Fault, calendar: Calendar, seed: int) -> None:
        self.handle = handle
        self.fault = fault
        self.draw = seeded_random(seed)
        self.recovery = Recovery(fault.recovery, fault.until) if fault.recovery else None
        self._calendar = calendar

    def over(self, now: float) -> bool:
        """Whether this fault can never hit again."""
        return now >= (self.recovery.ends if self.recovery else self.fault.until)

    def end(self, now: float) -> None:
        """Stop the fault now; a recovery begins, unless there is nothing to recover from."""
        begun = now >= self.fault.start
        if now < self.fault.until:
            self.fault = replace(self.fault, start=min(now, self.fault.start), until=now)
            recovery = self.fault.recovery if begun else None
            self.recovery = Recovery(recovery, now) if recovery else None

    def hit(
        self,
        now: float,
        request: SimRequest,
        in_flight: int,
        collapse: Callable[[float, ActiveFault], None],
    ) -> ProviderRefusal | Effect | None:
        """What this fault does to an arriving request, or None."""
        fault = self.fault
        if now < fault.start or fault.model not in request.model:
            return None
        if request.is_side_request and fault.effect is Effect.QUOTA_WALL:
            return None  # an account's windows count only model calls
        if now >= fault.until:
            if self.recovery is None or request.is_side_request:
                return None
            phase = self.recovery.on_arrival(now, in_flight)
            if phase is RecoveryPhase.OPEN:
                return None
            if phase is RecoveryPhase.OVERLOADED:
                return OVERLOADED
            if phase is RecoveryPhase.COLLAPSING:
                collapse(now, self)
        elif fault.share < 1.0 and self.draw.random() >= fault.share:
            return None
        return self.apply(now)

    def apply(self, now: float) -> ProviderRefusal | Effect:
        """What the fault does to a request that it hits."""
        fault = self.fault
        if fault.effect is Effect.QUOTA_WALL:
            resets = fault.until if math.isfinite(fault.until) else now + 5 * 3600.0
            message, headers = QUOTA_MESSAGE, {}
            if fault.reset_announced == "headers":
                headers = fault.claim.wall_headers(self._calendar, now, resets)
            elif fault.reset_announced == "text":
                message = fault.claim.wall_text(self._calendar, resets)
            else:
                headers[f"{UNIFIED}-status"] = "rejected"
                headers[f"{UNIFIED}-representative-claim"] = fault.claim.value
            return ProviderRefusal.of_api(429, "rate_limit_error", message, headers, wall=True)
        refusal = _REFUSALS.get(fault.effect)
        if refusal is None:
            return fault.effect
        if fault.status is not None:
            refusal = replace(refusal, status=fault.status)
        if fault.retry_after is not None:
            wait = self._calendar.wait(fault.retry_after)
            refusal = replace(refusal, headers={**refusal.headers, "retry-after": wait})
        return refusal


FaultHit: TypeAlias = tuple[ActiveFault | None, ProviderRefusal | Effect | None]


class FaultBoard:
    """The faults of one provider."""

    def __init__(self, calendar: Calendar, draw: random.Random) -> None:
        self.faults: list[ActiveFault] = []
        self._calendar = calendar
        self._seeds = draw
        self._handles = 0

    def add(self, fault: Fault) -> ActiveFault:
        """Add a fault; its handle removes it."""
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
        self._drop_past(now)

    def hit(
        self,
        now: float,
        request: SimRequest,
        in_flight: int,
        collapse: Callable[[float, ActiveFault], None],
    ) -> FaultHit:
        """The fault that hits this request and what it does, or neither."""
        over = False
        for active in self.faults:
            if active.over(now):
                over = True
                continue
            effect = active.hit(now, request, in_flight, collapse)
            if effect is not None:
                return active, effect
        if over:
            self._drop_past(now)
        return None, None

    def force(self, now: float, forced: ProviderRefusal | Fault) -> FaultHit:
        """What a script demands for one request."""
        if isinstance(forced, ProviderRefusal):
            return None, forced
        active = ActiveFault(0, forced, self._calendar, self._seeds.getrandbits(64))
        return active, active.apply(now)

    def can_connect(self, now: float) -> tuple[bool, float | None]:
        """Whether clients can connect at all, and when that changes by schedule."""
        refusing = [one.fault for one in self.faults if one.fault.effect is Effect.REFUSED]
        refused = any(
            fault.share >= 1.0 and not fault.model and fault.start <= now < fault.until
            for fault in refusing
        )
        edges = (edge for fault in refusing for edge in (fault.start, fault.until))
        return not refused, min((at for at in edges if now < at < math.inf), default=None)

    def _drop_past(self, now: float) -> None:
        self.faults = [active for active in self.faults if not active.over(now)]
