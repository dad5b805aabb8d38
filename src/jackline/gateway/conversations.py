"""Keep a conversation where it is, and bring it back when that costs least.

Rules: (1) a conversation stays where it was last answered for as long as its turn goes on; (2)
between turns it goes back to where it belongs, as does one whose prompt cache has gone cold; (3) an
upstream that has just recovered gets no more conversations than it can carry to the end of their
turns; (4) what is not known is not kept: a conversation is where its ladder says; (5) it is known
by its client's credential, too: who only knows its name is not brought to where our key pays.
Not here: leaving a broken lane (lanes/), the ladder (choosing.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeAlias

from jackline.gateway.choosing import Rung
from jackline.gateway.identity import Who

# Whose conversation it is, and a digest of what its client logs in with.
Talk: TypeAlias = tuple[Who, bytes]

# How long vendors keep a prompt's cache: after that, staying saves nothing.
_CACHE_KEPT = 300.0
# Whoever was answered within this is taken to go on soon: its tools run.
_AT_WORK = 30.0
_MOST = 10_000


class Conversations:
    """Where conversations were last answered."""

    def __init__(self) -> None:
        self._places: OrderedDict[Talk, tuple[str, float]] = OrderedDict()

    def answered(self, talk: Talk, upstream: str, now: float) -> None:
        """A conversation was answered there."""
        self._places[talk] = (upstream, now)
        self._places.move_to_end(talk)
        if len(self._places) > _MOST:
            self._places.popitem(last=False)

    def kept(
        self, talk: Talk | None, rungs: Sequence[Rung], is_in_turn: Callable[[], bool], now: float
    ) -> Sequence[Rung]:
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

    def is_at(self, talk: Talk, upstream: str, now: float) -> bool:
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
