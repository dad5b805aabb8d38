"""Gather what one simulated provider is made of.

Laws: (1) frozen values; the same settings and seed play the same provider.
Not here: reading them from a file (scenario.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jackline.simulator.calendar import Calendar
from jackline.simulator.faults import Fault
from jackline.simulator.limits import BucketSettings, ConcurrencySettings, HiddenCapacitySettings
from jackline.simulator.service import ServiceSettings
from jackline.simulator.windows import WindowSettings

MODELS = ("claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5-20251001")


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Limits, windows, scheduled faults and speeds; none of the first three by default."""

    buckets: tuple[BucketSettings, ...] = ()
    concurrency: ConcurrencySettings | None = None
    hidden: HiddenCapacitySettings | None = None
    windows: tuple[WindowSettings, ...] = ()
    faults: tuple[Fault, ...] = ()
    service: ServiceSettings = field(default_factory=ServiceSettings)
    calendar: Calendar = field(default_factory=Calendar)
    models: tuple[str, ...] = MODELS
    demands_credential: bool = False
    """Whether requests without a credential are refused; what it is does not matter."""
    admin_key: str = ""
    """Who sends it is told the limits by the vendors' rate-limits APIs; "" has no such API."""
