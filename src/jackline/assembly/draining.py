"""Drain lanes: send nothing more on them, and tell what is still in flight there.

Laws: (1) draining is pausing: what flies ends by itself, and what waits goes elsewhere or waits on;
(2) who ordered it is told how much is left, and `resume` ends it.
Not here: pausing (gateway/hand_orders.py), waiting for the last one (cli/upstream_draining.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from jackline.control.counted import counted
from jackline.gateway.desk import Desk
from jackline.gateway.hand_orders import HandOrders
from jackline.gateway.lane_book import shown


class Draining:
    """The order to drain, for the lanes of one desk."""

    def __init__(self, desk: Desk, orders: HandOrders) -> None:
        self._desk = desk
        self._orders = orders

    def drain(self, asked: Mapping[str, object]) -> dict[str, object]:
        """Pause matching lanes; the answer counts the calls in flight on each."""
        told = self._orders.pause(asked)
        names = told["lanes"]
        flying = dict.fromkeys(map(str, names), 0) if isinstance(names, list) else {}
        for name, lane in self._desk.carrier.controller.lanes.items():
            if shown(name) in flying:
                flying[shown(name)] += len(lane.attempts)
        left = sum(flying.values())
        said = f"{counted(left, 'call')} in flight" if left else "drained: nothing is in flight"
        return told | {"in_flight": flying, "says": f"{', '.join(flying)}: {said}."}
