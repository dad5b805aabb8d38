"""Forecast when a subscription's window is used up, and what it costs that prompt caches lapse.

Rules: (1) pure: lanes, prices and `now` come in; (2) no forecast from less than a few minutes of
data, or when the window refills first; a window that has refilled begins anew; (3) only what
matters is mentioned: half a dollar, or a minute of the lane's input limit, or 100,000 tokens where
neither is known; (4) on a lane that takes calls only waiting calls count whose cache has lapsed;
(5) without a known price the figure is in tokens; (6) sums are upper bounds: conversations that
share a prefix write it once.
Not here: reading headers (lanes/rate_limits.py), what is cached (lanes/prompt_caches.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import islice
from math import ceil, inf

from jackline.agents.prices import Price, in_dollars
from jackline.control.board import lane_label
from jackline.control.fleet import QUIET_AFTER
from jackline.control.text import counted, whole_second
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.lanes.breaker import FLOWING
from jackline.lanes.lane import Lane
from jackline.lanes.prompt_caches import LONG_LIFE, SHORT_LIFE, CachedConversation, counted_until
from jackline.lanes.rate_limits import SeenWindow
from jackline.outside_names import cut_name
from jackline.states import LaneState

_LEAST_DOLLARS = 0.5
_LEAST_MINUTES = 1.0
_LEAST_TOKENS = 100_000
# Nobody knows how long an outage lasts: caches that live for longer are not spoken of yet.
_OUTAGE_AHEAD = 600.0
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class CacheRewriteCost:
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
    again: CacheRewriteCost
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
        lane=lane_label(lane.name),
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
) -> CacheRewriteCost | None:
    """What a wall will cost that is foretold for all these lanes; None if that does not matter.

    Whoever asks now is taken to ask until it begins.
    """
    total: CacheRewriteCost | None = None
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
    return lane.reset_at if lane.state is LaneState.PARKED else None


def _in_use(lane: Lane, waiting: Collection[str]) -> Iterator[CachedConversation]:
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


def _active_since(lane: Lane, moment: float) -> Iterator[CachedConversation]:
    for name, known in lane.caches.conversations.items():
        each = lane.caches.cached_of(name) if known.sent_at >= moment else None
        if each is not None:
            yield each


def _rewriting(
    found: Sequence[CachedConversation], price: Price | None, lane: Lane
) -> CacheRewriteCost:
    tokens = sum(each.cached for each in found)
    bucket = lane.buckets.get("input")
    minutes = tokens / (60 * bucket.rate) if bucket is not None and bucket.rate > 0 else None
    if price is None:
        return CacheRewriteCost(len(found), tokens, None, None, minutes)
    written = sum(each.cached * _write_price(each, price) for each in found)
    return CacheRewriteCost(
        len(found), tokens, written / _MILLION, tokens * price.cache_read / _MILLION, minutes
    )


def _write_price(each: CachedConversation, price: Price) -> float:
    return price.cache_write if each.life <= SHORT_LIFE else price.cache_write_1h


def _more_for_1h(kept: Sequence[CachedConversation], price: Price) -> float:
    """What was cached was written once, at the price of the short life."""
    more = max(0.0, price.cache_write_1h - price.cache_write)
    return sum(each.cached for each in kept) * more / _MILLION


def _sum(one: CacheRewriteCost, other: CacheRewriteCost) -> CacheRewriteCost:
    return CacheRewriteCost(
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


def rewriting_words(again: CacheRewriteCost) -> str:
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


# How far back the pace is measured: longer than a burst, shorter than a change of work.
_PACE_SECONDS = 1200.0
_LEAST_SECONDS = 120.0
# One point in so many seconds tells the pace as well as each answer would.
_POINT_EVERY = 5.0
_MOST_WINDOWS = 512
_MOST_OF_AN_ACCOUNT = 16
_FREE: Mapping[str, CacheRewriteCost] = {}
_NAMES = {"5h": "5-hour", "7d": "7-day", "7d_opus": "7-day Opus", "7d-sonnet": "7-day Sonnet"}


@dataclass(frozen=True, slots=True)
class Forecast:
    """One window of one account: its standing, and its end at the present pace if there is one."""

    account: str
    window: str
    used: float
    resets_at: float
    per_hour: float
    """The share that an hour takes at the present pace; 0 while that is not known."""
    ends_at: float | None
    """When it will be used up; None when it refills first, or the pace is not known."""

    def to_json(self) -> dict[str, object]:
        """As every face shows it."""
        return {
            "account": self.account,
            "window": self.window,
            "used": round(self.used, 4),
            "resets_at": self.resets_at,
            "per_hour": round(self.per_hour, 4),
            "ends_at": self.ends_at,
        }


class WindowWatch:
    """What was seen of the windows of all accounts."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], deque[tuple[float, float]]] = {}
        self._resets: dict[tuple[str, str], float] = {}

    def heard(self, now: float, account: str, windows: Iterable[SeenWindow]) -> None:
        """An answer told of its account's windows."""
        for window in islice(windows, _MOST_OF_AN_ACCOUNT):
            key = (account, cut_name(window.name))
            points = self._seen.get(key)
            if points is None:
                points = self._seen[key] = deque()
                self._forget_oldest()
            if points and (
                window.resets_at > self._resets[key] + 60 or window.used < points[-1][1] - 0.02
            ):
                points.clear()
            self._resets[key] = window.resets_at
            if points and now - points[-1][0] < _POINT_EVERY:
                points[-1] = (points[-1][0], max(points[-1][1], window.used))
            else:
                points.append((now, window.used))
            while len(points) > 2 and points[0][0] < now - _PACE_SECONDS:
                points.popleft()

    def _forget_oldest(self) -> None:
        if len(self._seen) > _MOST_WINDOWS:
            oldest = min(self._seen, key=self._last_heard)
            del self._seen[oldest]
            self._resets.pop(oldest, None)

    def _last_heard(self, key: tuple[str, str]) -> float:
        points = self._seen[key]
        return points[-1][0] if points else inf

    def follow_clock(self, set_by: float) -> None:
        """The wall clock was set by so much: what was seen stays as long ago, resets are dates."""
        for key, points in self._seen.items():
            self._seen[key] = deque((at + set_by, used) for at, used in points)

    def forecasts(self, now: float) -> list[Forecast]:
        """Every window that has not refilled since it was heard of, the fullest first."""
        told = [
            self._forecast(key, points, now)
            for key, points in self._seen.items()
            if points and self._resets[key] > now
        ]
        return sorted(told, key=lambda each: -each.used)

    def _forecast(
        self, key: tuple[str, str], points: deque[tuple[float, float]], now: float
    ) -> Forecast:
        account, window = key
        resets_at = self._resets[key]
        begun, before = points[0]
        used = points[-1][1]
        watched = now - begun
        pace = max(0.0, used - before) / watched if watched >= _LEAST_SECONDS else 0.0
        ends_at = None
        if used >= 1.0:
            ends_at = points[-1][0]
        elif pace > 0.0 and now + (1.0 - used) / pace < resets_at:
            ends_at = now + (1.0 - used) / pace
        return Forecast(account, window, used, resets_at, pace * 3600.0, ends_at)


def foretold(
    forecasts: Iterable[Forecast],
    agents: int,
    now: datetime,
    costs: Mapping[str, CacheRewriteCost] = _FREE,
) -> str:
    """The sentence about the window that ends first; empty when none does.

    `costs` is what an account's wall takes because prompt caches do not outlast it.
    """
    ending = [each for each in forecasts if each.ends_at is not None and each.used < 1.0]
    if not ending:
        return ""
    first = min(ending, key=lambda each: each.ends_at or 0.0)
    ends = datetime.fromtimestamp(round(first.ends_at or 0.0), now.tzinfo)
    # The minute is what a person plans by.
    ends = ends.replace(second=0) + timedelta(minutes=ends.second >= 30)
    cut = "" if agents == 0 else f"; {agents} {'agent' if agents == 1 else 'agents'} would be cut"
    name = _NAMES.get(first.window, first.window)
    lost = ""
    if first.account in costs:
        lost = f"; their prompt caches would lapse: {rewriting_words(costs[first.account])}"
    return f"At this pace the {name} window ends at {moment_in_words(ends, now)}{cut}{lost}."
