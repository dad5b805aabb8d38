"""Say what it costs that prompt caches lapse, where no order of calls can keep them warm.

Rules: (1) pure: a lane, prices and the time come in; (2) spoken of is only what matters: half a
dollar, or a minute of the lane's input limit, or 100,000 tokens where neither is known; (3) on a
lane that takes calls only waiting calls count, and only those whose cache has lapsed: the others
the order takes care of (lanes/queue.py); (4) what has no known price is told in tokens; (5) sums
are upper bounds: conversations that share a prefix write it once.
Not here: what is cached (lanes/prompt_caches.py), when windows end (forecast.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from math import ceil

from jackline.agents.prices import Price, in_dollars
from jackline.control.board_parts import lane_shown
from jackline.control.counted import counted
from jackline.control.fleet import QUIET_AFTER
from jackline.control.whole_seconds import whole_second
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.lanes.lane import Lane
from jackline.lanes.prompt_caches import LONG_LIFE, SHORT_LIFE, Conversation, counted_until
from jackline.lanes.states import FLOWING, State

_LEAST_DOLLARS = 0.5
_LEAST_MINUTES = 1.0
_LEAST_TOKENS = 100_000
# Nobody knows how long an outage lasts: caches that live for longer are not spoken of yet.
_OUTAGE_AHEAD = 600.0
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Rewriting:
    """What it takes to write prefixes to the cache again; `dollars_warm` is what reading costs.

    Dollars are those of the models with a known price, None if there is none; `minutes` are those
    of the input limit, None where it is not known.
    """

    conversations: int
    tokens: int
    dollars: float | None
    dollars_warm: float | None
    minutes: float | None

    @property
    def matters(self) -> bool:
        """Whether it is worth a sentence."""
        if self.dollars is None and self.minutes is None:
            return self.tokens >= _LEAST_TOKENS
        saved = (self.dollars or 0.0) - (self.dollars_warm or 0.0)
        return saved >= _LEAST_DOLLARS or (self.minutes or 0.0) >= _LEAST_MINUTES


@dataclass(frozen=True, slots=True)
class CacheAdvice:
    """The caches of one lane that have lapsed, or will before it is back; moments are dates.

    `back_at` is when the lane takes calls again, None if it does now or nobody knows. `kept_by_1h`
    counts the conversations that would still be cached then if they had been written for an hour,
    and `dollars_1h` is what that would have cost more.
    """

    lane: str
    lost: int
    losing: int
    first_lapse_at: float | None
    last_lapse_at: float | None
    back_at: float | None
    again: Rewriting
    kept_by_1h: int
    dollars_1h: float | None

    def to_json(self, sentence: str) -> dict[str, object]:
        """As every face shows it."""
        return {"sentence": sentence, **asdict(self)}


def advice_for(
    lane: Lane,
    waiting: Collection[str],
    price: Price | None,
    now: float,
    *,
    wall_ahead: float,
) -> CacheAdvice | None:
    """What to say of a lane for which these conversations wait; None where nothing is to be said.

    `now` is the lanes' time, which the wall clock is ahead of by so much.
    """
    back_at = _back_at(lane, now)
    horizon = now + _OUTAGE_AHEAD if back_at is None else back_at
    in_use = list(_in_use(lane, waiting))
    lost = [each for each in in_use if counted_until(each) <= now]
    losing = [each for each in in_use if now < counted_until(each) <= horizon]
    again = _rewriting([*lost, *losing], price, lane)
    if not again.conversations or not again.matters:
        return None
    kept = [
        each
        for each in (*lost, *losing)
        if each.life < LONG_LIFE and each.sent_at + LONG_LIFE > (back_at or now)
    ]
    lapses = [counted_until(each) + wall_ahead for each in losing]
    return CacheAdvice(
        lane=lane_shown(lane.name),
        lost=len(lost),
        losing=len(losing),
        first_lapse_at=min(lapses, default=None),
        last_lapse_at=max(lapses, default=None),
        back_at=None if back_at is None or back_at <= now else back_at + wall_ahead,
        again=again,
        kept_by_1h=len(kept),
        dollars_1h=_more_for_1h(kept, price) if kept and price is not None else None,
    )


def cost_of_wall(
    lanes: Iterable[tuple[Lane, Price | None]], now: float, *, begins: float, ends: float
) -> Rewriting | None:
    """What a wall will cost that is foretold for all these lanes; None if that does not matter.

    Whoever asks now is taken to ask until it begins.
    """
    total: Rewriting | None = None
    for lane, price in lanes:
        active = _active_since(lane, now - QUIET_AFTER)
        again = _rewriting([each for each in active if ends - begins >= each.life], price, lane)
        if again.conversations:
            total = again if total is None else _sum(total, again)
    return total if total is not None and total.matters else None


def _back_at(lane: Lane, now: float) -> float | None:
    """When the lane takes calls again; None where nobody knows."""
    if lane.paused:
        return None
    if lane.state in FLOWING:
        return max(now, lane.hold_until)
    return lane.reset_at if lane.state is State.PARKED else None


def _in_use(lane: Lane, waiting: Collection[str]) -> Iterator[Conversation]:
    """Conversations that will go on: a call waits, or they went on just before the lane shut."""
    found = dict.fromkeys(waiting)
    if lane.state not in FLOWING and not lane.paused:
        begins = lane.since - QUIET_AFTER
        known = lane.caches.conversations.items()
        found |= dict.fromkeys(name for name, each in known if each.sent_at >= begins)
    for name in found:
        each = lane.caches.cached_of(name)
        if each is not None:
            yield each


def _active_since(lane: Lane, moment: float) -> Iterator[Conversation]:
    for name, known in lane.caches.conversations.items():
        each = lane.caches.cached_of(name) if known.sent_at >= moment else None
        if each is not None:
            yield each


def _rewriting(found: Sequence[Conversation], price: Price | None, lane: Lane) -> Rewriting:
    tokens = sum(each.cached for each in found)
    bucket = lane.buckets.get("input")
    minutes = tokens / (60 * bucket.rate) if bucket is not None and bucket.rate > 0 else None
    if price is None:
        return Rewriting(len(found), tokens, None, None, minutes)
    written = sum(each.cached * _write_price(each, price) for each in found)
    return Rewriting(
        len(found), tokens, written / _MILLION, tokens * price.cache_read / _MILLION, minutes
    )


def _write_price(each: Conversation, price: Price) -> float:
    return price.cache_write if each.life <= SHORT_LIFE else price.cache_write_1h


def _more_for_1h(kept: Sequence[Conversation], price: Price) -> float:
    """What was cached was written once, at the price of the short life."""
    more = max(0.0, price.cache_write_1h - price.cache_write)
    return sum(each.cached for each in kept) * more / _MILLION


def _sum(one: Rewriting, other: Rewriting) -> Rewriting:
    return Rewriting(
        one.conversations + other.conversations,
        one.tokens + other.tokens,
        _known(one.dollars, other.dollars),
        _known(one.dollars_warm, other.dollars_warm),
        # Each lane has a limit of its own: the slowest is waited for.
        max((each for each in (one.minutes, other.minutes) if each is not None), default=None),
    )


def _known(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else one + other


# --- words ------------------------------------------------------------------------------------


def advice_sentence(advice: CacheAdvice, now: datetime) -> str:
    """The advice in words, the same on every face."""
    told = f"{advice.lane}: {_who(advice, now)}: {rewriting_words(advice.again)}."
    if not advice.kept_by_1h:
        return told
    kept = "it" if advice.kept_by_1h == 1 else "them"
    if advice.kept_by_1h < advice.again.conversations:
        kept = f"{advice.kept_by_1h:,} of them"
    more = "" if advice.dollars_1h is None else f" for {in_dollars(advice.dollars_1h)} more"
    return f'{told} A life of 1 h (cache.ttl = "1h") would have kept {kept}{more}.'


def rewriting_words(again: Rewriting) -> str:
    """How much it is, for people."""
    told = f"{again.tokens:,} tokens to write again"
    if again.dollars is not None:
        told += f", {in_dollars(again.dollars)} instead of {in_dollars(again.dollars_warm or 0.0)}"
    if again.minutes is not None and again.minutes >= _LEAST_MINUTES:
        told += f", {_minutes(again.minutes * 60)} of its input limit"
    return told


def _who(advice: CacheAdvice, now: datetime) -> str:
    lost, losing = advice.lost, advice.losing
    have = "has lost its prompt cache" if lost == 1 else "have lost their prompt caches"
    if not losing:
        on = "goes on" if lost == 1 else "go on"
        when = "" if advice.back_at is None else f" and {on} at {_moment(advice.back_at, now)}"
        return f"{counted(lost, 'conversation')} {have}{when}"
    if not lost:
        lose = "loses its prompt cache" if losing == 1 else "lose their prompt caches"
        return f"{counted(losing, 'conversation')} {lose} {_when(advice, now)}"
    more = "more loses its own" if losing == 1 else "more lose theirs"
    return f"{counted(lost, 'conversation')} {have}, {losing:,} {more} {_when(advice, now)}"


def _when(advice: CacheAdvice, now: datetime) -> str:
    lapses = (advice.first_lapse_at, advice.last_lapse_at)
    minutes = [max(1, ceil((at - now.timestamp()) / 60)) for at in lapses if at is not None]
    span = " to ".join(str(each) for each in dict.fromkeys(minutes))
    if advice.back_at is None:
        return f"in {span} min unless it is back by then"
    return f"in {span} min, before it is back at {_moment(advice.back_at, now)}"


def _moment(at: float, now: datetime) -> str:
    return moment_in_words(datetime.fromtimestamp(whole_second(at), now.tzinfo), now)


def _minutes(seconds: float) -> str:
    return duration_in_words(timedelta(minutes=max(1, round(seconds / 60))))
