"""Hold what Claude Code 2.1.197 is known to do when an answer fails: how often, how long, or not.

Laws: (1) pure, the random draw comes in; (2) every number was observed on the real client, with a
custom base URL and in `-p` mode.
Not here: sending anything (builtin_client.py), reading streams (answer.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

_LASTING_REFUSALS = (400, 402, 403, 413)


class Move(Enum):
    """What the client does after a refused request."""

    RETRY = "retry"
    ASK_WHOLE = "ask again without streaming"
    GIVE_UP = "give up"


@dataclass(frozen=True, slots=True)
class Habits:
    """The client's numbers, in seconds; a `subscriber` signed in instead of using a key."""

    subscriber: bool = False
    retries: int = 10
    first_delay: float = 0.5
    longest_delay: float = 32.0
    jitter: float = 0.25
    # A server that asks for more than this is not waited for at all.
    longest_told_delay: float = 60.0
    # Subscribers are observed to go on through overload; with a key it is given up.
    overloads_in_a_row: int = 3
    no_headers: float = 298.0
    # Pings are not counted as events by this version.
    no_event: float = 300.0
    whole_answer: float = 300.0
    sub_agent_stall: float = 600.0

    def move(self, status: int, headers: Mapping[str, str]) -> Move:
        """The reaction to an HTTP error, numbers of tries left aside."""
        if status == 429 and self.subscriber:
            return Move.GIVE_UP
        should_retry = headers.get("x-should-retry")
        if should_retry == "false":
            return Move.GIVE_UP
        if should_retry == "true" and not self.subscriber:
            return Move.RETRY
        if status == 404:
            return Move.ASK_WHOLE
        return Move.GIVE_UP if status in _LASTING_REFUSALS else Move.RETRY

    def gives_up_overload(self, in_a_row: int) -> bool:
        """Whether so many 529 one after the other are enough."""
        return not self.subscriber and in_a_row >= self.overloads_in_a_row

    def delay(self, retry: int, told: float | None, draw: float) -> float | None:
        """The wait before the first, second, … retry; None when it is longer than the client bears.

        `told` is the server's Retry-After, `draw` a number from 0 to 1.
        """
        own = min(self.longest_delay, self.first_delay * 2.0 ** (retry - 1))
        own *= 1.0 + self.jitter * draw
        wait = own if told is None else max(told, own)
        return None if wait > self.longest_told_delay else wait


API_KEY = Habits()
SUBSCRIBER = Habits(subscriber=True)
