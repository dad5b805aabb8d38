"""Remember which sub-agents died of what, until their parents know.

Laws: (1) bounded, the oldest go first; (2) each death is told once, by however many ways the news
of it comes; (3) an agent that came back to life (it was resumed) can die, and be told of, again.
Not here: the words (answering.py), how a death is known (finding_deaths.py).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from jackline.agents.endings import ENDINGS
from jackline.agents.outcome import Ending
from jackline.failures import Failure, Kind
from jackline.failures.sentences import name_of_kind

_MOST = 2000
# News of one death comes by several ways, a process start apart at most.
_SAME_DEATH_S = 10.0


@dataclass(frozen=True, slots=True)
class Cause:
    """What ended a session or a sub-agent."""

    kind: Kind
    sub: str | None = None
    resets_at: datetime | None = None

    @classmethod
    def of(cls, failure: Failure) -> Self:
        """The cause that a classified failure is."""
        return cls(failure.kind, failure.sub, failure.resets_at)

    @property
    def name(self) -> str:
        """A noun phrase for it, fit for the middle of a sentence."""
        return name_of_kind(self.kind, self.sub)


@dataclass(frozen=True, slots=True)
class Death:
    """One sub-agent's end."""

    session: str
    agent: str
    cause: Cause

    @property
    def terminated_by(self) -> Ending:
        """What ended it."""
        return ENDINGS[self.cause.kind]


class Deaths:
    """All that were heard of and not yet told, and when the others were told."""

    def __init__(self) -> None:
        self._untold: OrderedDict[tuple[str, str], Death] = OrderedDict()
        self._told: OrderedDict[tuple[str, str], float] = OrderedDict()

    def heard(self, death: Death, now: float) -> None:
        """A sub-agent has died."""
        key = (death.session, death.agent)
        if now - self._told.get(key, -_SAME_DEATH_S) < _SAME_DEATH_S:
            return  # by another way its parent knows already
        self._told.pop(key, None)
        self._untold[key] = death
        self._untold.move_to_end(key)
        while len(self._untold) > _MOST:
            self._untold.popitem(last=False)

    def revived(self, session: str, agent: str) -> None:
        """It goes on after all."""
        self._untold.pop((session, agent), None)
        self._told.pop((session, agent), None)

    def untold(self, session: str, agent: str | None = None) -> list[Death]:
        """The deaths that this session, or this agent's parent, does not know of."""
        return [
            death
            for key, death in self._untold.items()
            if key[0] == session and agent in (None, key[1])
        ]

    def told_at(self, session: str, agent: str) -> float | None:
        """When its parent was told; None if it was not, or the agent has lived again since."""
        return self._told.get((session, agent))

    def tell(self, death: Death, now: float) -> None:
        """From now on its parent knows."""
        key = (death.session, death.agent)
        self._untold.pop(key, None)
        self._told[key] = now
        self._told.move_to_end(key)
        while len(self._told) > _MOST:
            self._told.popitem(last=False)
