"""Know how each agent's latest call through the gateway ended, without asking its client.

Laws: (1) bounded, the longest silent go first; (2) the latest call counts: an answer takes an
earlier error back; (3) an error that was handed on is not yet a death, since clients ask again.
Not here: whether an agent died of it (finding_deaths.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, TypeVar

from jackline.clock import Clock
from jackline.events import AttemptFailed, CallEnded, Event
from jackline.failures import Kind, Observation, Where, classify
from jackline.hooks.deaths import Cause

K = TypeVar("K")
V = TypeVar("V")

_MOST = 5000
_HANDED_ON = frozenset(("refused", "broken"))
_ANSWERED = frozenset(("answered", "shortened"))
# Calls that are no agent's turn are named by what they ask for, where others name their model.
_NO_TURN = frozenset(("count_tokens", "models"))
_WALLS = frozenset((Kind.ACCOUNT_QUOTA.value, Kind.BILLING.value))


class Fate(NamedTuple):
    """What became of an agent's latest call; `cause` is None when it was answered."""

    cause: Cause | None
    answered_at: float
    """When a call of it was last answered, by the clock's steady time; zero if none was."""
    model: str
    tag: str | None
    """That of the run that carries the agent, if one does."""


class CallFates:
    """The latest of every agent; `heard` is told all that the gateway announces."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fates: OrderedDict[tuple[str, str], Fate] = OrderedDict()
        self._attempts: OrderedDict[str, AttemptFailed] = OrderedDict()
        self._walls: OrderedDict[str, AttemptFailed] = OrderedDict()
        self.on_wall: Callable[[str, Cause], None] | None = None
        """Hears of a quota wall that was handed to a session's main thread."""
        self.on_answer: Callable[[CallEnded], None] | None = None
        """Hears of each answer to a session's main thread."""

    def of(self, session: str, agent: str = "") -> Fate | None:
        """What became of the latest call of this agent (of the main thread, without one)."""
        return self._fates.get((session, agent))

    def heard(self, event: Event) -> None:
        """Something happened in the gateway."""
        if isinstance(event, CallEnded):
            if event.session is not None and event.model not in _NO_TURN:
                self._ended(event, event.session, event.agent or "")
        elif isinstance(event, AttemptFailed):
            _keep(self._attempts, event.call, event)
            if event.kind in _WALLS:
                _keep(self._walls, _account(event.lane), event)

    def _ended(self, event: CallEnded, session: str, agent: str) -> None:
        key = (session, agent)
        if event.outcome in _ANSWERED:
            # Nearly every call of the gateway comes here.
            if self._attempts:
                self._attempts.pop(event.call, None)
            _keep(self._fates, key, Fate(None, self._clock.steady(), event.model, event.tag))
            if not agent and self.on_answer is not None:
                self.on_answer(event)
        elif event.outcome in _HANDED_ON:
            before = self._fates.get(key)
            answered_at = 0.0 if before is None else before.answered_at
            cause = self._cause(event, before)
            _keep(self._fates, key, Fate(cause, answered_at, event.model, event.tag))
            is_wall = cause.kind is Kind.ACCOUNT_QUOTA
            if is_wall and not agent and self.on_wall is not None:
                self.on_wall(session, cause)

    def _cause(self, event: CallEnded, before: Fate | None) -> Cause:
        failed = self._attempts.pop(event.call, None)
        if failed is None and not event.lane and before is not None and before.cause is not None:
            return before.cause  # it asked again, and was told the same again
        now = self._clock.now()
        if failed is None:
            # It was never sent: another call of the same account had met the wall.
            failed = self._walls.get(_account(event.lane))
            if failed is None or (failed.resets_at or event.at) < event.at:
                seen = Observation(Where.HTTP, status=event.status)
                return Cause.of(classify(seen, now=now))
        resets_at = failed.resets_at
        when = None if resets_at is None else datetime.fromtimestamp(resets_at, now.tzinfo)
        return Cause(Kind(failed.kind), failed.sub, when)


def _account(lane: str) -> str:
    upstream, _, rest = lane.partition("/")
    return f"{upstream}#{rest.rpartition('#')[2]}"


def _keep(kept: OrderedDict[K, V], key: K, value: V) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > _MOST:
        kept.popitem(last=False)
