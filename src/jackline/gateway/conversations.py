"""Keep a conversation where it is, and bring it back when that costs least.

Laws: (1) a conversation that moved stays for as long as its turn goes on; (2) between turns it goes
back to where it belongs, as does one whose prompt cache has gone cold; (3) what is not known is not
kept: a conversation is where its ladder says.
Not here: leaving a broken lane (lanes/), the ladder (choosing.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from jackline.dialects.anthropic_turns import in_the_middle_of_a_turn
from jackline.gateway.choosing import Rung
from jackline.gateway.returning import Who

# How long vendors keep a prompt's cache: after that, staying saves nothing.
_CACHE_KEPT = 300.0
_MOST = 10_000


class Conversations:
    """Where the conversations are that are not where they belong."""

    def __init__(self) -> None:
        self._away: OrderedDict[Who, tuple[str, float]] = OrderedDict()

    def answered(self, who: Who, upstream: str, home: str, now: float) -> None:
        """A conversation was answered there; `home` is where its ladder begins."""
        if upstream == home:
            self._away.pop(who, None)
            return
        self._away[who] = (upstream, now)
        self._away.move_to_end(who)
        if len(self._away) > _MOST:
            self._away.popitem(last=False)

    def kept(
        self, who: Who | None, rungs: Sequence[Rung], body: bytes | bytearray, now: float
    ) -> Sequence[Rung]:
        """The ladder of a call of this conversation: it begins where the conversation is."""
        place = None if who is None else self._away.get(who)
        if place is None:
            return rungs
        upstream, since = place
        if now - since > _CACHE_KEPT or not in_the_middle_of_a_turn(body):
            return rungs
        here = [rung for rung in rungs if rung.upstream.name == upstream]
        others = [rung for rung in rungs if rung.upstream.name != upstream]
        # Where it is already, it is no last resort.
        return (*(rung._replace(degrades=False) for rung in here), *others)
