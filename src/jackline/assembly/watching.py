"""Gather the facts that the page shows, from the parts of the running service.

Laws: (1) looking changes nothing; (2) a call is looked at once a look, however many watch; (3) no
prompt, answer, key or token: an account is told by its salted fingerprint alone.
Not here: what becomes of the facts (control/board.py), sending it (dashboard/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from jackline.assembly.observing import Observatory
from jackline.clock import Clock
from jackline.control.board import Facts, Flows
from jackline.control.fleet import Doing, Live, waited_for
from jackline.gateway.desk import Desk
from jackline.gateway.lane_book import shown
from jackline.gateway.messages import MessagesCall
from jackline.lanes.states import State

_CLOSED = {State.PARKED: Doing.PARKED, State.BROKEN: Doing.DOWN, State.LIMITED: Doing.THROTTLED}
# Lists that the page shows in another form, or not at all.
_NOT_IN_HEAD = frozenset(("schema", "at", "lanes", "waiting"))


class Watching:
    """What there is to see of one service."""

    def __init__(
        self,
        desk: Desk,
        observatory: Observatory,
        status: Callable[[], Mapping[str, Any]],
        reported: Callable[[str, str], str | None],
        clock: Clock,
    ) -> None:
        self._desk = desk
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
            live=[self._live(call) for call in self._desk.calls if call.carried is not None],
            fleet=self._observatory.fleet,
            burn=self._observatory.burn,
            today=_midnight(now),
            news=list(self._observatory.news),
            flows=flows,
        )

    def _head(self, status: Mapping[str, Any]) -> dict[str, object]:
        orders = [asdict(order) for order in self._desk.chooser.orders]
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
            yield (
                name,
                told
                | {
                    "limits": limits,
                    "until": None if told["until"] is None else round(told["until"]),
                    "upstream": place,
                    "model": model,
                    "sort": "" if upstream is None else upstream.kind.value,
                    "paused": lane.paused,
                    "reported": self._reported(place, model) or "",
                },
            )

    def _live(self, call: MessagesCall) -> Live:
        who = call.identity
        carried = call.carried
        if carried is None or not call.waiting:
            return self._answering(call)
        told = self._desk.carrier.waiting(carried)
        return Live(
            who.session or "",
            who.agent or "",
            who.tag or "",
            call.model,
            call.lane,
            call.since,
            self._waits_for(call),
            "" if told is None else told.why.replace(call.lane, shown(call.lane)),
            None if told is None or told.until is None else float(round(told.until)),
        )

    def _answering(self, call: MessagesCall) -> Live:
        who, carried = call.identity, call.carried
        since, waited = call.since, None
        if carried is not None and carried.waited >= 1.0:
            waited = (call.since, self._waited_for(call))
            since = call.since + carried.waited
        return Live(
            who.session or "",
            who.agent or "",
            who.tag or "",
            call.model,
            call.lane,
            since,
            Doing.ANSWERING,
            "",
            None,
            waited,
        )

    def _waits_for(self, call: MessagesCall) -> Doing:
        lane = self._desk.carrier.controller.lanes.get(call.lane)
        closed = None if lane is None else _CLOSED.get(lane.state)
        return self._waited_for(call) if closed is None else closed

    def _waited_for(self, call: MessagesCall) -> Doing:
        story = [] if call.carried is None else call.carried.story
        failure = story[-1].failure if story else None
        return Doing.QUEUED if failure is None else waited_for(failure.kind.value)


def _midnight(now: datetime) -> float:
    return now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
