"""Choose the routes of a call: the fallback order of upstreams for its model and conversation.

Rules: (1) the same model elsewhere comes before another model, and of equal routes the cheaper one;
(2) another model is used only where the user configured it, and never for what is marked
`never_degrade`; (3) an order by hand comes before the configured order, and ends at its time; (4)
nothing is chosen by the content of answers; (5) clients of other dialects than Anthropic's are sent
to upstreams of their own dialect only; (6) a conversation stays where it was last answered for as
long as its turn goes on; between turns, or when its prompt cache is cold, it goes back to its
preferred upstream; (7) an unknown conversation follows the fallback order; (8) a conversation is
recognised by its client's credential, too: somebody who only knows its name does not get our key.
Not here: when to leave a lane (lanes/), the state of lanes (lane_registry.py, placement.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

from jackline.calls import Dialect
from jackline.gateway.identity import Identity, Who
from jackline.lane_id import LaneId
from jackline.providers.settings import UpstreamSettings


class CallRoute(NamedTuple):
    """One place for a call: the upstream, the model asked there, whether that is another one."""

    upstream: UpstreamSettings
    model: str
    degrades: bool


class CallLanes(NamedTuple):
    """The lanes that a call may take, and those that it may take only if all of them fail.

    `own_key` are those of both that are paid by the user's own key, where the first is not: they
    are closed to a client whose credential the first refuses. To one that is `unproven` they are
    open only once the first is known to be down for others.
    """

    lanes: tuple[LaneId, ...]
    last_resorts: tuple[LaneId, ...]
    own_key: tuple[LaneId, ...] = ()
    unproven: bool = False


class SingleRoute(NamedTuple):
    """A ladder of one rung, and where it leads; true as long as that rung is in use."""

    rung: CallRoute
    places: CallLanes


@dataclass(frozen=True, slots=True)
class RouteOverride:
    """Somebody said: use this upstream, for these calls, until then (as `now` is measured)."""

    upstream: str
    model: str | None = None
    session: str | None = None
    agent: str | None = None
    until: float | None = None

    def holds(self, model: str, identity: Identity, now: float) -> bool:
        """Whether it is about this call, and still in force."""
        return (
            (self.until is None or now < self.until)
            and (self.model is None or fnmatchcase(model, self.model))
            and (self.session is None or identity.session == self.session)
            and (self.agent is None or identity.agent == self.agent)
        )

    def moved(self, seconds: float) -> RouteOverride:
        """The same order with its end on a clock that is ahead by so much."""
        return self if self.until is None else replace(self, until=self.until + seconds)


# What a mark in `never_degrade` is about.
_MARKED: Mapping[str, Callable[[Identity], str | None]] = {
    "tag": lambda identity: identity.tag,
    "agent": lambda identity: identity.agent,
    "class": lambda identity: identity.class_,
}


class RouteChooser:
    """The ladders of the configuration in force."""

    def __init__(self) -> None:
        self._upstreams: tuple[UpstreamSettings, ...] = (UpstreamSettings(),)
        self._never: tuple[str, ...] = ()
        self._ladders: dict[tuple[Dialect, str], tuple[CallRoute, ...]] = {}
        self.orders: tuple[RouteOverride, ...] = ()

    def use(self, upstreams: Sequence[UpstreamSettings], never_degrade: Sequence[str] = ()) -> None:
        """Choose among these from now on; orders given by hand stay."""
        self._upstreams = tuple(upstreams)
        self._never = tuple(never_degrade)
        self._ladders.clear()

    def ladder(
        self, model: str, identity: Identity, now: float, dialect: Dialect = "anthropic"
    ) -> tuple[CallRoute, ...]:
        """Where the call may go, the preferred first; empty only when nobody speaks its dialect."""
        rungs = self._ladders.get((dialect, model)) or self._written(model, dialect)
        if len(rungs) <= 1:
            return rungs
        if self._never and self._is_marked(model, identity):
            rungs = tuple(rung for rung in rungs if not rung.degrades) or rungs[:1]
        for order in self.orders:
            chosen = [rung for rung in rungs if rung.upstream.name == order.upstream]
            if chosen and order.holds(model, identity, now):
                others = [rung for rung in rungs if rung.upstream.name != order.upstream]
                # What was chosen by hand is no last resort, whatever model it is.
                return (*(rung._replace(degrades=False) for rung in chosen), *others)
        return rungs

    def _written(self, model: str, dialect: Dialect) -> tuple[CallRoute, ...]:
        """The ladder as the configuration has it."""
        rungs = self._ladders.get((dialect, model))
        if rungs is None:
            rungs = _rungs(model, self._upstreams, dialect)
            if len(self._ladders) < 1024:
                self._ladders[dialect, model] = rungs
        return rungs

    def degrades(self, model: str, upstream: str, dialect: Dialect = "anthropic") -> bool:
        """Whether another model answers for this one there."""
        rungs = self._written(model, dialect)
        return any(rung.degrades for rung in rungs if rung.upstream.name == upstream)

    def is_ordered(self, upstream: str, model: str, identity: Identity, now: float) -> bool:
        """Whether somebody has ordered by hand that such a call goes to this upstream."""
        return any(
            order.upstream == upstream and order.holds(model, identity, now)
            for order in self.orders
        )

    def _is_marked(self, model: str, identity: Identity) -> bool:
        for pattern in self._never:
            kind, found, rest = pattern.partition(":")
            if found and kind in _MARKED:
                named = _MARKED[kind](identity)
                if named is not None and fnmatchcase(named, rest):
                    return True
            elif fnmatchcase(model, pattern):
                return True
        return False


def _rungs(
    model: str, upstreams: Sequence[UpstreamSettings], dialect: Dialect
) -> tuple[CallRoute, ...]:
    if dialect != "anthropic":
        speaks = [each for each in upstreams if each.kind.value == dialect]
        return _in_order([_rung_in_own_dialect(model, each) for each in speaks])
    found = [rung for each in upstreams if (rung := _rung(model, each)) is not None]
    if not found:
        # Nobody serves it: the preferred upstream may say so itself.
        return (CallRoute(upstreams[0], model, False),)
    return _in_order(found)


def _in_order(rungs: Sequence[CallRoute]) -> tuple[CallRoute, ...]:
    return tuple(sorted(rungs, key=lambda rung: (rung.degrades, rung.upstream.cost_class.rank)))


def _rung(model: str, upstream: UpstreamSettings) -> CallRoute | None:
    target = _mapped(model, upstream)
    if target is not None:
        is_same = upstream.kind.facts.serves_claude and _is_same(model, target)
        return CallRoute(upstream, target, not is_same)
    if upstream.kind.facts.serves_claude:
        return CallRoute(upstream, model, False)
    return None


def _rung_in_own_dialect(model: str, upstream: UpstreamSettings) -> CallRoute:
    target = _mapped(model, upstream)
    if target is None:
        return CallRoute(upstream, model, False)
    # Routers write the vendor before the name: openai/gpt-5.5. Any other name may be any model.
    return CallRoute(upstream, target, target.rpartition("/")[2] != model)


def _mapped(model: str, upstream: UpstreamSettings) -> str | None:
    for pattern, target in upstream.models.items():
        if fnmatchcase(model, pattern):
            return target
    return None


def _is_same(model: str, target: str) -> bool:
    # Clouds, bridges and routers write more around a model's name, and dots for dashes:
    # us.anthropic.claude-opus-4-8-v1:0, claude-opus-4.8, anthropic/claude-opus-4.8.
    return model.replace(".", "-") in target.replace(".", "-")


# Whose conversation it is, and a digest of what its client logs in with.
ConversationKey: TypeAlias = tuple[Who, bytes]

# How long vendors keep a prompt's cache: after that, staying saves nothing.
_CACHE_KEPT = 300.0
# Whoever was answered within this is taken to go on soon: its tools run.
_AT_WORK = 30.0
_MOST = 10_000


class Conversations:
    """Where conversations were last answered."""

    def __init__(self) -> None:
        self._places: OrderedDict[ConversationKey, tuple[str, float]] = OrderedDict()

    def answered(self, talk: ConversationKey, upstream: str, now: float) -> None:
        """A conversation was answered there."""
        self._places[talk] = (upstream, now)
        self._places.move_to_end(talk)
        if len(self._places) > _MOST:
            self._places.popitem(last=False)

    def kept(
        self,
        talk: ConversationKey | None,
        rungs: Sequence[CallRoute],
        is_in_turn: Callable[[], bool],
        now: float,
    ) -> Sequence[CallRoute]:
        """The ladder of a call of this conversation: it begins where the conversation is."""
        place = None if talk is None else self._places.get(talk)
        if place is None or place[0] == rungs[0].upstream.name:
            return rungs
        upstream, since = place
        if now - since > _CACHE_KEPT or not is_in_turn():
            return rungs
        here = [rung for rung in rungs if rung.upstream.name == upstream]
        others = [rung for rung in rungs if rung.upstream.name != upstream]
        # Where it is already, it is no last resort.
        return (*(rung._replace(degrades=False) for rung in here), *others)

    def is_at(self, talk: ConversationKey, upstream: str, now: float) -> bool:
        """Whether a conversation was last answered there, and not long ago."""
        place = self._places.get(talk)
        return place is not None and place[0] == upstream and now - place[1] <= _CACHE_KEPT

    def at_work(self, upstream: str, now: float) -> int:
        """How many conversations are under way there."""
        found = 0
        for place, since in reversed(self._places.values()):
            if now - since > _AT_WORK:
                break
            found += place == upstream
        return found
