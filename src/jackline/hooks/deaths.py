"""Remember which sub-agents died of what, until their parents know.

Laws: (1) bounded, the oldest go first; (2) each is told to its parent once; (3) an agent that came
back to life (it was resumed) is dead no more.
Not here: the words (answering.py).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from jackline.agents.endings import ending_of
from jackline.agents.outcome import Ending
from jackline.failures import Failure

_MOST = 2000


@dataclass(frozen=True, slots=True)
class Death:
    """One sub-agent's end."""

    session: str
    agent: str
    failure: Failure

    @property
    def terminated_by(self) -> Ending:
        """What ended it."""
        return ending_of(self.failure)


class Deaths:
    """All that were heard of and not yet told."""

    def __init__(self) -> None:
        self._untold: OrderedDict[tuple[str, str], Death] = OrderedDict()

    def heard(self, death: Death) -> None:
        """A sub-agent has died."""
        key = (death.session, death.agent)
        self._untold[key] = death
        self._untold.move_to_end(key)
        while len(self._untold) > _MOST:
            self._untold.popitem(last=False)

    def revived(self, session: str, agent: str) -> None:
        """It goes on after all."""
        self._untold.pop((session, agent), None)

    def tell(self, session: str, agent: str) -> Death | None:
        """This agent's death, if its parent has not been told; from now on it has."""
        return self._untold.pop((session, agent), None)

    def tell_all(self, session: str) -> list[Death]:
        """Every untold death of this session; from now on they are told."""
        keys = [key for key in self._untold if key[0] == session]
        return [self._untold.pop(key) for key in keys]
