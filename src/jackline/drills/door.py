"""Hold what a crew talks to, and watch what a gateway says of itself meanwhile.

Laws: (1) what a gateway says is read as its users read it, over HTTP and from its journal; (2) a
gateway that does not answer is asked again, and nothing is made up for it.
Not here: opening a gateway (gateway_side.py), judging what it said (judging.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from jackline.drills.http_exchange import exchanged
from jackline.drills.pace import Pace
from jackline.events import AttemptFailed

STATUS = "/_jackline/status"
# Twice in the shortest time that a lane is left alone for.
LOOK_EVERY_S = 2.0


@dataclass(slots=True)
class Door:
    """The base URL of a gateway or a provider, and what was learned about it."""

    url: str
    failed: Sequence[AttemptFailed] = ()
    """Attempts that failed, by the gateway's journal; there once it is closed."""
    verdicts: list[str] = field(default_factory=list)
    """What its status said, each sentence once."""

    async def watch(self, pace: Pace) -> None:
        """Read the status for ever."""
        while True:
            verdict = await self._verdict()
            if verdict and verdict not in self.verdicts:
                self.verdicts.append(verdict)
            await pace.sleep(LOOK_EVERY_S)

    async def _verdict(self) -> str:
        try:
            async with exchanged(self.url, "GET", STATUS) as response:
                return str(json.loads(await response.whole())["verdict"])
        except ConnectionError:
            return ""  # it is only asked again; that clients reach it is seen by their records
