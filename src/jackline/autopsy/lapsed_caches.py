"""Find the calls that waited until their prompt cache had lapsed, in a gateway's journal.

Rules: (1) pure: calls and prices are arguments; (2) a call counts only if the wait decided it: it
was submitted while its cache lived, sent after that, and most of the cached part was written again;
(3) without a known price the cost is in tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from jackline.autopsy.figures import counted, duration
from jackline.events import CallEnded
from jackline.lane_id import LaneId
from jackline.lanes.prompt_caches import LONG_LIFE, SHORT_LIFE

# This part of what was cached must have been written again.
_MOST_OF_IT = 0.5
LONGER_LIFE_ADVICE = 'Where calls are held for longer, a life of 1 h (cache.ttl = "1h") keeps them.'


@dataclass(frozen=True, slots=True)
class LapsedWait:
    """One call that lost its cache while it waited, and what was written again for it."""

    call: str
    waited: float
    tokens: int
    dollars: float | None
    dollars_warm: float | None


def lapsed_waits(
    calls: Iterable[CallEnded], price_of: Callable[[str], tuple[float, float] | None]
) -> list[LapsedWait]:
    """Those among these calls; `price_of` gives dollars for a million tokens written, and read."""
    found: list[LapsedWait] = []
    before: dict[tuple[str, str, LaneId | None], CallEnded] = {}
    for call in sorted(calls, key=lambda each: each.at):
        if not call.session or call.outcome not in ("answered", "shortened"):
            continue
        conversation = (call.session, call.agent or "", call.lane)
        last = before.get(conversation)
        before[conversation] = call
        if last is None:
            continue
        cached = last.cache_read_tokens + last.cache_write_tokens
        tokens = min(call.cache_write_tokens, cached - call.cache_read_tokens)
        # Both in seconds after the request that used the cache last.
        submitted = call.at - call.took - (last.at - last.took + last.waited)
        sent = submitted + call.waited
        waited_too_long = any(submitted < life <= sent for life in (SHORT_LIFE, LONG_LIFE))
        if cached and tokens >= _MOST_OF_IT * cached and waited_too_long:
            price = price_of(call.model)
            written, read = (None, None) if price is None else (tokens * p / 1e6 for p in price)
            found.append(LapsedWait(call.call, call.waited, tokens, written, read))
    return found


@dataclass(frozen=True, slots=True)
class WaitTotals:
    """The sums over such calls; dollars cover those with a known price, None where none has one."""

    calls: int
    longest_wait: float
    tokens: int
    dollars: float | None
    dollars_warm: float | None

    @classmethod
    def of(cls, waits: Sequence[LapsedWait]) -> WaitTotals | None:
        """The sums; None if there is no such call."""
        if not waits:
            return None
        written = [wait.dollars for wait in waits if wait.dollars is not None]
        read = [wait.dollars_warm for wait in waits if wait.dollars_warm is not None]
        return cls(
            len(waits),
            max(wait.waited for wait in waits),
            sum(wait.tokens for wait in waits),
            sum(written) if written else None,
            sum(read) if read else None,
        )


def waits_sentence(waits: Sequence[LapsedWait]) -> str:
    """What the calls cost, in one sentence; empty without any."""
    totals = WaitTotals.of(waits)
    if totals is None:
        return ""
    whose = "its prompt cache" if totals.calls == 1 else "their prompt caches"
    longest = duration(timedelta(seconds=totals.longest_wait))
    prices = [
        f"${amount:,.2f}" if amount >= 0.1 else f"${amount:.4f}".rstrip("0")
        for amount in (totals.dollars, totals.dollars_warm)
        if amount is not None
    ]
    money = f", {prices[0]} instead of {prices[1]}" if len(prices) == 2 else ""
    return (
        f"{counted(totals.calls, 'call')} waited while {whose} lapsed, for up to {longest}:"
        f" {totals.tokens:,} tokens were written again{money}."
    )
