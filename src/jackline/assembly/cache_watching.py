"""Gather what is to be said of prompt caches that lapse, from the parts of the running service.

Rules: (1) looking changes nothing; (2) lanes on which nothing is cached cost nothing; (3) names as
lanes are shown everywhere, no conversation's and no account's.
Not here: the figures and the words (control/cache_advice.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from jackline.agents.prices import Price
from jackline.assembly.observing import account_of_lane
from jackline.control.cache_advice import (
    CacheAdvice,
    Rewriting,
    advice_for,
    advice_sentence,
    cost_of_wall,
)
from jackline.control.forecast import Forecast
from jackline.gateway.desk import Desk
from jackline.gateway.lane_book import shown
from jackline.lanes.lane import Lane
from jackline.lanes.states import FLOWING


class CacheWatch:
    """What one service knows of its providers' prompt caches."""

    def __init__(self, desk: Desk, price_of: Callable[[str], Price | None]) -> None:
        self._desk = desk
        self._price_of = price_of

    def advice(self, now: datetime) -> list[tuple[CacheAdvice, str]]:
        """For each lane of which something is to be said, the figures and the sentence."""
        lanes = [lane for lane in self._lanes() if not lane.caches.reads_count]
        if not lanes:
            return []
        waiting = self._waiting()
        ahead = self._desk.carrier.controller.wall_ahead
        found: list[tuple[CacheAdvice, str]] = []
        for lane in lanes:
            names = waiting.get(lane.name, set())
            if not names and (lane.state in FLOWING or lane.paused):
                continue
            price = self._price(lane)
            told = advice_for(lane, names, price, self._desk.now(), wall_ahead=ahead)
            if told is not None:
                found.append((told, advice_sentence(told, now)))
        return found

    def costs(self, forecasts: Iterable[Forecast]) -> dict[str, Rewriting]:
        """What the walls that are foretold will cost, by account, where that matters."""
        found: dict[str, Rewriting] = {}
        for each in forecasts:
            if each.ends_at is None or each.used >= 1.0:
                continue
            lanes = [e for e in self._lanes() if account_of_lane(e.name) == each.account]
            priced = [(lane, self._price(lane)) for lane in lanes]
            cost = cost_of_wall(priced, self._desk.now(), begins=each.ends_at, ends=each.resets_at)
            if cost is not None:
                found[each.account] = cost
        return found

    def _lanes(self) -> list[Lane]:
        lanes = self._desk.carrier.controller.lanes.values()
        return [lane for lane in lanes if lane.caches.in_use]

    def _price(self, lane: Lane) -> Price | None:
        return self._price_of(shown(lane.name).partition("/")[2])

    def _waiting(self) -> dict[str, set[str]]:
        """The conversations that wait, by each lane that they may go to."""
        found: dict[str, set[str]] = {}
        for call in self._desk.calls:
            if call.carried is None or not call.waiting or not call.request.conversation:
                continue
            for lane in call.request.lanes:
                found.setdefault(lane, set()).add(call.request.conversation)
        return found
