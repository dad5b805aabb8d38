"""Decide which calls ask for a prompt cache of an hour instead of the client's five minutes.

Rules: (1) pure: `now` is an argument; (2) what a call's own tag or class says comes before what its
lane's upstream says, and neither counts where the vendor is not known to take an hour; (3) `auto`
asks for an hour only when nothing of the conversation is cached: whether an entry of five minutes
can be read by a mark of an hour is documented nowhere, so no change may cost a cache that lives;
(4) a conversation that was sent with an hour keeps it, unless nothing of it is ever read; (5) the
calls of a subscription's login are left alone unless the user has written "1h"; (6) bounded.
What is cached is in prompt_caches.py, rewriting marks in dialects/cache_marks.py.
"""

from __future__ import annotations

from jackline.lanes.decision import Call
from jackline.lanes.prompt_caches import (
    LONG_LIFE,
    MISSES_BELIEVED,
    SHORT_LIFE,
    Conversation,
)
from jackline.lanes.settings import CacheTtl

_MOST_CONVERSATIONS = 5_000


class HourMarks:
    """Which conversations of one lane are cached for an hour; `ttl` is what its upstream says.

    None stands for vendors that are not known to take an hour.
    """

    def __init__(self, ttl: CacheTtl | None = None) -> None:
        self.ttl = ttl
        # Until when calls are expected to wait for longer than a short cache lives.
        self.long_waits_until = 0.0
        # Put in again when used, so that those that were used longest ago stand first.
        self._kept: dict[str, None] = {}

    def asks_hour(
        self, call: Call, known: Conversation | None, *, waited: float, now: float
    ) -> bool:
        """Whether a call that is sent now, after so long a wait, asks for an hour.

        `known` is what was seen of its conversation.
        """
        if waited >= SHORT_LIFE:
            self.long_waits_until = now + LONG_LIFE
        conversation = call.conversation
        if self.ttl is None or not conversation:
            return False
        ttl = self.ttl if call.cache_ttl is None else call.cache_ttl
        if ttl is CacheTtl.AUTO:
            if call.login:
                return False
            is_cached = known is None or known.misses < MISSES_BELIEVED
            long_waits = now < self.long_waits_until
            keeps = conversation in self._kept
            asks = is_cached and (keeps or pays(known, now, long_waits=long_waits))
        else:
            asks = ttl is CacheTtl.HOUR
        if asks:
            self._keep(conversation)
        return asks

    def _keep(self, conversation: str) -> None:
        self._kept.pop(conversation, None)
        self._kept[conversation] = None
        if len(self._kept) > _MOST_CONVERSATIONS:
            del self._kept[next(iter(self._kept))]


def pays(known: Conversation | None, now: float, *, long_waits: bool) -> bool:
    """Whether a cache of an hour is worth twice the input price instead of 1.25 times.

    It is where a pause of more than five minutes is likely: the conversation had one before, which
    an hour would have outlived, or calls on its lane wait for so long.
    """
    if known is not None:
        if now < known.until:
            return False
        sent_at = known.until - known.life
        if known.cached and now < sent_at + LONG_LIFE:
            return True
    return long_waits
