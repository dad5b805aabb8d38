"""Count what calls use: tokens and dollars by minute, lane and run.

Rules: (1) pure: facts and `now` come in; (2) bounded: a day of minutes, and the most recent runs;
(3) a model whose price is not known costs "unknown", never nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from jackline.dialects import TokenUsage
from jackline.events import CallEnded
from jackline.lane_id import LaneId

K = TypeVar("K", bound=Hashable)
PriceOf: TypeAlias = Callable[[str, TokenUsage], float | None]

_MAX_MINUTES = 24 * 60
_MAX_TAGS = 500
_MAX_LANES = 512
# Of one minute's chart; further lanes are drawn as one.
_MAX_LANES_OF_MINUTE = 64
_PACE_MINUTES = 15


@dataclass(slots=True)
class Sums:
    """What several calls used."""

    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    """Tokens of models whose price is not known."""

    def join(self, other: Sums) -> None:
        """Add the other sums to these."""
        self.calls += other.calls
        self.tokens += other.tokens
        self.dollars += other.dollars
        self.unpriced += other.unpriced

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        dollars = round(self.dollars, 4)
        return {
            "calls": self.calls,
            "tokens": self.tokens,
            "dollars": dollars,
            "unpriced": self.unpriced,
        }


def sums_by(
    events: Iterable[CallEnded], sort_of: Callable[[CallEnded], K], price_of: PriceOf
) -> dict[K, Sums]:
    """What these calls used, by their sort: every face counts like this.

    A call that was never answered, or whose answer used nothing, does not count.
    """
    # Most calls of a moment are alike: they are added up first, and priced together.
    alike: dict[tuple[K, str], list[int]] = {}
    for event in events:
        if event.lane is None:
            continue
        key = (sort_of(event), event.model)
        used = alike.get(key)
        if used is None:
            used = alike[key] = [0, 0, 0, 0, 0, 0]
        used[0] += event.input_tokens
        used[1] += event.output_tokens
        used[2] += event.cache_read_tokens
        used[3] += event.cache_write_tokens
        used[4] += event.cache_write_1h_tokens
        used[5] += (
            event.input_tokens > 0
            or event.output_tokens > 0
            or event.cache_read_tokens > 0
            or event.cache_write_tokens > 0
        )
    found: dict[K, Sums] = {}
    for (sort, model), (*tokens, calls) in alike.items():
        if calls:
            usage = TokenUsage(*tokens)
            dollars = price_of(model, usage)
            unpriced = usage.total if dollars is None else 0
            sums = Sums(calls, usage.total, dollars or 0.0, unpriced)
            found.setdefault(sort, Sums()).join(sums)
    return found


_OTHERS = LaneId("other-lanes")


@dataclass(slots=True)
class Minute:
    """One minute, by lane."""

    at: int
    lanes: dict[LaneId, Sums] = field(default_factory=dict)


class Burn:
    """What was used lately."""

    def __init__(self, price_of: PriceOf) -> None:
        self._price_of = price_of
        self._minutes: OrderedDict[int, Minute] = OrderedDict()
        self.by_tag: OrderedDict[str, Sums] = OrderedDict()
        self.by_lane: dict[LaneId, Sums] = {}
        """The most recently used lane last."""
        self.of_other_lanes = Sums()
        """Of lanes that were dropped, since many others were used after them."""
        self.total = Sums()

    def calls_ended(self, events: Iterable[CallEnded]) -> None:
        """Count calls that have ended; one that was never answered used nothing."""

        def sort_of(event: CallEnded) -> tuple[int, LaneId, str | None]:
            return int(event.at // 60), event.lane or _OTHERS, event.tag

        for (minute, lane, tag), used in sums_by(events, sort_of, self._price_of).items():
            self._add(minute, lane, tag, used)

    def _add(self, number: int, lane: LaneId, tag: str | None, used: Sums) -> None:
        self.total.join(used)
        minute = self._minutes.get(number)
        if minute is None:
            minute = self._minutes[number] = Minute(number)
            while len(self._minutes) > _MAX_MINUTES:
                self._minutes.popitem(last=False)
        is_charted = lane in minute.lanes or len(minute.lanes) < _MAX_LANES_OF_MINUTE
        minute.lanes.setdefault(lane if is_charted else _OTHERS, Sums()).join(used)
        self.by_lane[lane] = self.by_lane.pop(lane, Sums())
        self.by_lane[lane].join(used)
        while len(self.by_lane) > _MAX_LANES:
            self.of_other_lanes.join(self.by_lane.pop(next(iter(self.by_lane))))
        if tag:
            self.by_tag.setdefault(tag, Sums()).join(used)
            self.by_tag.move_to_end(tag)
            while len(self.by_tag) > _MAX_TAGS:
                self.by_tag.popitem(last=False)

    def series(self, now: float, minutes: int) -> list[Minute]:
        """The last minutes, the oldest first, empty ones included."""
        last = int(now // 60)
        return [self._minutes.get(at, Minute(at)) for at in range(last - minutes + 1, last + 1)]

    def since(self, at: float) -> Sums:
        """What was used since then, as far back as minutes are saved."""
        first, found = at // 60, Sums()
        for number, minute in self._minutes.items():
            if number >= first:
                for sums in minute.lanes.values():
                    found.join(sums)
        return found

    def dollars_per_hour(self, now: float) -> float:
        """The present pace, as far as prices are known."""
        return self.since(now - _PACE_MINUTES * 60).dollars * 60 / _PACE_MINUTES

    def follow_clock(self, set_by: float) -> None:
        """The wall clock was set by so much: minutes stay as long ago as they are."""
        moved = round(set_by / 60)
        for minute in self._minutes.values():
            minute.at += moved
        self._minutes = OrderedDict((minute.at, minute) for minute in self._minutes.values())
