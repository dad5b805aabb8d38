"""Choose where a call may go: the ladder of upstreams for a model and a caller.

Laws: (1) the same model elsewhere comes before another model; (2) another model is used only where
the user has written so, and never for what is marked `never_degrade`; (3) an order given by hand
comes before the written order, and ends as told; (4) nothing is chosen by the content of answers.
Not here: when to leave a lane (lanes/), where a lane's state is known (lane_book.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from jackline.gateway.identity import Identity
from jackline.providers.settings import UpstreamKind, UpstreamSettings

_SERVES_CLAUDE = (UpstreamKind.ANTHROPIC, UpstreamKind.BEDROCK, UpstreamKind.VERTEX)


class Rung(NamedTuple):
    """One place for a call: the upstream, the model asked there, whether that is another one."""

    upstream: UpstreamSettings
    model: str
    degrades: bool


@dataclass(frozen=True, slots=True)
class HandOrder:
    """Somebody said: use this upstream, for these calls, until then."""

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


class Chooser:
    """The ladders of the configuration in force."""

    def __init__(self) -> None:
        self._upstreams: tuple[UpstreamSettings, ...] = (UpstreamSettings(),)
        self._never: tuple[str, ...] = ()
        self._ladders: dict[str, tuple[Rung, ...]] = {}
        self.orders: tuple[HandOrder, ...] = ()

    def use(self, upstreams: Sequence[UpstreamSettings], never_degrade: Sequence[str] = ()) -> None:
        """Choose among these from now on; orders given by hand stay."""
        self._upstreams = tuple(upstreams)
        self._never = tuple(never_degrade)
        self._ladders.clear()

    def ladder(self, model: str, identity: Identity, now: float) -> tuple[Rung, ...]:
        """Where the call may go, the preferred first; never empty."""
        rungs = self._ladders.get(model)
        if rungs is None:
            rungs = _rungs(model, self._upstreams)
            if len(self._ladders) < 1024:
                self._ladders[model] = rungs
        if len(rungs) == 1:
            return rungs
        if self._never and self._is_marked(model, identity):
            rungs = tuple(rung for rung in rungs if not rung.degrades) or rungs[:1]
        for order in self.orders:
            if order.holds(model, identity, now):
                chosen = [rung for rung in rungs if rung.upstream.name == order.upstream]
                if chosen:
                    others = [rung for rung in rungs if rung.upstream.name != order.upstream]
                    # What was chosen by hand is no last resort, whatever model it is.
                    return (*(rung._replace(degrades=False) for rung in chosen), *others)
        return rungs

    def _is_marked(self, model: str, identity: Identity) -> bool:
        for pattern in self._never:
            kind, found, rest = pattern.partition(":")
            if found and kind in ("tag", "agent"):
                named = identity.tag if kind == "tag" else identity.agent
                if named is not None and fnmatchcase(named, rest):
                    return True
            elif fnmatchcase(model, pattern):
                return True
        return False


def _rungs(model: str, upstreams: Sequence[UpstreamSettings]) -> tuple[Rung, ...]:
    found = [rung for each in upstreams if (rung := _rung(model, each)) is not None]
    if not found:
        # Nobody serves it: the preferred upstream may say so itself.
        return (Rung(upstreams[0], model, False),)
    return tuple(sorted(found, key=lambda rung: rung.degrades))


def _rung(model: str, upstream: UpstreamSettings) -> Rung | None:
    for pattern, target in upstream.models.items():
        if fnmatchcase(model, pattern):
            return Rung(upstream, target, not _is_same(model, target, upstream.kind))
    if upstream.kind in _SERVES_CLAUDE:
        return Rung(upstream, model, False)
    return None


def _is_same(model: str, target: str, kind: UpstreamKind) -> bool:
    # Clouds, bridges and routers write more around a model's name, and dots for dashes:
    # us.anthropic.claude-opus-4-8-v1:0, claude-opus-4.8, anthropic/claude-opus-4.8.
    return kind in _SERVES_CLAUDE and model in target.replace(".", "-")
