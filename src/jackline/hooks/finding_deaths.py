"""Find out whether a sub-agent died, from all that may know of it.

Laws: (1) evidence is its client's hook, its own transcript, or what the client says of its end if
the gateway, or the client's own numbers, say so too; words that only look like an error are none;
(2) the gateway's word
comes first, since it was there; (3) what a client has not written yet is waited for, though never
for longer than its hooks wait for us; (4) files are read off the event loop.
Not here: what is told of it (answering.py), remembering (deaths.py).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from jackline.agents.claude_code.dead_agent import DeadAgent, read_dead_agent
from jackline.agents.endings import ENDINGS
from jackline.agents.outcome import Ending as Terminated
from jackline.autopsy.story import Ending
from jackline.clock import Clock
from jackline.errors import UnreadableError
from jackline.failures import Observation, Where, classify
from jackline.hooks.asked import Ended, HookAsked
from jackline.hooks.deaths import Cause, Death, Deaths
from jackline.hooks.fates import CallFates

# Less than the time limit of the plugin's hooks (clients/plugin_files.py).
_LATE_S = 2.0
_LOOK_AGAIN_S = 0.05
# What a client's words may say that an API did to an agent; the others are its own or its user's.
_DEADLY = frozenset(
    kind
    for kind, ending in ENDINGS.items()
    if ending in (Terminated.RATE_LIMIT, Terminated.QUOTA, Terminated.OUTAGE, Terminated.REFUSED)
)


@dataclass(frozen=True, slots=True)
class Found:
    """A sub-agent that died, and what is left of it, as far as that is written."""

    death: Death
    left: DeadAgent | None


class DeathFinder:
    """Asks the hooks' memory, the gateway and the transcript."""

    def __init__(self, deaths: Deaths, fates: CallFates, clock: Clock) -> None:
        self._deaths = deaths
        self._fates = fates
        self._clock = clock

    async def find(self, told: HookAsked, ended: Ended) -> Found | None:
        """The death of an agent that has ended by its client's word; None if it did not die."""
        waits_until = self._clock.monotonic() + _LATE_S
        while True:
            left = await asyncio.to_thread(_left, told, ended.agent)
            cause = self._cause(told.session_id, ended, left)
            is_written = left is not None and left.story.ending is not Ending.CUT
            if cause is None and (is_written or self._is_answered(told.session_id, ended)):
                return None
            # What it had finished may still be on its way to the disk.
            if is_written or self._clock.monotonic() >= waits_until:
                break
            await self._clock.sleep(_LOOK_AGAIN_S)
        return None if cause is None else Found(Death(told.session_id, ended.agent, cause), left)

    def _is_answered(self, session: str, ended: Ended) -> bool:
        """Whether its last call was answered, so that what it gave back is its own."""
        fate = self._fates.of(session, ended.agent)
        return fate is not None and fate.cause is None and not ended.failed

    def _cause(self, session: str, ended: Ended, left: DeadAgent | None) -> Cause | None:
        fate, now = self._fates.of(session, ended.agent), self._clock.now()
        handed = None if fate is None else fate.cause
        heard = self._deaths.untold(session, ended.agent)
        by_transcript = _by_transcript(left)
        said = Cause.of(classify(Observation(Where.CLI_TEXT, text=ended.words), now=now))
        if handed is not None and (heard or by_transcript or ended.failed or said.kind in _DEADLY):
            return handed
        if heard or by_transcript is not None:
            return heard[0].cause if heard else by_transcript
        return said if ended.failed and said.kind in _DEADLY else None


def _left(told: HookAsked, agent: str) -> DeadAgent | None:
    path = told.transcript_of(agent)
    try:
        return None if path is None else read_dead_agent(path)
    except UnreadableError:
        return None  # the client has not written it yet, or writes none


def _by_transcript(left: DeadAgent | None) -> Cause | None:
    """What the agent's own transcript says that it died of."""
    if left is None or left.story.ending is not Ending.FAILED:
        return None
    fatal = [each for each in left.story.sightings if each.fatal]
    return Cause.of(fatal[-1].failure) if fatal else None
