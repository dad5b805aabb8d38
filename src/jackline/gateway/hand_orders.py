"""Carry out what people order of a running gateway: use an upstream, go back, pause, resume, probe.

Laws: (1) an order counts from the next attempt on, also for calls that wait; (2) it survives a
restart (a probe is over with its one call), and ends when it was told to; (3) an order that makes
no sense changes nothing, and says why.
Not here: who may give orders (control_paths.py), choosing by them (choosing.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from fnmatch import fnmatchcase

from jackline.errors import BadArgumentError
from jackline.gateway.choosing import HandOrder
from jackline.gateway.desk import Desk
from jackline.gateway.lane_book import shown
from jackline.lanes.states import FLOWING

Save = Callable[[bytes], None]
_LONGEST = 30 * 86_400.0


class HandOrders:
    """The orders in force."""

    def __init__(self, desk: Desk, save: Save) -> None:
        self._desk = desk
        self._save = save

    def use(self, asked: Mapping[str, object]) -> dict[str, object]:
        """Send matching calls to an upstream, until told otherwise or for so long."""
        name = asked.get("upstream")
        known = [each.name for each in self._desk.settings.upstreams]
        if not isinstance(name, str) or name not in known:
            raise BadArgumentError(
                f"there is no upstream {name!r}", next=f"use one of: {', '.join(known)}"
            )
        seconds = asked.get("seconds")
        if seconds is not None and not (
            isinstance(seconds, int | float) and 0 < seconds <= _LONGEST
        ):
            raise BadArgumentError("an order holds for up to 30 days", next="for example --for 30m")
        until = None if seconds is None else self._desk.now() + float(seconds)
        order = HandOrder(
            name, _text(asked, "model"), _text(asked, "session"), _text(asked, "agent"), until
        )
        others = [each for each in self._living() if not _about_the_same(each, order)]
        # The newest comes first: it is what somebody wants now.
        self._set([order, *others])
        return {"orders": self.told()}

    def back(self, asked: Mapping[str, object]) -> dict[str, object]:
        """End the orders about one upstream, or all."""
        name = asked.get("upstream")
        self._set([each for each in self._living() if name is not None and each.upstream != name])
        return {"orders": self.told()}

    def pause(self, asked: Mapping[str, object]) -> dict[str, object]:
        """Send nothing more on matching lanes; calls wait, or go elsewhere."""
        return self._switch(asked, paused=True)

    def resume(self, asked: Mapping[str, object]) -> dict[str, object]:
        """Let matching lanes take calls again."""
        return self._switch(asked, paused=False)

    def probe(self, asked: Mapping[str, object]) -> dict[str, object]:
        """Forget what matching lanes were told of their reset: one call on each finds out."""
        lanes = self._desk.carrier.controller.lanes
        closed = [name for name in self._named(asked) if lanes[name].state not in FLOWING]
        for name in closed:
            self._desk.carrier.probe_lane(name)
        return {
            "probed": [
                {"lane": shown(name), "sent": lanes[name].probe is not None}
                for name in sorted(closed)
            ]
        }

    def _named(self, asked: Mapping[str, object]) -> list[str]:
        """The lanes that an order is about; an upstream's name stands for all of its lanes."""
        pattern = _text(asked, "lane") or ""
        lanes = self._desk.carrier.controller.lanes
        found = [
            name
            for name in lanes
            if fnmatchcase(shown(name), pattern) or name.partition("/")[0] == pattern
        ]
        if not found:
            shown_lanes = ", ".join(sorted({shown(name) for name in lanes})) or "none yet"
            raise BadArgumentError(f"no lane is called {pattern!r}", next=f"lanes: {shown_lanes}")
        return found

    def _switch(self, asked: Mapping[str, object], *, paused: bool) -> dict[str, object]:
        found = self._named(asked)
        for name in found:
            self._desk.carrier.pause_lane(name, paused=paused)
        self._keep()
        return {"lanes": sorted(shown(name) for name in found), "paused": paused}

    # --- over a restart -------------------------------------------------------------------------

    def recall(self, memory: bytes) -> None:
        """Take up what was ordered of an earlier gateway, as far as it is still in force."""
        try:
            told = json.loads(memory)
            orders = [HandOrder(**each) for each in told["orders"]]
            paused = [str(name) for name in told["paused"]]
        except (ValueError, TypeError, KeyError):
            return  # nothing that we wrote
        ahead = self._desk.wall() - self._desk.now()
        self._desk.chooser.orders = tuple(each.moved(-ahead) for each in orders)
        self._desk.chooser.orders = tuple(self._living())
        for name in paused:
            if self._desk.open_lane(name):
                self._desk.carrier.pause_lane(name, paused=True)

    def told(self) -> list[dict[str, object]]:
        """The orders in force as JSON, their ends as dates: for people, and for a restart."""
        ahead = self._desk.wall() - self._desk.now()
        return [asdict(each.moved(ahead)) for each in self._living()]

    def _living(self) -> list[HandOrder]:
        now = self._desk.now()
        return [o for o in self._desk.chooser.orders if o.until is None or o.until > now]

    def _set(self, orders: list[HandOrder]) -> None:
        self._desk.chooser.orders = tuple(orders)
        self._keep()
        self._desk.choose_again()

    def _keep(self) -> None:
        lanes = self._desk.carrier.controller.lanes
        told = {
            "orders": self.told(),
            "paused": [name for name, lane in lanes.items() if lane.paused],
        }
        self._save(json.dumps(told).encode())


def _text(asked: Mapping[str, object], name: str) -> str | None:
    value = asked.get(name)
    if value is not None and not isinstance(value, str):
        raise BadArgumentError(f"{name} must be a text")
    return value or None


def _about_the_same(one: HandOrder, other: HandOrder) -> bool:
    return (one.model, one.session, one.agent) == (other.model, other.session, other.agent)
