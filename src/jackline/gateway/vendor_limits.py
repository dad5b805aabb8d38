"""Read vendors' rate-limits APIs at start and daily, for upstreams that have an admin key.

Rules: (1) nothing waits for it, and nothing stops without it: a failed reading changes nothing, is
reported in one note with what to do, and is retried ever more rarely; (2) the key is resolved for
each reading, goes to the upstream's own host only, whatever a redirect says, and is neither stored
nor shown; (3) a reading counts as a whole: without a workspace's limits the organization's do not
count either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from jackline.clock import Clock
from jackline.failures.wording import redact
from jackline.lane_id import LaneId
from jackline.lanes import KnownLimits
from jackline.providers.provided_upstream import origin_of
from jackline.providers.rate_limits_api import (
    LimitsPage,
    limit_paths,
    limits_request,
    merged_limits,
    parse_limits_page,
)
from jackline.providers.settings import UpstreamSettings
from jackline.upstream.bounded_answers import FetchedDocument, fetch
from jackline.upstream.http_upstream import HttpUpstream

_log = logging.getLogger("jackline")
DAILY = 86_400.0
_FIRST_RETRY = 60.0
_LONGEST_RETRY = 3600.0
_JITTER = 0.1
_LOOK_EVERY = 2.0
_MOST_BYTES = 1024 * 1024
_MOST_PAGES = 20
_PATIENCE = 20.0
_LONGEST_REASON = 160
_ANSWER_DEPENDS_ON = (
    "url",
    "kind",
    "admin_key",
    "workspace",
    "project",
    "proxy",
    "ca_file",
    "secret",
)


@dataclass(frozen=True, slots=True)
class LimitReading:
    """What the API of one upstream reported, and when, by the wall clock."""

    limits: Mapping[str, KnownLimits]
    read_at: float


class UnreadLimitsError(Exception):
    """The limits cannot be read, and why; `fix` is what to do."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.fix = fix


@dataclass(slots=True)
class _Watched:
    """One upstream whose API is read; `due` is when next, on the steady time line."""

    settings: UpstreamSettings
    due: float
    failures: int = 0


class VendorLimits:
    """The readings of all upstreams that have an admin key; `watch` runs beside the gateway.

    `look_up` resolves a reference, or raises ValueError; it is called in a thread of its own.
    `notes` are sentences of the service that hold until they are removed. `changed` is called after
    `readings` have. `draw` returns numbers in [0, 1).
    """

    def __init__(
        self,
        upstreams: Sequence[UpstreamSettings],
        look_up: Callable[[str], str],
        notes: MutableMapping[str, str],
        clock: Clock,
        draw: Callable[[], float],
        environ: Mapping[str, str],
        *,
        patience: float = _PATIENCE,
    ) -> None:
        self._look_up = look_up
        self._notes = notes
        self._clock = clock
        self._draw = draw
        self._environ = environ
        self._patience = patience
        self._upstream = HttpUpstream({})
        self._watched: dict[str, _Watched] = {}
        self.readings: dict[str, LimitReading] = {}
        self.changed: Callable[[], None] = lambda: None
        self.use(upstreams)

    def use(self, upstreams: Sequence[UpstreamSettings]) -> None:
        """Read these from now on; what was read of others is dropped."""
        wanted = {each.name: each for each in upstreams if each.admin_key is not None}
        for name in self._watched.keys() - wanted.keys():
            self._forget(name)
        for name, settings in wanted.items():
            known = self._watched.get(name)
            if known is not None and all(
                getattr(known.settings, field) == getattr(settings, field)
                for field in _ANSWER_DEPENDS_ON
            ):
                continue
            self._forget(name)
            self._upstream.use(name, origin_of(settings, self._environ))
            self._watched[name] = _Watched(settings, self._clock.steady())

    async def watch(self) -> None:
        """Read whatever is due, until cancelled."""
        while True:
            now = self._clock.steady()
            due = [each for each in self._watched.values() if each.due <= now]
            await asyncio.gather(*map(self._look, due))
            await self._clock.sleep(_LOOK_EVERY)

    async def close(self) -> None:
        """Leave no connection."""
        await self._upstream.close()

    async def read(self, name: str) -> LimitReading:
        """What the API of this upstream reports now; UnreadLimitsError if it does not."""
        return await self._read(self._watched[name].settings)

    async def _read(self, settings: UpstreamSettings) -> LimitReading:
        try:
            key = await asyncio.to_thread(self._look_up, settings.admin_key or "")
        except ValueError as error:
            raise UnreadLimitsError(str(error), "mend it, or leave admin_key out") from error
        found: dict[str, KnownLimits] = {}
        for path in limit_paths(settings):
            reported: dict[str, KnownLimits] = {}
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                answer = await fetch(
                    self._upstream,
                    limits_request(settings, path, cursor, key),
                    LaneId(settings.name),
                    most_bytes=_MOST_BYTES,
                    seconds=self._patience,
                )
                page = _page(settings, answer)
                reported |= page.limits
                if page.next_page is None or page.next_page == cursor:
                    break
                cursor = page.next_page
            found |= {
                model: merged_limits(found.get(model, KnownLimits()), limits)
                for model, limits in reported.items()
            }
        return LimitReading(found, self._clock.wall())

    async def _look(self, watched: _Watched) -> None:
        settings = watched.settings
        # Set before reading, so that a slow answer is not requested twice.
        watched.due = self._clock.steady() + self._pause(DAILY)
        try:
            reading = await self._read(settings)
        except UnreadLimitsError as error:
            if self._watched.get(settings.name) is watched:
                self._failed(watched, error)
            return
        if self._watched.get(settings.name) is not watched:
            return  # the settings have changed meanwhile
        watched.failures = 0
        self._notes.pop(_note_of(settings.name), None)
        self.readings[settings.name] = reading
        _log.info("limits of %s: read for %d models", settings.name, len(reading.limits))
        self.changed()

    def _failed(self, watched: _Watched, error: UnreadLimitsError) -> None:
        name = watched.settings.name
        pause = min(_LONGEST_RETRY, _FIRST_RETRY * 2.0 ** min(watched.failures, 10))
        watched.failures += 1
        watched.due = self._clock.steady() + self._pause(pause)
        instead = "what was read before holds" if name in self.readings else "headers report them"
        words = f"limits of {name} cannot be read from its vendor: {error}; {instead}; {error.fix}"
        if self._notes.get(_note_of(name)) != words:
            _log.warning("%s", words)
        self._notes[_note_of(name)] = words

    def _pause(self, seconds: float) -> float:
        return seconds * (1.0 + _JITTER * (2.0 * self._draw() - 1.0))

    def _forget(self, name: str) -> None:
        self._watched.pop(name, None)
        self.readings.pop(name, None)
        self._notes.pop(_note_of(name), None)


def _note_of(name: str) -> str:
    return f"limits of {name}"


def _page(settings: UpstreamSettings, answer: FetchedDocument) -> LimitsPage:
    """The page that came; of an answer that is none, nothing is reported but its status."""
    if answer.error is not None:
        why = redact(" ".join(str(answer.error).split()), _LONGEST_REASON)
        raise UnreadLimitsError(why or type(answer.error).__name__, "it is tried again by itself")
    status = answer.status or 0
    if status in (401, 403):
        raise UnreadLimitsError(
            f"the key was refused (status {status})",
            "name a key with admin rights over the organization in admin_key, or leave it out",
        )
    if 300 <= status < 400:
        raise UnreadLimitsError(
            f"it redirects (status {status}), which is not followed", "check url of the upstream"
        )
    if status == 404:
        raise UnreadLimitsError(
            "it has no such API, workspace or project (status 404)",
            "check url, workspace and project of the upstream, or leave admin_key out",
        )
    body = answer.document
    if body is None:
        why = "its answer is too large" if answer.cut else f"it answers with status {status}"
        raise UnreadLimitsError(why, "it is tried again by itself")
    page = parse_limits_page(settings.kind, body)
    if page is None:
        raise UnreadLimitsError(
            "its answer is not what the vendor documents", "check url of the upstream"
        )
    return page
