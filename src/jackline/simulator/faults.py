"""Break the provider on schedule or on demand, in the ways real ones break.

Laws: (1) a fault is a value with a window [start, until), the models and the share of requests it
strikes; (2) each fault draws its own lots, so adding one does not change another; (3) the first
fault that strikes decides.
Not here: the bytes of a broken answer (server.py), limits (limits.py), the ramp (recovery.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias

from jackline.simulator.calendar import Calendar
from jackline.simulator.exchange import SimRequest
from jackline.simulator.lots import from_seed
from jackline.simulator.recovery import Phase, Recovery, RecoverySettings
from jackline.simulator.refusals import (
    BAD_GATEWAY,
    CAPTIVE_PORTAL,
    ENVOY_OVERFLOW,
    ENVOY_UNAVAILABLE,
    OVERLOADED,
    QUOTA_MESSAGE,
    SERVER_ERROR,
    THROTTLED,
    Refusal,
    quota_wall,
)
from jackline.simulator.windows import UNIFIED, Claim, wall_headers, wall_text


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
_REFUSALS: dict[Effect, Refusal] = {
    Effect.THROTTLED: THROTTLED,
    Effect.OVERLOADED: OVERLOADED,
    Effect.SERVER_ERROR: SERVER_ERROR,
    Effect.BAD_GATEWAY: BAD_GATEWAY,
    Effect.ENVOY: ENVOY_UNAVAILABLE,
    Effect.ENVOY_OVERFLOW: ENVOY_OVERFLOW,
    Effect.CAPTIVE_PORTAL: CAPTIVE_PORTAL,
}

ResetTold: TypeAlias = Literal["headers", "text", "no"]


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
    claim: Claim = Claim.FIVE_HOUR
    reset_told: ResetTold = "headers"

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
        self.draw = from_seed(seed)
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
    ) -> Refusal | Effect | None:
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
            if phase is Phase.LETS_IN:
                return None
            if phase is Phase.OVERLOADED:
                return OVERLOADED
            if phase is Phase.COLLAPSING:
                collapse(now, self)
        elif fault.share < 1.0 and self.draw.random() >= fault.share:
            return None
        return self.blow(now)

    def where(self) -> float:
        """The share of the answer after which a stream breaks."""
        return self.draw.random() if self.fault.at_share is None else self.fault.at_share

    def blow(self, now: float) -> Refusal | Effect:
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

    def _wall(self, now: float) -> Refusal:
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
