"""Find out whether an upstream is down, by evidence that an unknown client cannot make up.

Rules: (1) failures of a client that no vendor has accepted count for nothing: it may have caused
them; (2) for a model, an upstream is down when calls of known clients have failed there repeatedly
of late and none was accepted since; (3) where known clients give no evidence, our own probes
decide; they carry nothing of any caller, and two must fail before one is answered; (4) evidence is
what the upstream did: a 5xx, a refused connection, and a silence or a break only while this process
ran on time; what this machine lacks (files, ports, names, a route) and what a proxy does is none;
(5) in doubt an upstream works.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jackline.calls import CallRequest
from jackline.clock import Clock
from jackline.event_loop import LatenessWatch
from jackline.gateway.caller import credential_of
from jackline.gateway.lane_registry import LaneRegistry
from jackline.http1.headers import Headers
from jackline.lane_id import LaneId
from jackline.lanes.lane import Lane
from jackline.providers.provided_upstream import ProvidedUpstream
from jackline.upstream.http_upstream import HttpUpstream
from jackline.upstream.interface import ClosedHereError, NameTimeoutError, UpstreamRequest

# With many calls in flight some fail by chance. One that was accepted so recently says more.
_QUIET = 10.0
# When lanes last accepted calls is looked up no more often.
_LOOKED_AT_FOR = 0.5
# For so long the failures of known clients say how an upstream is.
_LATELY = 120.0
# Of so many upstreams and models; a caller uses a few models.
_MOST_PLACES = 256
# A verdict of probes is renewed after so long, and counts for no longer than the second.
_RENEWED_AFTER = 10.0
_HOLDS_FOR = 30.0
_PROBES = 2
# Of those that decide nothing, so many more are tried.
_MOST_PROBES = 5
# After the time that connecting may take, so that it is known which of the two was too long.
_PATIENCE = 5.0
# A vendor that works refuses it (401); what it answers is not read.
_QUESTION = UpstreamRequest(b"GET", b"/v1/models", ((b"accept", b"application/json"),))
_NEVER = -math.inf


@dataclass(slots=True)
class _Probed:
    """What probes of one upstream found, when it was last probed, and the task that probes anew."""

    at: float = _NEVER
    is_down: bool = False
    probed_at: float = _NEVER
    task: asyncio.Task[None] | None = None


class _Head:
    """Handles the answer to a probe up to its status, or the error that came instead of one."""

    held = 0

    def __init__(self) -> None:
        self.status: asyncio.Future[int | OSError] = asyncio.get_running_loop().create_future()

    def began(self, status: int, headers: Headers) -> None:  # noqa: ARG002 -- the protocol
        self._set(status)

    def received(self, data: bytes) -> None: ...

    def ended(self) -> None: ...

    def broke(self, error: OSError) -> None:
        self._set(error)

    def _set(self, status: int | OSError) -> None:
        if not self.status.done():
            self.status.set_result(status)


class OutageEvidence:
    """Which upstreams are down; `changed` is called when probes have found one to be so."""

    def __init__(
        self,
        lanes: Mapping[LaneId, Lane],
        registry: LaneRegistry,
        upstream: ProvidedUpstream,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self._lanes = lanes
        self._registry = registry
        self._upstream = upstream
        self._clock = clock
        self._changed = changed
        # When calls of known clients failed last, and the time before, by upstream and model.
        self._failed: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._accepted: dict[str, float] = {}
        self._accepted_at = _NEVER
        self._probed: dict[str, _Probed] = {}

    def failed(self, request: CallRequest, lane: LaneId, now: float) -> None:
        """The lane's upstream has shown a call that it is down; only a known client's counts."""
        upstream = self._registry.upstream(lane)
        credential = credential_of(request.message.headers)
        if upstream is None or not self._registry.clients.is_accepted(upstream.url, credential):
            return
        place = lane.label
        _, last = self._failed.pop(place, (_NEVER, _NEVER))
        self._failed[place] = last, now
        if len(self._failed) > _MOST_PLACES:
            self._failed.popitem(last=False)

    def is_down(self, lane: LaneId, now: float) -> bool:
        """Whether the lane's upstream is down; without evidence it is looked for, and this is no.

        After `changed` the answer may be another one.
        """
        place = lane.label
        accepted = self._last_accepted(place, now)
        if now - accepted < _QUIET:
            return False
        before, _ = self._failed.get(place, (_NEVER, _NEVER))
        if before > accepted and now - before < _LATELY:
            return True
        probed = self._probed.setdefault(lane.upstream, _Probed())
        if probed.task is None and now - probed.probed_at >= _RENEWED_AFTER:
            work = self._probe(lane.upstream, probed)
            probed.task = asyncio.get_running_loop().create_task(work)
        if not probed.is_down or now - probed.at >= _HOLDS_FOR:
            return False
        # Probes are about all models at once, so that any call that is accepted disproves them.
        return self._last_accepted(lane.upstream, now) < min(probed.at, now - _QUIET)

    async def close(self) -> None:
        """Leave no probe behind."""
        tasks = [each.task for each in self._probed.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _last_accepted(self, place: str, now: float) -> float:
        """When a call was last accepted there, whoever's it was: by a model, or an upstream."""
        # Many waiting calls look this up in a short time, and there may be thousands of lanes.
        if now - self._accepted_at >= _LOOKED_AT_FOR:
            self._accepted.clear()
            self._accepted_at = now
            for name, lane in self._lanes.items():
                # A lane that knows of an earlier process has accepted nothing in this one.
                if lane.health.accepts_per_second(now):
                    at = lane.health.accepted_at
                    for there in (name.label, name.upstream):
                        self._accepted[there] = max(self._accepted.get(there, _NEVER), at)
        return self._accepted.get(place, _NEVER)

    # --- probes of our own ---

    async def _probe(self, upstream: str, probed: _Probed) -> None:
        fails, is_down = 0, None
        try:
            for _ in range(_MOST_PROBES):
                has_failed = await self._fails(upstream)
                fails += has_failed is True
                if has_failed is False or fails == _PROBES:
                    is_down = has_failed
                    break
            probed.probed_at = self._clock.steady()
            if is_down is not None:
                probed.is_down, probed.at = is_down, probed.probed_at
        finally:
            probed.task = None
        if is_down:
            self._changed()

    async def _fails(self, upstream: str) -> bool | None:
        """Whether a probe finds it down; None when it decides nothing."""
        provider = self._upstream.provider(upstream)
        if provider is None:
            return False  # it was removed from the configuration meanwhile
        origin = provider.origin
        # On a connection of its own: those in use have carried what callers sent.
        http, head = HttpUpstream({upstream: origin}), _Head()
        with LatenessWatch() as watch:
            attempt = http.start(provider.render(_QUESTION, ""), LaneId(upstream), head)
            try:
                await asyncio.wait([head.status], timeout=origin.connect_seconds + _PATIENCE)
                found = head.status.result() if head.status.done() else TimeoutError()
                was_late = watch.was_late
            finally:
                attempt.hang_up()
                await http.close()
        if isinstance(found, int):
            return found >= 500
        if origin.proxy_address is not None:
            return None
        if isinstance(found, ConnectionRefusedError):
            return True
        is_theirs = isinstance(found, ConnectionError | TimeoutError)
        is_theirs = is_theirs and not isinstance(found, NameTimeoutError | ClosedHereError)
        return True if is_theirs and not was_late else None
