"""Choose where a call may go: the ladder of upstreams for a model and a caller.

Laws: (1) the same model elsewhere comes before another model, and of equal places the cheaper one;
(2) another model is used only where the user has written so, and never for what is marked
`never_degrade`; (3) an order given by hand comes before the written order, and ends as told; (4)
nothing is chosen by the content of answers; (5) clients of other dialects than Anthropic's are sent
to upstreams of their own dialect alone.
Not here: when to leave a lane (lanes/), where a lane's state is known (lane_book.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from jackline.calls import Dialect
from jackline.gateway.identity import Identity
from jackline.providers.settings import UpstreamKind, UpstreamSettings

_SERVES_CLAUDE = (UpstreamKind.ANTHROPIC, UpstreamKind.BEDROCK, UpstreamKind.VERTEX)


class Rung(NamedTuple):
    """One place for a call: the upstream, the model asked there, whether that is another one."""

    upstream: UpstreamSettings
    model: str
    degrades: bool


class Places(NamedTuple):
    """The lanes that a call may take, and those that it may take only if all of them fail.

    `own_key` are those of both that are paid by the user's own key, where the first is not: they
    are closed to a client whose credential the first refuses. To one that is `unproven` they are
    open only once the first is known to be down for others.
    """

    lanes: tuple[str, ...]
    last_resorts: tuple[str, ...]
    own_key: tuple[str, ...] = ()
    unproven: bool = False


class OnlyPlace(NamedTuple):
    """A ladder of one rung, and where it leads; true as long as that rung is in use."""

    rung: Rung
    places: Places


@dataclass(frozen=True, slots=True)
class HandOrder:
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

    def moved(self, seconds: float) -> HandOrder:
        """The same order with its end on a clock that is ahead by so much."""
        return self if self.until is None else replace(self, until=self.until + seconds)


# What a mark in `never_degrade` is about.
_MARKED: Mapping[str, Callable[[Identity], str | None]] = {
    "tag": lambda identity: identity.tag,
    "agent": lambda identity: identity.agent,
    "class": lambda identity: identity.class_,
}


class Chooser:
    """The ladders of the configuration in force."""

    def __init__(self) -> None:
        self._upstreams: tuple[UpstreamSettings, ...] = (UpstreamSettings(),)
        self._never: tuple[str, ...] = ()
        self._ladders: dict[tuple[Dialect, str], tuple[Rung, ...]] = {}
        self.orders: tuple[HandOrder, ...] = ()

    def use(self, upstreams: Sequence[UpstreamSettings], never_degrade: Sequence[str] = ()) -> None:
        """Choose among these from now on; orders given by hand stay."""
        self._upstreams = tuple(upstreams)
        self._never = tuple(never_degrade)
        self._ladders.clear()

    def ladder(
        self, model: str, identity: Identity, now: float, dialect: Dialect = "anthropic"
    ) -> tuple[Rung, ...]:
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

    def _written(self, model: str, dialect: Dialect) -> tuple[Rung, ...]:
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


def _rungs(model: str, upstreams: Sequence[UpstreamSettings], dialect: Dialect) -> tuple[Rung, ...]:
    if dialect != "anthropic":
        speaks = [each for each in upstreams if each.kind.value == dialect]
        return _in_order([_rung_in_own_dialect(model, each) for each in speaks])
    found = [rung for each in upstreams if (rung := _rung(model, each)) is not None]
    if not found:
        # Nobody serves it: the preferred upstream may say so itself.
        return (Rung(upstreams[0], model, False),)
    return _in_order(found)


def _in_order(rungs: Sequence[Rung]) -> tuple[Rung, ...]:
    return tuple(sorted(rungs, key=lambda rung: (rung.degrades, rung.upstream.cost_class.rank)))


def _rung(model: str, upstream: UpstreamSettings) -> Rung | None:
    target = _mapped(model, upstream)
    if target is not None:
        is_same = upstream.kind in _SERVES_CLAUDE and _is_same(model, target)
        return Rung(upstream, target, not is_same)
    if upstream.kind in _SERVES_CLAUDE:
        return Rung(upstream, model, False)
    return None


def _rung_in_own_dialect(model: str, upstream: UpstreamSettings) -> Rung:
    target = _mapped(model, upstream)
    if target is None:
        return Rung(upstream, model, False)
    # Routers write the vendor before the name: openai/gpt-5.5. Any other name may be any model.
    return Rung(upstream, target, target.rpartition("/")[2] != model)


def _mapped(model: str, upstream: UpstreamSettings) -> str | None:
    for pattern, target in upstream.models.items():
        if fnmatchcase(model, pattern):
            return target
    return None


def _is_same(model: str, target: str) -> bool:
    # Clouds, bridges and routers write more around a model's name, and dots for dashes:
    # us.anthropic.claude-opus-4-8-v1:0, claude-opus-4.8, anthropic/claude-opus-4.8.
    return model.replace(".", "-") in target.replace(".", "-")
