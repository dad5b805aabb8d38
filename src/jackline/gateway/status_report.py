"""Collect the service's status and the facts of its page from the parts of the running service.

Rules: (1) looking changes nothing; (2) the verdict is made here once, for every interface; (3) no
prompt, answer, key or token: an account is shown by its salted fingerprint, a lane by its public
name; (4) lanes on which nothing is cached cost nothing; (5) the document of a large service is made
twice a second at most. The sentences are made in control/.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from jackline import __version__
from jackline.agents.prices import Price
from jackline.clock import Clock
from jackline.control import GatewayStatus
from jackline.control.board import Facts, FlowFacts, waiting_rows
from jackline.control.forecast import (
    CacheAdvice,
    CacheRewriteCost,
    Forecast,
    forecast_sentence,
)
from jackline.control.observatory import Observatory
from jackline.control.status import NO_AGENTS, AgentCounts, find_needs
from jackline.control.stored_runs import StoredRuns
from jackline.control.text import limit_text, whole_second
from jackline.gateway.call_intake import CallIntake
from jackline.gateway.listener import Listener
from jackline.gateway.status_pages import StatusPages
from jackline.gateway.status_picture import LiveCalls, picture
from jackline.journal import Journal
from jackline.lane_id import LaneId, Payer
from jackline.lanes.breaker import FLOWING
from jackline.lanes.lane import Lane
from jackline.states import LaneState


class CacheWatch:
    """What one service knows of its providers' prompt caches."""

    def __init__(self, desk: CallIntake, price_of: Callable[[str], Price | None]) -> None:
        self._desk = desk
        self._price_of = price_of

    def advice(self) -> list[CacheAdvice]:
        """The advice about each lane that needs some."""
        lanes = [lane for lane in self._lanes() if not lane.caches.reads_count]
        if not lanes:
            return []
        waiting = self._waiting()
        ahead = self._desk.carrier.controller.wall_ahead
        found: list[CacheAdvice] = []
        for lane in lanes:
            names = waiting.get(lane.id, set())
            if not names and (lane.state in FLOWING or lane.paused):
                continue
            price = self._price(lane)
            advice = CacheAdvice.of(lane, names, price, self._desk.now(), wall_ahead=ahead)
            if advice is not None:
                found.append(advice)
        return found

    def costs(self, forecasts: Iterable[Forecast]) -> dict[Payer, CacheRewriteCost]:
        """What the forecast walls will cost, by account, where that matters."""
        found: dict[Payer, CacheRewriteCost] = {}
        for each in forecasts:
            if each.ends_at is None or each.used >= 1.0:
                continue
            lanes = [e for e in self._lanes() if e.id.payer == each.payer]
            priced = [(lane, self._price(lane)) for lane in lanes]
            cost = CacheRewriteCost.of_wall(
                priced, self._desk.now(), begins=each.ends_at, ends=each.resets_at
            )
            if cost is not None:
                found[each.payer] = cost
        return found

    def _lanes(self) -> list[Lane]:
        lanes = self._desk.carrier.controller.lanes.values()
        return [lane for lane in lanes if lane.caches.in_use]

    def _price(self, lane: Lane) -> Price | None:
        return self._price_of(lane.id.model)

    def _waiting(self) -> dict[LaneId, set[str]]:
        """The conversations that wait, by each lane that they may go to."""
        found: dict[LaneId, set[str]] = {}
        for call in self._desk.calls:
            if call.carried is None or not call.waiting or not call.request.conversation:
                continue
            for lane in self._desk.carrier.lanes_of(call.carried):
                found.setdefault(lane, set()).add(call.request.conversation)
        return found


_TROUBLED = (LaneState.DOWN, LaneState.THROTTLED)
_FLOWS_EVERY = 2.0
# Counting takes a few microseconds an agent: of a large fleet it is done this often at most.
_FEW = 100
_AGENTS_A_SECOND = 1000.0
# Each lane and each call of a status costs some 10 microseconds, and anybody may request it.
_FEW_ROWS = 40
_STATUS_SECONDS = 0.5


def in_trouble(desk: CallIntake, upstream: str) -> bool:
    """Whether a lane of this upstream is closed for a reason that its vendor may explain."""
    lanes = desk.carrier.controller.lanes.values()
    return any(e.id.upstream == upstream and e.state in _TROUBLED for e in lanes)


@dataclass(frozen=True, slots=True)
class ReportSources:
    """The parts that a status is read from; `notes` are sentences that hold until removed."""

    desk: CallIntake
    live: LiveCalls
    journal: Journal
    listener: Listener
    pages: StatusPages
    observatory: Observatory
    book: StoredRuns
    notes: Mapping[str, str]


class StatusReport:
    """The status of one service; `watch` must run for as long as it does."""

    def __init__(self, sources: ReportSources, url: Callable[[], str], clock: Clock) -> None:
        """`url` returns the base URL for clients; called when the port is known."""
        self._from = sources
        self._url = url
        self._clock = clock
        self._caches = CacheWatch(sources.desk, sources.observatory.price_of)
        self._agent_counts = NO_AGENTS
        self._counted_at = float("-inf")
        self._started = clock.steady()
        self._document = b""
        self._rendered_at = float("-inf")

    @property
    def started(self) -> float:
        """When the service was started, by the wall clock as it is set now."""
        return self._clock.wall() - (self._clock.steady() - self._started)

    async def watch(self) -> None:
        """Read the states of runs again and again, until cancelled."""
        while True:
            await self._from.book.look()
            await self._clock.sleep(_FLOWS_EVERY)

    def status(self) -> dict[str, object]:
        """The picture of now, with its verdict and what is to be expected."""
        drawn, now = self._picture(), self._clock.now()
        forecasts = self._from.observatory.windows.forecasts(now.timestamp())
        agents = self._agents()
        costs = self._caches.costs(forecasts)
        forecast = forecast_sentence(forecasts, agents.present or drawn.calls_in_flight, now, costs)
        sentence = drawn.verdict(now, agents, self._needs(drawn))
        advice = self._caches.advice()
        drawn = replace(drawn, notes=(*drawn.notes, *(each.sentence(now) for each in advice)))
        return {
            **drawn.to_json(f"{sentence} {forecast}" if forecast else sentence),
            "upstreams": [each.url for each in self._from.desk.settings.upstreams],
            "forecast": [
                each.to_json() | {"caches": asdict(costs[each.payer])}
                if each.payer in costs
                else each.to_json()
                for each in forecasts
            ],
            "cache_advice": [each.to_json(now) for each in advice],
        }

    def document(self) -> bytes:
        """The status as JSON; of a large service, that of a moment ago."""
        parts, now = self._from, self._clock.monotonic()
        rows = len(parts.desk.carrier.controller.lanes) + parts.listener.connections
        if rows <= _FEW_ROWS or now - self._rendered_at >= _STATUS_SECONDS:
            self._document = json.dumps(self.status(), ensure_ascii=False).encode()
            self._rendered_at = now
        return self._document

    def line(self, _session: str) -> str:
        """The short form, for a client's status line."""
        drawn, now = self._picture(), self._clock.now()
        forecasts = self._from.observatory.windows.forecasts(now.timestamp())
        return drawn.status_line(forecasts, now, self._agents(), self._needs(drawn))

    def hello(self, state: Path, *, stopping: bool) -> dict[str, object]:
        """The service at this port, for whoever finds it."""
        return {
            "jackline": __version__,
            "status": f"{self._url()}/_jackline/status",
            "process": os.getpid(),
            "state": str(state.absolute()),
            "stopping": stopping,
        }

    def health(self) -> dict[str, object]:
        """It is alive."""
        return {"ok": True}

    def ready(self) -> dict[str, object]:
        """Whether it accepts calls."""
        return {"ok": not self._from.listener.draining}

    def _agents(self) -> AgentCounts:
        """The agents of now; a large fleet's of a moment ago."""
        fleet, now = self._from.observatory.fleet, self._clock.monotonic()
        size = len(fleet)
        if size <= _FEW or now - self._counted_at >= size / _AGENTS_A_SECOND:
            live, flows = self._from.live.look(), self._from.book.known
            self._agent_counts = AgentCounts.of(
                live, fleet, flows.agent_states, self._clock.wall(), flows.wait_reasons
            )
            self._counted_at = now
        return self._agent_counts

    def _needs(self, drawn: GatewayStatus) -> tuple[str, ...]:
        runs, refused = self._from.book.known.runs, self._from.observatory.refused
        return find_needs(runs, drawn.lanes, refused, drawn.at)

    def _picture(self) -> GatewayStatus:
        parts = self._from
        drawn = picture(
            parts.desk,
            parts.journal.health,
            url=self._url(),
            started=self.started,
            connections=parts.listener.connections,
            at=self._clock.now(),
            notes=(*parts.notes.values(), *self._reported()),
        )
        known = parts.desk.carrier.controller.lanes.values()
        if any(lane.paused for lane in known):
            both = zip(drawn.lanes, known, strict=True)
            lanes = tuple(replace(shown_lane, paused=lane.paused) for shown_lane, lane in both)
            drawn = replace(drawn, lanes=lanes)
        labels = self._from.book.known.labels
        if not labels or not drawn.waiting:
            return drawn
        named = (
            replace(call, label=str(labels.get(call.agent or "", ""))) for call in drawn.waiting
        )
        return replace(drawn, waiting=tuple(named))

    def _reported(self) -> list[str]:
        """What vendors report about the lanes that are in trouble."""
        lanes = self._from.desk.carrier.controller.lanes.values()
        places = {e.id[:2] for e in lanes if e.state is not LaneState.OPEN}
        notes = (self._from.pages.note(upstream, model) for upstream, model in sorted(places))
        return list(dict.fromkeys(note for note in notes if note))


# Lists that the page shows in another form, or not at all; the advice is among the notes.
_NOT_IN_HEAD = frozenset(("schema", "at", "lanes", "waiting", "cache_advice"))


class PageFacts:
    """The facts of one service that its page shows."""

    def __init__(
        self,
        desk: CallIntake,
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

    def facts(self, flows: FlowFacts) -> Facts:
        """All facts of now; `flows` was read from the store of runs."""
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
        for (lane_id, lane), row in zip(lanes.items(), status["lanes"], strict=True):
            upstream = upstreams.get(lane_id.upstream)
            limits = {each: round(share, 2) for each, share in row["limits"].items()}
            why, until = row["why"], row["until"]
            if not why and row["waiting"] and (held := lane.held_up(self._clock.steady())):
                why = held.why
                until = self._desk.carrier.controller.date_of(held.until)
            yield (
                # Only a key that no other row has.
                " ".join(lane_id),
                row
                | {
                    "limits": limits,
                    "limit_text": limit_text(row, self._clock.now()),
                    "why": why,
                    "until": None if until is None else whole_second(until),
                    "aim": aim(lane),
                    "first_byte": round(lane.first_byte, 1),
                    "upstream": lane_id.upstream,
                    "model": lane_id.model,
                    "account": lane_id.account,
                    "sort": "" if upstream is None else upstream.kind.value,
                    "reported": self._reported(lane_id.upstream, lane_id.model) or "",
                },
            )


def aim(lane: Lane) -> int:
    """How many calls at once a lane is on its way back to; 0 where it is not on such a way."""
    return (
        round(lane.window.peak) if lane.state in (LaneState.THROTTLED, LaneState.RECOVERING) else 0
    )


def _midnight(now: datetime) -> float:
    return now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
