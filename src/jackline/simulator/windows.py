"""Refuse what passes the windows of a subscription, in the headers and words of the real one.

Laws: (1) a window opens with the first request after its reset and refills all at once; (2) what
is announced is the fullest window, as `representative-claim` does; (3) tokens count when known.
Not here: limits per minute (limits.py), a wall ordered by a scenario (faults.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from enum import StrEnum

from jackline.simulator.calendar import Calendar
from jackline.simulator.exchange import SimRequest
from jackline.simulator.refusals import QUOTA_MESSAGE, Refusal, quota_wall

UNIFIED = "anthropic-ratelimit-unified"
WARNINGS = (1.0, 0.95, 0.9, 0.75)
DAY = 86_400.0


class Claim(StrEnum):
    """The windows a subscription has; the value is its name in `representative-claim`."""

    FIVE_HOUR = "five_hour"
    SEVEN_DAY = "seven_day"
    SEVEN_DAY_OPUS = "seven_day_opus"
    SEVEN_DAY_SONNET = "seven_day_sonnet"


# Claim: its short name in headers, its length, the models it is for, its name in the CLI's words.
_KINDS: dict[Claim, tuple[str, float, str, str]] = {
    Claim.FIVE_HOUR: ("5h", 5 * 3600.0, "", "session limit"),
    Claim.SEVEN_DAY: ("7d", 7 * DAY, "", "weekly limit"),
    Claim.SEVEN_DAY_OPUS: ("7d_opus", 7 * DAY, "opus", "Opus limit"),
    Claim.SEVEN_DAY_SONNET: ("7d-sonnet", 7 * DAY, "sonnet", "Sonnet limit"),
}


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """A window that holds so many tokens, input and output together."""

    claim: Claim
    tokens: float
    used: float = 0.0
    """Tokens already spent when the simulation starts."""
    announced: bool = True


def wall_text(claim: Claim, calendar: Calendar, resets_at: float, zone: tzinfo = UTC) -> str:
    """The words in which clients tell of a wall: `You've hit your session limit · resets 3pm`."""
    name = _KINDS[claim][3]
    far = claim is not Claim.FIVE_HOUR
    when = calendar.day_text(resets_at, zone) if far else calendar.clock_text(resets_at, zone)
    return f"You've hit your {name} · resets {when}"


def wall_headers(claim: Claim, calendar: Calendar, now: float, resets_at: float) -> dict[str, str]:
    """What a refused subscriber is told beside the text."""
    reset = str(calendar.epoch_seconds(resets_at))
    short = _KINDS[claim][0]
    return {
        "retry-after": calendar.wait(resets_at - now),
        f"{UNIFIED}-status": "rejected",
        f"{UNIFIED}-reset": reset,
        f"{UNIFIED}-representative-claim": claim.value,
        f"{UNIFIED}-{short}-status": "rejected",
        f"{UNIFIED}-{short}-reset": reset,
        f"{UNIFIED}-{short}-utilization": "1",
        f"{UNIFIED}-{short}-surpassed-threshold": "1",
        f"{UNIFIED}-overage-status": "rejected",
        f"{UNIFIED}-overage-disabled-reason": "overage_not_provisioned",
    }


class Window:
    """One window of a subscription."""

    def __init__(self, settings: WindowSettings, calendar: Calendar, start: float) -> None:
        self.settings = settings
        self.claim = settings.claim
        self.short, self.length, self._model, _ = _KINDS[settings.claim]
        self._calendar = calendar
        self._used = settings.used
        self.resets_at = start + self.length

    def utilization(self, now: float) -> float:
        """The used share; may pass one, since output counts when it is known."""
        if now >= self.resets_at:
            self._used = 0.0
            self.resets_at = now + self.length
        return self._used / self.settings.tokens

    def covers(self, request: SimRequest) -> bool:
        """Whether this window counts the request's model."""
        return self._model in request.model

    def check(self, now: float, request: SimRequest, in_flight: int) -> Refusal | None:  # noqa: ARG002
        """Refuse until the reset once the window is used up."""
        if not self.covers(request) or self.utilization(now) < 1.0:
            return None
        headers = {}
        if self.settings.announced:
            headers = wall_headers(self.claim, self._calendar, now, self.resets_at)
        return quota_wall(QUOTA_MESSAGE, headers)

    def take(self, now: float, request: SimRequest) -> None:
        """Count the input."""
        if self.covers(request):
            self.utilization(now)
            self._used += request.input_tokens

    def turned_away(self, now: float, request: SimRequest) -> None:
        """A refused request costs a subscriber nothing."""

    def finished(self, now: float, request: SimRequest, output_tokens: int) -> None:
        """Count the output."""
        if self.covers(request):
            self.utilization(now)
            self._used += output_tokens

    def announce(self, now: float, request: SimRequest, headers: dict[str, str]) -> None:
        """This window's part of the unified headers; the fullest window speaks for all."""
        if not self.settings.announced or not self.covers(request):
            return
        used = self.utilization(now)
        reset = str(self._calendar.epoch_seconds(self.resets_at))
        passed = next((mark for mark in WARNINGS if used >= mark), None)
        headers[f"{UNIFIED}-{self.short}-utilization"] = f"{used:.4g}"
        headers[f"{UNIFIED}-{self.short}-reset"] = reset
        headers[f"{UNIFIED}-{self.short}-status"] = (
            "allowed" if passed is None else "allowed_warning"
        )
        if passed is not None:
            headers[f"{UNIFIED}-{self.short}-surpassed-threshold"] = f"{passed:g}"
        fullest = headers.get(f"{UNIFIED}-representative-claim")
        if fullest is None or used > _told_utilization(headers, Claim(fullest)):
            headers[f"{UNIFIED}-representative-claim"] = self.claim.value
            headers[f"{UNIFIED}-reset"] = reset
            headers[f"{UNIFIED}-status"] = headers[f"{UNIFIED}-{self.short}-status"]
            headers[f"{UNIFIED}-overage-status"] = "rejected"
            headers[f"{UNIFIED}-overage-disabled-reason"] = "overage_not_provisioned"


def _told_utilization(headers: dict[str, str], claim: Claim) -> float:
    return float(headers[f"{UNIFIED}-{_KINDS[claim][0]}-utilization"])
