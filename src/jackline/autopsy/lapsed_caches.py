"""Find the calls that waited until their prompt cache had lapsed, in a gateway's journal.

Rules: (1) pure: calls and prices are arguments; (2) a call counts only if the wait decided it: it
was submitted while its cache lived, sent after that, and most of the cached part was written again;
(3) without a known price the cost is in tokens.
Not here: caches that have not lapsed yet (control/forecast.py), reading the journal (journal/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from jackline.autopsy.figures import counted, duration
from jackline.events import CallEnded
from jackline.lanes.prompt_caches import LONG_LIFE, SHORT_LIFE

# Of what was cached, so much must have been written again.
_MOST_OF_IT = 0.5
LIVES_LONGER = 'Where calls are held for longer, a life of 1 h (cache.ttl = "1h") keeps them.'
"""What helps."""
_ANSWERED = ("answered", "shortened")
_MILLION = 1_000_000


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
    """Those of these calls; `price_of` gives dollars for a million tokens written, and read."""
    found: list[LapsedWait] = []
    before: dict[tuple[str, str, str], CallEnded] = {}
    for call in sorted(calls, key=lambda each: each.at):
        if not call.session or call.outcome not in _ANSWERED:
            continue
        name = (call.session, call.agent or "", call.lane)
        last = before.get(name)
        if last is not None and _lapsed_in_line(last, call):
            found.append(_wait(last, call, price_of(call.model)))
        before[name] = call
    return found


def _lapsed_in_line(last: CallEnded, call: CallEnded) -> bool:
    cached = last.cache_read_tokens + last.cache_write_tokens
    written_again = min(call.cache_write_tokens, cached - call.cache_read_tokens)
    if not cached or written_again < _MOST_OF_IT * cached:
        return False
    asked = call.at - call.took - _sent_at(last)
    sent = _sent_at(call) - _sent_at(last)
    return any(asked < life <= sent for life in (SHORT_LIFE, LONG_LIFE))


def _sent_at(call: CallEnded) -> float:
    return call.at - call.took + call.waited


def _wait(last: CallEnded, call: CallEnded, price: tuple[float, float] | None) -> LapsedWait:
    cached = last.cache_read_tokens + last.cache_write_tokens
    tokens = min(call.cache_write_tokens, cached - call.cache_read_tokens)
    written, read = (None, None) if price is None else (tokens * each / _MILLION for each in price)
    return LapsedWait(call.call, call.waited, tokens, written, read)


@dataclass(frozen=True, slots=True)
class WaitSums:
    """All of them together; dollars of those with a known price, None where none has one."""

    calls: int
    longest_wait: float
    tokens: int
    dollars: float | None
    dollars_warm: float | None


def summed(waits: Sequence[LapsedWait]) -> WaitSums | None:
    """The sums; None if there is no such call."""
    if not waits:
        return None
    written = [wait.dollars for wait in waits if wait.dollars is not None]
    read = [wait.dollars_warm for wait in waits if wait.dollars_warm is not None]
    return WaitSums(
        len(waits),
        max(wait.waited for wait in waits),
        sum(wait.tokens for wait in waits),
        sum(written) if written else None,
        sum(read) if read else None,
    )


def waits_sentence(waits: Sequence[LapsedWait]) -> str:
    """What they cost, in one sentence; empty without any."""
    sums = summed(waits)
    if sums is None:
        return ""
    whose = "its prompt cache" if sums.calls == 1 else "their prompt caches"
    longest = duration(timedelta(seconds=sums.longest_wait))
    money = ""
    if sums.dollars is not None and sums.dollars_warm is not None:
        money = f", {_dollars(sums.dollars)} instead of {_dollars(sums.dollars_warm)}"
    return (
        f"{counted(sums.calls, 'call')} waited while {whose} lapsed, for up to {longest}:"
        f" {sums.tokens:,} tokens were written again{money}."
    )


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 0.1 else f"${amount:.4f}".rstrip("0")
