"""What is sent, by which channels, and when not.

Rules: (1) frozen; (2) what may hold a secret is not shown by `repr`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum


class IncidentKind(StrEnum):
    """What an incident is about."""

    PARKED = "parked"
    NEEDS_YOU = "needs-you"
    RUN_FINISHED = "run-finished"
    BUDGET_NEAR = "budget-near"
    UPSTREAM_MOVED = "upstream-moved"


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Nothing is sent while no channel is set."""

    on: tuple[IncidentKind, ...] = tuple(IncidentKind)
    desktop: bool = False
    webhook: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    """Signs what the webhook gets."""
    apprise: str | None = field(default=None, repr=False)
    """Addresses for Apprise, a line or a blank between them."""
    quiet: str | None = None
    """Hours in which nothing is sent, as "22:00-07:00"; incidents are sent after them."""
    budget_share: float = 0.8

    @property
    def has_ways(self) -> bool:
        """Whether any channel is set."""
        return self.desktop or self.webhook is not None or self.apprise is not None

    def only(self, ways: Collection[str]) -> NotifySettings:
        """The same with no other channels than these."""
        return replace(
            self,
            desktop=self.desktop and "desktop" in ways,
            webhook=self.webhook if "webhook" in ways else None,
            apprise=self.apprise if "apprise" in ways else None,
        )
