"""Remember where clients' sessions live: their folder, their transcript, their processes.

Laws: (1) only what a trusted hook told is remembered; (2) bounded, the longest silent go first.
Not here: what becomes of a session that stopped (assembly/session_continuing.py).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from jackline.failures import Kind
from jackline.hooks.asked import HookAsked
from jackline.hooks.deaths import Cause

_MOST = 2000
# The gateway, a hook and each attempt of a client that asks again tell of one and the same.
_SAME_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class Session:
    """One session of a client."""

    id: str
    cwd: str
    transcript: str
    processes: tuple[int, ...]
    """Those in which it lived when it was last heard of, the nearest first."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A session that died of an API error."""

    session: Session
    cause: Cause
    model: str = ""
    """Which the gateway was last asked for; empty where it was not asked."""
    run: str | None = None
    """The run that its calls are marked with, if any."""


class SessionsMet:
    """Every session that hooks told of."""

    def __init__(self) -> None:
        self._met: OrderedDict[str, Session] = OrderedDict()
        self._stops: OrderedDict[str, tuple[Kind, float]] = OrderedDict()

    def meet(self, told: HookAsked, processes: tuple[int, ...]) -> None:
        """A hook of this session, which is trusted, has told of it."""
        if not told.session_id or not told.cwd:
            return
        known = self._met.get(told.session_id)
        # A sub-agent works where its tools have led it, the session where it was started.
        cwd = told.cwd if known is None else known.cwd
        transcript = told.transcript_path or ("" if known is None else known.transcript)
        self._met[told.session_id] = Session(told.session_id, cwd, transcript, processes)
        self._met.move_to_end(told.session_id)
        while len(self._met) > _MOST:
            self._met.popitem(last=False)

    def of(self, session: str) -> Session | None:
        """What is known of it."""
        return self._met.get(session)

    def is_news(self, session: str, cause: Cause, now: float) -> bool:
        """Whether it is not yet known that this has stopped the session; from now on it is."""
        kind, at = self._stops.get(session, (None, 0.0))
        self._stops[session] = (cause.kind, now)
        self._stops.move_to_end(session)
        while len(self._stops) > _MOST:
            self._stops.popitem(last=False)
        return kind is not cause.kind or now - at > _SAME_STOP_S
