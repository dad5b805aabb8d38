"""Count what calls use: tokens and dollars by minute, lane and run.

Rules: (1) pure: facts and `now` come in; (2) bounded: a day of minutes, and the most recent runs;
(3) a model whose price is not known costs "unknown", never nothing.
Not here: prices (agents/prices.py), drawing (dashboard/), limits (budgets/).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from jackline.agents.outcome import TokenUsage
from jackline.events import CallEnded

PriceOf: TypeAlias = Callable[[str, TokenUsage], float | None]

_MINUTES = 24 * 60
_MOST_TAGS = 500
_MOST_LANES = 512
# Of one minute's chart; what further lanes took in it is drawn as one.
_MOST_OF_A_MINUTE = 64
_OTHERS = "other-lanes"
_PACE_MINUTES = 15


@dataclass(slots=True)
class Sums:
    """What a stretch of calls took."""

    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    """Tokens of models whose price is not known."""

    def join(self, other: Sums) -> None:
        """All that the other stretch took, too."""
        self.calls += other.calls
        self.tokens += other.tokens
        self.dollars += other.dollars
        self.unpriced += other.unpriced


@dataclass(slots=True)
class Minute:
    """One minute, by lane."""

    at: int
    lanes: dict[str, Sums] = field(default_factory=dict)


class Burn:
    """Everything that was taken lately."""

    def __init__(self, price_of: PriceOf) -> None:
        self._price_of = price_of
        self._minutes: OrderedDict[int, Minute] = OrderedDict()
        self.by_tag: OrderedDict[str, Sums] = OrderedDict()
        # The one that was used last stands last.
        self.by_lane: dict[str, Sums] = {}
        self.of_other_lanes = Sums()
        """What lanes took that are no longer told apart, since many others were used after them."""
        self.total = Sums()

    def calls_ended(self, events: Iterable[CallEnded]) -> None:
        """Calls came to their end; one that was never answered took nothing."""
        # Most calls of a moment are alike: they are added up first, and priced together.
        alike: dict[tuple[int, str, str, str | None], list[int]] = {}
        for event in events:
            sort = (int(event.at // 60), event.lane, event.model, event.tag)
            taken = alike.get(sort)
            if taken is None:
                taken = alike[sort] = [0, 0, 0, 0, 0, 0]
            taken[0] += event.input_tokens
            taken[1] += event.output_tokens
            taken[2] += event.cache_read_tokens
            taken[3] += event.cache_write_tokens
            taken[4] += event.cache_write_1h_tokens
            taken[5] += (
                event.input_tokens > 0
                or event.output_tokens > 0
                or event.cache_read_tokens > 0
                or event.cache_write_tokens > 0
            )
        for (minute, lane, model, tag), (*tokens, calls) in alike.items():
            if calls:
                self._took(minute, lane, tag, TokenUsage(*tokens), model, calls)

    def _took(
        self, minute: int, lane: str, tag: str | None, usage: TokenUsage, model: str, calls: int
    ) -> None:
        dollars = self._price_of(model, usage)
        tokens = usage.total
        unpriced = tokens if dollars is None else 0
        taken = Sums(calls, tokens, dollars or 0.0, unpriced)
        self.total.join(taken)
        lanes = self._minute(minute).lanes
        name = lane if lane in lanes or len(lanes) < _MOST_OF_A_MINUTE else _OTHERS
        lanes.setdefault(name, Sums()).join(taken)
        self._of_lane(lane).join(taken)
        if tag:
            self._tagged(tag).join(taken)

    def series(self, now: float, minutes: int) -> list[Minute]:
        """The last minutes, the oldest first, empty ones included."""
        last = int(now // 60)
        return [self._minutes.get(at, Minute(at)) for at in range(last - minutes + 1, last + 1)]

    def since(self, at: float) -> Sums:
        """What was taken since then, as far back as minutes are kept."""
        first, all_since = at // 60, Sums()
        for number, minute in self._minutes.items():
            if number >= first:
                for sums in minute.lanes.values():
                    all_since.join(sums)
        return all_since

    def dollars_since(self, at: float) -> float:
        """What was spent since then, as far as prices are known."""
        return self.since(at).dollars

    def dollars_per_hour(self, now: float) -> float:
        """The present pace."""
        return self.dollars_since(now - _PACE_MINUTES * 60) * 60 / _PACE_MINUTES

    def follow_clock(self, set_by: float) -> None:
        """The wall clock was set by so much: minutes stay as long ago as they are."""
        moved = round(set_by / 60)
        for minute in self._minutes.values():
            minute.at += moved
        self._minutes = OrderedDict((minute.at, minute) for minute in self._minutes.values())

    def _minute(self, number: int) -> Minute:
        minute = self._minutes.get(number)
        if minute is None:
            minute = self._minutes[number] = Minute(number)
            while len(self._minutes) > _MINUTES:
                self._minutes.popitem(last=False)
        return minute

    def _of_lane(self, lane: str) -> Sums:
        known = self.by_lane.pop(lane, None)
        sums = self.by_lane[lane] = Sums() if known is None else known
        while len(self.by_lane) > _MOST_LANES:
            self.of_other_lanes.join(self.by_lane.pop(next(iter(self.by_lane))))
        return sums

    def _tagged(self, tag: str) -> Sums:
        sums = self.by_tag.setdefault(tag, Sums())
        self.by_tag.move_to_end(tag)
        while len(self.by_tag) > _MOST_TAGS:
            self.by_tag.popitem(last=False)
        return sums
