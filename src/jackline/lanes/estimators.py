"""What one lane learns: how many calls it carries, how long it pauses, how long it may be silent.

Rules: (1) the window of parallel calls is never below one; it shrinks once per throttle episode,
however many rejections that has, and grows only while it is used, because an idle window proves
nothing; (2) the first refusal begins an episode and anything accepted ends it; each further refusal
makes the pause longer, and the length of a pause is learned from how long episodes last; (3) slow
is not dead: before the model has begun to answer, doubt means a second attempt beside the silent
one, and the silent one stays open; a stream that froze in mid-answer is cut; (4) observed silences
outweigh every setting, and fade within minutes; (5) nobody is doubted within a minute before the
answer has begun; (6) an answer without a stream loses its place in the window, which costs nothing,
long before it is sent a second time, which may cost money; (7) one silent call proves nothing about
its lane; calls without a stream, or in which the model may still think, do not count as evidence,
and any byte on the lane clears it; (8) hedges that were not needed cost at most a small share of
the answers; one that was needed costs nothing and allows more.
"""

from __future__ import annotations

import math

from jackline.dialects.token_usage import bounded_count
from jackline.lanes.call import LaneAttempt
from jackline.lanes.settings import ConcurrencyWindowSettings, HedgeSettings, PatienceSettings

# An accept counts as proof that the window is used when this share of it was in flight.
USED = 0.8


class ConcurrencyWindow:
    """The learned number of parallel calls (CUBIC growth, slowed to the pace of LLM calls)."""

    __slots__ = (
        "_at_load",
        "_load",
        "_settings",
        "decreased_at",
        "epoch",
        "peak",
        "size",
        "slow_until",
    )

    def __init__(self, settings: ConcurrencyWindowSettings, now: float) -> None:
        self._settings = settings
        self.size = settings.start
        self.peak = 0.0
        self.slow_until = math.inf
        self.decreased_at = now
        self.epoch = settings.epoch_start
        self._load = 0.0
        self._at_load = now

    def limit(self) -> int:
        """How many calls may be in flight."""
        return max(1, int(self.size))

    def load_changed(self, before: int, now: float) -> None:
        """Remember the load, so that one early rejection does not forget what was carried."""
        passed = now - self._at_load
        if passed > 0:
            weight = math.exp(-passed / self._settings.load_memory)
            self._load = self._load * weight + before * (1 - weight)
        self._at_load = now

    def accepted(self, in_flight: int, now: float) -> None:
        """Grow, if this accept was made with the window in use."""
        if in_flight < USED * max(1, int(self.size)):
            return
        if self.size < self.slow_until:
            self.size += 1
            return
        tau = (now - self.decreased_at) / self.epoch
        if tau > self._settings.outdated:
            # So long without a rejection, the old peak is out of date: look for the new one.
            self.size += 0.5
            return
        share = 1 - self._settings.decrease
        curve = self.peak * (1 + share * (tau - 1) ** 3) + 0.5 * tau
        self.size = max(self.size, min(curve, self.size + 1))

    def rejected(self, in_flight_at_send: int, now: float) -> None:
        """Shrink to just below what was carried; called once per episode."""
        peak = max(1.0, in_flight_at_send - 1, USED * self._load)
        settings = self._settings
        if abs(peak - self.peak) <= max(1.0, 0.1 * self.peak):
            self.epoch = min(settings.epoch_longest, self.epoch * 1.25)
        else:
            self.epoch = max(settings.epoch_shortest, self.epoch / 2)
        self.peak = peak
        self.size = self.slow_until = max(1.0, settings.decrease * peak)
        self.decreased_at = now

    def restart(self, size: float, target: float, now: float) -> None:
        """Begin small after an outage, and grow quickly up to what was carried before."""
        self.size = max(1.0, size)
        self.slow_until = max(1.0, target)
        self.peak = max(self.peak, target)
        self.decreased_at = now


_EPISODE_MEMORY = 0.3
# A stated wait is a lower bound, not a promise; it is stretched up to so much.
_LONGEST_STRETCH = 16.0


class ThrottleEpisode:
    """How often in a row the lane has refused; 0 is no episode."""

    __slots__ = ("_began", "_usual_length", "refusals")

    def __init__(self, now: float) -> None:
        self.refusals = 0
        self._began = now
        self._usual_length = 5.0

    def refused(self, now: float) -> None:
        """The lane asked to slow down, perhaps again."""
        self.refusals += 1
        if self.refusals == 1:
            self._began = now

    def ended(self, now: float) -> None:
        """Something was accepted."""
        self._usual_length += _EPISODE_MEMORY * (now - self._began - self._usual_length)
        self.refusals = 0

    def stretch(self) -> float:
        """By how much a stated wait is to be stretched."""
        return min(_LONGEST_STRETCH, 1.5 ** min(self.refusals - 1, 12))

    def pause(self, window: float, in_flight: int) -> float:
        """How long to pause when no wait was stated."""
        if window < 2:
            pause = max(1.0, 0.4 * self._usual_length) * 1.5 ** min(self.refusals - 1, 12)
            return min(60.0, pause)
        # While calls are in flight their ends make room, so a long pause would leave it unused.
        longest = 8.0 if in_flight else 30.0
        return min(longest, 2.0 ** min(self.refusals - 1, 6))


# An answer may be so many times as slow as the slowest of late before it is doubted.
_TIMES_SLOWEST = 2.0
# In seconds: after so long, what was slow counts half.
_HALVES = 600.0
# No stream is cut that has been silent for less.
_FROZEN = 20.0
# Gaps below this are those of any stream, and not worth remembering.
_GAP = 2.0
# Nobody who may still be answered is hung up on before this many seconds of silence: the official
# clients wait for ten minutes.
_LONGEST_ANSWER = 900.0
# In seconds: after so much silence the place of a whole answer is lent, however slow its lane was.
_LENT_AFTER = 120.0


class LearnedPatience:
    """What the slowest first bytes and the longest gaps of one lane were of late."""

    __slots__ = (
        "_at",
        "_first_byte",
        "_gap",
        "_gap_at",
        "_settings",
        "_shortest",
        "_whole",
        "_whole_at",
    )

    def __init__(self, settings: PatienceSettings, now: float, *, local: bool = False) -> None:
        self._settings = settings
        self._shortest = settings.first_byte_local if local else settings.first_byte
        self._first_byte = 0.0
        self._at = now
        self._gap = 0.0
        self._gap_at = now
        self._whole = 0.0
        self._whole_at = now

    def silence_ended(self, attempt: LaneAttempt, now: float) -> None:
        """Bytes of an attempt came: how long it was silent, in its answer or before, is remembered.

        Before the answer, that is what its prompt does not explain.
        """
        silence = now - attempt.received_at
        if not attempt.begun:
            silence -= self._reading(attempt)
            self._first_byte, self._at = max(silence, self.slowest_first_byte(now)), now
            if not attempt.call.stream:
                self._whole, self._whole_at = max(silence, self._slowest_whole(now)), now
        elif silence > _GAP:
            self._gap, self._gap_at = max(silence, self._longest_gap(now)), now

    def slowest_first_byte(self, now: float) -> float:
        """The longest silence of late before an answer, apart from its prompt's; it fades."""
        return self._first_byte * _faded(now - self._at)

    def limit(self, attempt: LaneAttempt, now: float) -> float:
        """How long the attempt may be silent before it is doubted."""
        settings = self._settings
        if not attempt.call.stream:
            # A caller may name any number: a product with more need not fit into a float.
            tokens = bounded_count(attempt.call.max_tokens)
            return settings.whole_answer + settings.whole_answer_per_token * tokens
        if attempt.begun:
            gap = max(_FROZEN, settings.between_bytes, _TIMES_SLOWEST * self._longest_gap(now))
            return min(gap * attempt.stretch, max(gap, _LONGEST_ANSWER))
        if attempt.probe:
            return settings.probe + self._reading(attempt)
        slow = max(self._shortest, _TIMES_SLOWEST * self.slowest_first_byte(now))
        return slow + self._reading(attempt)

    def keeps_place_for(self, attempt: LaneAttempt, now: float) -> float:
        """How long the attempt may be silent before its place in the window is lent.

        A stream's is lent when it is doubted, that of a whole answer sooner, and in time for those
        behind it: clients without a stream leave after some minutes.
        """
        limit = self.limit(attempt, now)
        if attempt.call.stream:
            return limit
        slowest = self._slowest_whole(now) if self._whole else math.inf
        slow = max(self._shortest, min(_TIMES_SLOWEST * slowest, _LENT_AFTER))
        return min(limit, slow + self._reading(attempt))

    def proves_silence(self, attempt: LaneAttempt, now: float) -> float:
        """How long the attempt must be silent before that says something about the whole lane."""
        settings = self._settings
        if attempt.begun:
            return max(settings.lane_silence, _TIMES_SLOWEST * self._longest_gap(now))
        return max(self._shortest, self.limit(attempt, now))

    def given_up_after(self, attempt: LaneAttempt, now: float) -> float:
        """How long the attempt may be silent before it is hung up on, whatever is hoped for."""
        limit = self.limit(attempt, now)
        froze = attempt.begun and attempt.call.stream
        return limit if froze else max(_LONGEST_ANSWER, _TIMES_SLOWEST * limit)

    def _slowest_whole(self, now: float) -> float:
        return self._whole * _faded(now - self._whole_at)

    def _longest_gap(self, now: float) -> float:
        return self._gap * _faded(now - self._gap_at) if self._gap else 0.0

    def _reading(self, attempt: LaneAttempt) -> float:
        return self._settings.first_byte_per_token * bounded_count(attempt.call.input_tokens)


def _faded(passed: float) -> float:
    return math.pow(0.5, passed / _HALVES)


class HedgeBudget:
    """The hedges that a lane may still spend."""

    __slots__ = ("_left", "_settings")

    def __init__(self, settings: HedgeSettings) -> None:
        self._settings = settings
        self._left = settings.at_first

    @property
    def is_open(self) -> bool:
        """Whether one more may be sent."""
        return self._left >= 1.0

    def spend(self) -> None:
        """One is sent."""
        self._left -= 1.0

    def returned(self) -> None:
        """It has come to nothing, and has cost nothing."""
        self._left = min(self._settings.most, self._left + 1.0)

    def answered(self) -> None:
        """The lane has answered a call: a little more may be spent."""
        if self._left < self._settings.most:
            self._left += self._settings.per_answer

    def needed(self) -> None:
        """A hedge was answered while the silent attempt was not."""
        self._left = min(self._settings.most, self._left + self._settings.when_needed)
