"""Forecast when a subscription's window is used up, and what it costs that prompt caches lapse.

Rules: (1) pure: lanes, prices and `now` come in; (2) no forecast from less than a few minutes of
data, or when the window refills first; a window that has refilled begins anew; (3) only what
matters is mentioned: half a dollar, or a minute of the lane's input limit, or 100,000 tokens where
neither is known; (4) on a lane that takes calls only waiting calls count whose cache has lapsed;
(5) without a known price the figure is in tokens; (6) sums are upper bounds: conversations that
share a prefix write it once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import islice
from math import ceil, inf

from jackline.agents.prices import Price, in_dollars
from jackline.control.fleet import QUIET_AFTER
from jackline.control.text import counted, moment_text
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.lane_id import Payer
from jackline.lanes.breaker import FLOWING
from jackline.lanes.lane import Lane
from jackline.lanes.prompt_caches import LONG_LIFE, SHORT_LIFE, CachedConversation, counted_until
from jackline.lanes.rate_limits import SeenWindow
from jackline.outside_names import cut_name
from jackline.states import LaneState

_LEAST_DOLLARS = 0.5
_LEAST_MINUTES = 1.0
_LEAST_TOKENS = 100_000
# Nobody knows how long an outage lasts: caches that live for longer are not mentioned yet.
_OUTAGE_AHEAD = 600.0
_MILLION = 1_000_000
# How far back the pace is measured: longer than a burst, shorter than a change of work.
_PACE_SECONDS = 1200.0
_LEAST_SECONDS = 120.0
# One point in so many seconds shows the pace as well as each answer would.
_POINT_EVERY = 5.0
_MAX_WINDOWS = 512
_MAX_WINDOWS_OF_ACCOUNT = 16
_NAMES = {"5h": "5-hour", "7d": "7-day", "7d_opus": "7-day Opus", "7d-sonnet": "7-day Sonnet"}


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

    @classmethod
    def of(
        cls, found: Sequence[CachedConversation], price: Price | None, lane: Lane
    ) -> CacheRewriteCost:
        """What these conversations take."""
        tokens = sum(each.cached for each in found)
        bucket = lane.buckets.get("input")
        minutes = tokens / (60 * bucket.rate) if bucket is not None and bucket.rate > 0 else None
        if price is None:
            return cls(len(found), tokens, None, None, minutes)
        written = sum(
            each.cached * (price.cache_write if each.life <= SHORT_LIFE else price.cache_write_1h)
            for each in found
        )
        read = tokens * price.cache_read
        return cls(len(found), tokens, written / _MILLION, read / _MILLION, minutes)

    def __add__(self, other: CacheRewriteCost) -> CacheRewriteCost:
        def known(one: float | None, two: float | None) -> float | None:
            return one if two is None else two if one is None else one + two

        return CacheRewriteCost(
            self.conversations + other.conversations,
            self.tokens + other.tokens,
            known(self.dollars, other.dollars),
            known(self.dollars_warm, other.dollars_warm),
            # Each lane has a limit of its own: the slowest is waited for.
            max((each for each in (self.minutes, other.minutes) if each is not None), default=None),
        )

    @property
    def matters(self) -> bool:
        """Whether it is worth a sentence."""
        if self.dollars is None and self.minutes is None:
            return self.tokens >= _LEAST_TOKENS
        saved = (self.dollars or 0.0) - (self.dollars_warm or 0.0)
        return saved >= _LEAST_DOLLARS or (self.minutes or 0.0) >= _LEAST_MINUTES

    def __str__(self) -> str:
        text = f"{self.tokens:,} tokens to write again"
        if self.dollars is not None:
            warm = in_dollars(self.dollars_warm or 0.0)
            text += f", {in_dollars(self.dollars)} instead of {warm}"
        if self.minutes is not None and self.minutes >= _LEAST_MINUTES:
            minutes = timedelta(minutes=max(1, round(self.minutes)))
            text += f", {duration_in_words(minutes)} of its input limit"
        return text

    @classmethod
    def of_wall(
        cls, lanes: Iterable[tuple[Lane, Price | None]], now: float, *, begins: float, ends: float
    ) -> CacheRewriteCost | None:
        """What a wall will cost that is forecast for all these lanes; None if that does not matter.

        Conversations that are active now are expected to be active until it begins.
        """
        total = cls(0, 0, None, None, None)
        for lane, price in lanes:
            active = [
                each
                for name, known in lane.caches.conversations.items()
                if known.sent_at >= now - QUIET_AFTER
                and (each := lane.caches.cached_of(name)) is not None
                and ends - begins >= each.life
            ]
            if active:
                total += CacheRewriteCost.of(active, price, lane)
        return total if total.conversations and total.matters else None


@dataclass(frozen=True, slots=True)
class CacheAdvice:
    """The caches of one lane that have lapsed, or will before it is back; times are dates.

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

    def to_json(self, now: datetime) -> dict[str, object]:
        """As every interface shows it."""
        return {"sentence": self.sentence(now), **asdict(self)}

    def sentence(self, now: datetime) -> str:
        """The advice for people, the same on every interface."""
        lost, losing, back_at = self.lost, self.losing, self.back_at
        have = "has lost its prompt cache" if lost == 1 else "have lost their prompt caches"
        who = f"{counted(lost, 'conversation')} {have}"
        if losing:
            lapses = (self.first_lapse_at, self.last_lapse_at)
            minutes = [max(1, ceil((at - now.timestamp()) / 60)) for at in lapses if at is not None]
            when = f"in {' to '.join(str(each) for each in dict.fromkeys(minutes))} min"
            if back_at is None:
                when += " unless it is back by then"
            else:
                when += f", before it is back at {moment_text(back_at, now)}"
            if lost:
                more = "more loses its own" if losing == 1 else "more lose theirs"
                who += f", {losing:,} {more} {when}"
            else:
                lose = "loses its prompt cache" if losing == 1 else "lose their prompt caches"
                who = f"{counted(losing, 'conversation')} {lose} {when}"
        elif back_at is not None:
            who += f" and {'goes' if lost == 1 else 'go'} on at {moment_text(back_at, now)}"
        sentence = f"{self.lane}: {who}: {self.again}."
        if not self.kept_by_1h:
            return sentence
        kept = "it" if self.kept_by_1h == 1 else "them"
        if self.kept_by_1h < self.again.conversations:
            kept = f"{self.kept_by_1h:,} of them"
        extra = "" if self.dollars_1h is None else f" for {in_dollars(self.dollars_1h)} more"
        return f'{sentence} A life of 1 h (cache.ttl = "1h") would have kept {kept}{extra}.'

    @classmethod
    def of(
        cls,
        lane: Lane,
        waiting: Collection[str],
        price: Price | None,
        now: float,
        *,
        wall_ahead: float,
    ) -> CacheAdvice | None:
        """The advice about a lane for which these conversations wait; None if none is needed.

        `now` is the lanes' time; the wall clock is ahead of it by `wall_ahead`.
        """
        back_at: float | None = None
        if not lane.paused:
            if lane.state in FLOWING:
                back_at = max(now, lane.hold_until)
            elif lane.state is LaneState.PARKED:
                back_at = lane.reset_at
        horizon = now + _OUTAGE_AHEAD if back_at is None else back_at
        # Those that will continue: a call waits, or they had one just before the lane was closed.
        names = dict.fromkeys(waiting)
        if lane.state not in FLOWING and not lane.paused:
            begins = lane.since - QUIET_AFTER
            known = lane.caches.conversations.items()
            names |= dict.fromkeys(name for name, each in known if each.sent_at >= begins)
        in_use = [each for name in names if (each := lane.caches.cached_of(name)) is not None]
        lost = [each for each in in_use if counted_until(each) <= now]
        losing = [each for each in in_use if now < counted_until(each) <= horizon]
        again = CacheRewriteCost.of([*lost, *losing], price, lane)
        if not again.conversations or not again.matters:
            return None
        kept = [
            each
            for each in (*lost, *losing)
            if each.life < LONG_LIFE and each.sent_at + LONG_LIFE > (back_at or now)
        ]
        dollars_1h = None
        if kept and price is not None:
            # What was cached was written once, at the price of the short life.
            more = max(0.0, price.cache_write_1h - price.cache_write)
            dollars_1h = sum(each.cached for each in kept) * more / _MILLION
        lapses = [counted_until(each) + wall_ahead for each in losing]
        return cls(
            lane=lane.label,
            lost=len(lost),
            losing=len(losing),
            first_lapse_at=min(lapses, default=None),
            last_lapse_at=max(lapses, default=None),
            back_at=None if back_at is None or back_at <= now else back_at + wall_ahead,
            again=again,
            kept_by_1h=len(kept),
            dollars_1h=dollars_1h,
        )


@dataclass(frozen=True, slots=True)
class Forecast:
    """One window of one account, and its end at the present pace if there is one."""

    upstream: str
    account: str
    window: str
    used: float
    resets_at: float
    per_hour: float
    """The share that an hour takes at the present pace; 0 while that is not known."""
    ends_at: float | None
    """When it will be used up; None when it refills first, or the pace is not known."""

    @property
    def payer(self) -> Payer:
        """Whose window it is."""
        return self.upstream, self.account

    def to_json(self) -> dict[str, object]:
        """As every interface shows it."""
        shares = {"used": round(self.used, 4), "per_hour": round(self.per_hour, 4)}
        return {**asdict(self), **shares}


class WindowWatch:
    """What answers reported of the windows of all accounts."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Payer, str], deque[tuple[float, float]]] = {}
        self._resets: dict[tuple[Payer, str], float] = {}

    def add(self, now: float, payer: Payer, windows: Iterable[SeenWindow]) -> None:
        """An answer reported its account's windows."""
        for window in islice(windows, _MAX_WINDOWS_OF_ACCOUNT):
            key = (payer, cut_name(window.name))
            points = self._seen.get(key)
            if points is None:
                points = self._seen[key] = deque()
                if len(self._seen) > _MAX_WINDOWS:
                    last = {name: each[-1][0] if each else inf for name, each in self._seen.items()}
                    oldest = min(last, key=last.__getitem__)
                    del self._seen[oldest]
                    self._resets.pop(oldest, None)
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

    def follow_clock(self, set_by: float) -> None:
        """The wall clock was set by so much: points stay as long ago, resets are dates."""
        for key, points in self._seen.items():
            self._seen[key] = deque((at + set_by, used) for at, used in points)

    def forecasts(self, now: float) -> list[Forecast]:
        """Every window that has not refilled since it was reported, the fullest first."""
        found = []
        for key, points in self._seen.items():
            payer, window = key
            resets_at = self._resets[key]
            if not points or resets_at <= now:
                continue
            (begun, before), (last, used) = points[0], points[-1]
            pace = max(0.0, used - before) / (now - begun) if now - begun >= _LEAST_SECONDS else 0.0
            ends_at = None
            if used >= 1.0:
                ends_at = last
            elif pace > 0.0 and now + (1.0 - used) / pace < resets_at:
                ends_at = now + (1.0 - used) / pace
            found.append(Forecast(*payer, window, used, resets_at, pace * 3600.0, ends_at))
        return sorted(found, key=lambda each: -each.used)


def forecast_sentence(
    forecasts: Iterable[Forecast],
    agents: int,
    now: datetime,
    costs: Mapping[Payer, CacheRewriteCost] | None = None,
) -> str:
    """The sentence about the window that ends first; empty when none does.

    `costs` is what an account's wall takes because prompt caches do not outlast it.
    """
    ending = [each for each in forecasts if each.ends_at is not None and each.used < 1.0]
    if not ending:
        return ""
    first = min(ending, key=lambda each: each.ends_at or 0.0)
    ends = datetime.fromtimestamp(round(first.ends_at or 0.0), now.tzinfo)
    # People plan by the minute.
    ends = ends.replace(second=0) + timedelta(minutes=ends.second >= 30)
    cut = "" if agents == 0 else f"; {agents} {'agent' if agents == 1 else 'agents'} would be cut"
    name = _NAMES.get(first.window, first.window)
    cost = (costs or {}).get(first.payer)
    lost = "" if cost is None else f"; their prompt caches would lapse: {cost}"
    return f"At this pace the {name} window ends at {moment_in_words(ends, now)}{cut}{lost}."
