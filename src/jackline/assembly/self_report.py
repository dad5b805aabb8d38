"""Say how the running service stands: its status, its line, and the short answers of its port.

Laws: (1) looking changes nothing; (2) the verdict is said here once, for every face; (3) no prompt,
answer, key or token.
Not here: the picture (gateway/telling.py), the words of the verdict (control/).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from jackline import __version__
from jackline.assembly.cache_watching import CacheWatch
from jackline.assembly.live_calls import LiveCalls
from jackline.assembly.observing import Observatory
from jackline.clock import Clock
from jackline.control import Picture, verdict
from jackline.control.crew import NOBODY, Crew, crew_of, needs_of
from jackline.control.forecast import foretold
from jackline.control.statusline import status_line
from jackline.dashboard.flow_book import FlowBook
from jackline.gateway.desk import Desk
from jackline.gateway.lane_book import shown
from jackline.gateway.listening import Listener
from jackline.gateway.status_pages import StatusPages
from jackline.gateway.telling import picture
from jackline.journal import Journal
from jackline.lanes.states import State

_TROUBLED = (State.BROKEN, State.LIMITED)
_FLOWS_EVERY = 2.0
# Counting takes a few microseconds an agent: of a large fleet it is done this often at most.
_FEW = 100
_AGENTS_A_SECOND = 1000.0


def in_trouble(desk: Desk, upstream: str) -> bool:
    """Whether a lane of this upstream is closed for a reason that its vendor may explain."""
    lanes = desk.carrier.controller.lanes.values()
    return any(e.name.startswith(f"{upstream}/") and e.state in _TROUBLED for e in lanes)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a service learns how it stands; `notes` are sentences that hold until taken back."""

    desk: Desk
    live: LiveCalls
    journal: Journal
    listener: Listener
    pages: StatusPages
    observatory: Observatory
    book: FlowBook
    notes: Mapping[str, str]


class SelfReport:
    """What one service says of itself; `watch` must run for as long as it does."""

    def __init__(self, sources: Sources, url: Callable[[], str], clock: Clock) -> None:
        """`url` is the base URL for clients; asked when the port is known."""
        self._from = sources
        self._url = url
        self._clock = clock
        self._caches = CacheWatch(sources.desk, sources.observatory.price_of)
        self._crew = NOBODY
        self._counted_at = float("-inf")
        self._started = clock.steady()

    @property
    def started(self) -> float:
        """When the service was started, by the wall clock as it is set now."""
        return self._clock.wall() - (self._clock.steady() - self._started)

    async def watch(self) -> None:
        """Keep up with how runs stand, until cancelled."""
        while True:
            await self._from.book.look()
            await self._clock.sleep(_FLOWS_EVERY)

    def status(self) -> dict[str, object]:
        """The picture of now, with its verdict and what is to be expected."""
        drawn, now = self._picture(), self._clock.now()
        forecasts = self._from.observatory.windows.forecasts(now.timestamp())
        crew = self._agents()
        costs = self._caches.costs(forecasts)
        told = foretold(forecasts, crew.present or drawn.calls_in_flight, now, costs)
        sentence = verdict(drawn, now, crew, self._needs(drawn))
        advice = self._caches.advice(now)
        drawn = replace(drawn, notes=(*drawn.notes, *(words for _, words in advice)))
        return {
            **drawn.to_json(f"{sentence} {told}" if told else sentence),
            "upstreams": [each.url for each in self._from.desk.settings.upstreams],
            "forecast": [
                each.to_json() | {"caches": asdict(costs[each.account])}
                if each.account in costs
                else each.to_json()
                for each in forecasts
            ],
            "cache_advice": [each.to_json(words) for each, words in advice],
        }

    def line(self, _session: str) -> str:
        """The short form, for a client's status line."""
        drawn, now = self._picture(), self._clock.now()
        forecasts = self._from.observatory.windows.forecasts(now.timestamp())
        return status_line(drawn, forecasts, now, self._agents(), self._needs(drawn))

    def hello(self, state: Path, *, stopping: bool) -> dict[str, object]:
        """Who answers at this port."""
        return {
            "jackline": __version__,
            "status": f"{self._url()}/_jackline/status",
            "process": os.getpid(),
            "state": str(state.absolute()),
            "stopping": stopping,
        }

    def health(self) -> dict[str, object]:
        """It lives."""
        return {"ok": True}

    def ready(self) -> dict[str, object]:
        """Whether it takes calls."""
        return {"ok": not self._from.listener.draining}

    def _agents(self) -> Crew:
        """The agents of now; a large fleet's of a moment ago."""
        fleet, now = self._from.observatory.fleet, self._clock.monotonic()
        size = len(fleet)
        if size <= _FEW or now - self._counted_at >= size / _AGENTS_A_SECOND:
            live, flows = self._from.live.look(), self._from.book.known
            self._crew = crew_of(live, fleet, flows.ended, self._clock.wall(), flows.rests)
            self._counted_at = now
        return self._crew

    def _needs(self, drawn: Picture) -> tuple[str, ...]:
        runs, refused = self._from.book.known.runs, self._from.observatory.refused
        return needs_of(runs, drawn.lanes, refused, drawn.at)

    def _picture(self) -> Picture:
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
            lanes = tuple(replace(told, paused=lane.paused) for told, lane in both)
            drawn = replace(drawn, lanes=lanes)
        labels = self._from.book.known.labels
        if not labels or not drawn.waiting:
            return drawn
        named = (
            replace(call, label=str(labels.get(call.agent or "", ""))) for call in drawn.waiting
        )
        return replace(drawn, waiting=tuple(named))

    def _reported(self) -> list[str]:
        """What vendors say about the lanes that are in trouble."""
        lanes = self._from.desk.carrier.controller.lanes.values()
        places = {shown(e.name).partition("/")[::2] for e in lanes if e.state is not State.OPEN}
        notes = (self._from.pages.note(upstream, model) for upstream, model in sorted(places))
        return list(dict.fromkeys(note for note in notes if note))
