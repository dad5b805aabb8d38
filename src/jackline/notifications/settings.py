"""What is sent, by which channels, and when not.

Rules: nothing is sent while no channel is set.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from jackline.settings import Form, setting


class IncidentKind(StrEnum):
    """What an incident is about."""

    PARKED = "parked"
    NEEDS_YOU = "needs-you"
    RUN_FINISHED = "run-finished"
    BUDGET_NEAR = "budget-near"
    UPSTREAM_MOVED = "upstream-moved"


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Messages for people who are away: one per incident, not one per agent."""

    on: tuple[IncidentKind, ...] = setting(tuple(IncidentKind), "Which incidents are sent.")
    desktop: bool = setting(False, "Show messages on the desktop of the gateway's user.")
    webhook: str | None = setting(
        None, "Address that messages are posted to as JSON, or a reference to it.", Form.WEBHOOK
    )
    secret: str | None = setting(
        None,
        "Where the secret is that signs what the webhook gets: env:NAME, file:PATH or cmd:COMMAND.",
        Form.REFERENCE,
    )
    apprise: str | None = setting(
        None,
        "Where addresses for Apprise are, one per line (extra: jackline[notify]).",
        Form.REFERENCE,
    )
    quiet: str | None = setting(
        None,
        'Send nothing at these hours, such as "22:00-07:00"; those that still hold are sent after.',
        Form.HOURS,
    )
    budget_share: float = setting(
        0.8, "A budget is nearly used from this share on.", above=0, below=1
    )

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
