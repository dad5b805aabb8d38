"""Gather the facts that the page shows, from the parts of the running service.

Laws: (1) looking changes nothing; (2) no prompt, answer, key or token: an account is told by its
salted fingerprint alone.
Not here: calls under way (live_calls.py), what becomes of the facts (control/board.py), sending it
(dashboard/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from jackline.assembly.live_calls import LiveCalls
from jackline.assembly.observing import Observatory
from jackline.clock import Clock
from jackline.control.board import Facts, Flows
from jackline.control.board_parts import waiting_rows
from jackline.control.limit_words import limit_words
from jackline.control.whole_seconds import whole_second
from jackline.gateway.desk import Desk
from jackline.gateway.lane_book import shown
from jackline.lanes import State
from jackline.lanes.lane import Lane

# Lists that the page shows in another form, or not at all; the advice stands among the notes.
_NOT_IN_HEAD = frozenset(("schema", "at", "lanes", "waiting", "cache_advice"))


class Watching:
    """What there is to see of one service."""

    def __init__(
        self,
        desk: Desk,
        live: LiveCalls,
        observatory: Observatory,
        status: Callable[[], Mapping[str, Any]],
        reported: Callable[[str, str], str | None],
        clock: Clock,
    ) -> None:
        self._desk = desk
        self._live = live
        self._observatory = observatory
        self._status = status
        self._reported = reported
        self._clock = clock

    def facts(self, flows: Flows) -> Facts:
        """How everything stands now; `flows` is what the store of runs told."""
        status, now = self._status(), self._clock.now()
        return Facts(
            at=now.timestamp(),
            head=self._head(status),
            lanes=dict(self._lanes(status)),
            live=self._live.look(),
            fleet=self._observatory.fleet,
            burn=self._observatory.burn,
            today=_midnight(now),
            news=list(self._observatory.news),
            flows=flows,
            waiting=waiting_rows(status["waiting"]),
        )

    def _head(self, status: Mapping[str, Any]) -> dict[str, object]:
        ahead = self._desk.wall() - self._desk.now()
        orders = [asdict(order.moved(ahead)) for order in self._desk.chooser.orders]
        head = {name: value for name, value in status.items() if name not in _NOT_IN_HEAD}
        return head | {
            "upstreams": [each.name for each in self._desk.settings.upstreams],
            "orders": orders,
            "read_only": self._desk.settings.listen.read_only,
        }

    def _lanes(self, status: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, object]]]:
        upstreams = {each.name: each for each in self._desk.settings.upstreams}
        lanes = self._desk.carrier.controller.lanes
        for (name, lane), told in zip(lanes.items(), status["lanes"], strict=True):
            place, _, model = shown(name).partition("/")
            upstream = upstreams.get(place)
            limits = {each: round(share, 2) for each, share in told["limits"].items()}
            why, until = told["why"], told["until"]
            if not why and told["waiting"] and (held := lane.held_up(self._clock.steady())):
                why = held.why.replace(name, shown(name))
                until = self._desk.carrier.controller.date_of(held.until)
            yield (
                name,
                told
                | {
                    "limits": limits,
                    "limit_words": limit_words(told, self._clock.now()),
                    "why": why,
                    "until": None if until is None else whole_second(until),
                    "aim": aim(lane),
                    "first_byte": round(lane.first_byte, 1),
                    "upstream": place,
                    "model": model,
                    "sort": "" if upstream is None else upstream.kind.value,
                    "reported": self._reported(place, model) or "",
                },
            )


def aim(lane: Lane) -> int:
    """How many calls at once a lane is on its way back to; 0 where it is not on such a way."""
    return round(lane.window.peak) if lane.state in (State.LIMITED, State.PROBING) else 0


def _midnight(now: datetime) -> float:
    return now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
