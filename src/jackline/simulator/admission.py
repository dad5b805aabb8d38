"""Ask every limit of a provider, and speak for all of them.

Laws: (1) windows are asked first: a wall is told before a rate; (2) nothing is taken unless every
limit lets the request in; (3) refusals carry what the limits announce, as answers do.
Not here: the limits themselves (limits.py, windows.py), faults (faults.py).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from jackline.simulator.exchange import NO_HEADERS, SimRequest
from jackline.simulator.limits import Bucket, ConcurrencyCap, HiddenCapacity, Limit
from jackline.simulator.refusals import Refusal
from jackline.simulator.settings import ProviderSettings
from jackline.simulator.windows import Window


class Admission:
    """All limits of one provider."""

    def __init__(self, settings: ProviderSettings, draw: random.Random, start: float) -> None:
        calendar = settings.calendar
        self.windows = [Window(one, calendar, start) for one in settings.windows]
        self.buckets = [Bucket(one, calendar, start) for one in settings.buckets]
        self._limits: list[Limit] = [*self.windows, *self.buckets]
        if settings.concurrency is not None:
            self._limits.append(ConcurrencyCap(settings.concurrency))
        if settings.hidden is not None:
            self._limits.append(HiddenCapacity(settings.hidden, draw, start))

    def refusal(self, now: float, request: SimRequest, in_flight: int) -> Refusal | None:
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
