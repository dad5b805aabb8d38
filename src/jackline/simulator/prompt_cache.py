"""Prompt caches of a provider: what a prompt reads, writes, and makes ready for the next one.

Rules: (1) pure: `now` is an argument, and `look` changes nothing; (2) an entry can be read from
the first byte of the answer to the request that wrote it; (3) its life counts from the start of
that request, and from the start of each admitted request that reads it; (4) accounts, models and,
where caching is automatic, machines share nothing; (5) read + written + plain is the whole
prompt; (6) lapsed entries are dropped, and of the others the least recently used when there are
too many.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from jackline.simulator.vendor_facts import price_of

FIVE_MINUTES = 300.0
ONE_HOUR = 3600.0
ONE_DAY = 86_400.0

LOOKBACK = 20
"""Positions that a mark searches for an entry; its own is the first."""

STEP = 128
"""Automatic caching counts in steps of so many tokens."""

_ROUTED_BY = 256
"""Tokens at the start of a prompt that decide which machine gets it."""

_PER_MACHINE = 15
"""Requests per minute with one start and one routing key before another machine takes over."""

_MINUTE = 60.0
_USUAL_SMALLEST = 1024


class PromptBlock(NamedTuple):
    """A content block; `content` identifies it, and a `ttl` in seconds marks the prefix it ends."""

    content: bytes
    tokens: int
    ttl: float | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """The blocks of a request in the order tools, system, messages.

    With `automatic` the provider caches on its own and marks mean nothing (OpenAI); without, only
    what a mark ends is cached (Anthropic).
    """

    model: str
    blocks: Sequence[PromptBlock] = field(repr=False)
    account: str = ""
    automatic: bool = False
    retention: float = FIVE_MINUTES
    """How long an automatic entry lives after its last use, in seconds."""
    routing_key: str = ""
    """`prompt_cache_key`: sent to the same machine together with the prompt's start."""

    @property
    def tokens(self) -> int:
        """The size of the whole prompt."""
        return sum(block.tokens for block in self.blocks)

    @property
    def smallest_cached(self) -> int:
        """The tokens that a prefix must have to be cached; a smaller one is silently not cached."""
        price = price_of(self.model)
        return _USUAL_SMALLEST if price is None else price.smallest_cached

    def prefixes(self, count: int) -> list[bytes]:
        """The identity of so many prefixes: that of the one before, and the block that it adds."""
        keys = []
        seed = _digest(self.account.encode(), self.model.encode())
        for block in self.blocks[:count]:
            seed = _digest(seed, block.tokens.to_bytes(8, "big") + block.content)
            keys.append(seed)
        return keys


@dataclass(frozen=True, slots=True)
class Hit:
    """What a prompt reads from caches, writes into them, and has beside them, in tokens."""

    read: int = 0
    written_5m: int = 0
    written_1h: int = 0
    plain: int = 0
    started: float = 0.0
    found: tuple[bytes, ...] = field(default=(), repr=False)
    """The entries that are read."""
    made: tuple[tuple[bytes, float], ...] = field(default=(), repr=False)
    """The entries that the answer's first byte makes readable, with their lives in seconds."""
    route: bytes = field(default=b"", repr=False)
    """What decides the machine, where that matters."""

    @property
    def written(self) -> int:
        """All tokens that are written."""
        return self.written_5m + self.written_1h


class _Entry(NamedTuple):
    ttl: float
    lapses: float


class PromptCache:
    """The caches of one provider, for all its accounts and models.

    `look` checks a request, `admitted` reports its admission, `begun` the first byte of its
    answer.
    """

    def __init__(self, most_entries: int = 200_000) -> None:
        self._most = most_entries
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._routed: dict[bytes, deque[float]] = {}
        self._next_sweep = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def look(self, prompt: Prompt, now: float) -> Hit:
        """What this prompt would read and write if its request started now."""
        return self._automatic(prompt, now) if prompt.automatic else self._marked(prompt, now)

    def admitted(self, hit: Hit) -> None:
        """Restart the life of what a request reads; it counts from the request's start."""
        for key in hit.found:
            entry = self._entries.get(key)
            if entry is not None:
                self._store(key, entry.ttl, hit.started, hit.started)
        if hit.route:
            self._routed.setdefault(hit.route, deque()).append(hit.started)

    def begun(self, hit: Hit, now: float) -> None:
        """Make readable what a request has written: the first byte of its answer is sent."""
        for key, ttl in hit.made:
            self._store(key, ttl, hit.started, now)
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)
        if now < self._next_sweep:
            return
        self._next_sweep = now + _MINUTE
        for key in [key for key, entry in self._entries.items() if entry.lapses <= now]:
            del self._entries[key]
        for route, recent in list(self._routed.items()):
            while recent and recent[0] <= now - _MINUTE:
                recent.popleft()
            if not recent:
                del self._routed[route]

    # --- caching at marks -----------------------------------------------------------

    def _marked(self, prompt: Prompt, now: float) -> Hit:
        marks = [place for place, block in enumerate(prompt.blocks) if block.ttl is not None]
        if not marks:
            return Hit(plain=prompt.tokens, started=now)
        blocks = prompt.blocks[: marks[-1] + 1]
        sizes = list(accumulate(block.tokens for block in blocks))
        keys = prompt.prefixes(len(blocks))
        # For each mark the last position that has an entry within its reach.
        reach = (range(mark, max(-1, mark - LOOKBACK), -1) for mark in marks)
        nearest = (next((at for at in back if self._live(keys[at], now)), -1) for back in reach)
        found = set(nearest) - {-1}
        read = max((sizes[place] for place in found), default=0)
        least = prompt.smallest_cached
        # What is read anyway is not written again, but a mark inside it gets its entry back.
        made = [place for place in marks if sizes[place] >= least and place not in found]
        until_1h = max(
            (sizes[at] for at in made if (blocks[at].ttl or 0.0) > FIVE_MINUTES), default=0
        )
        until_5m = max((sizes[at] for at in made), default=0)
        written_1h = max(0, until_1h - read)
        written_5m = max(0, until_5m - max(read, until_1h))
        return Hit(
            read,
            written_5m,
            written_1h,
            prompt.tokens - read - written_5m - written_1h,
            now,
            found=tuple(keys[place] for place in found),
            made=tuple((keys[place], blocks[place].ttl or FIVE_MINUTES) for place in made),
        )

    # --- caching without marks ------------------------------------------------------

    def _automatic(self, prompt: Prompt, now: float) -> Hit:
        sizes = list(accumulate(block.tokens for block in prompt.blocks))
        whole = sizes[-1] if sizes else 0
        least = prompt.smallest_cached
        if whole < least:
            return Hit(plain=whole, started=now)
        starts = prompt.prefixes(len(sizes))
        start = next(place for place, size in enumerate(sizes) if size >= _ROUTED_BY)
        route = _digest(starts[start], prompt.routing_key.encode())
        recent = sum(now - _MINUTE < at <= now for at in self._routed.get(route, ()))
        machine = _digest(route, str(recent // _PER_MACHINE).encode())
        cacheable = [place for place, size in enumerate(sizes) if size >= least]
        keys = {place: _digest(machine, starts[place]) for place in cacheable}
        last = next((at for at in reversed(cacheable) if self._live(keys[at], now)), -1)
        read = sizes[last] // STEP * STEP if last >= 0 else 0
        return Hit(
            read,
            plain=whole - read,
            started=now,
            found=tuple(keys[place] for place in cacheable if place <= last),
            made=tuple((keys[place], prompt.retention) for place in cacheable if place > last),
            route=route,
        )

    # --- entries --------------------------------------------------------------------

    def _live(self, key: bytes, now: float) -> bool:
        entry = self._entries.get(key)
        return entry is not None and now < entry.lapses

    def _store(self, key: bytes, ttl: float, started: float, now: float) -> None:
        """Create or prolong an entry; of two that live, the longer life counts."""
        lapses = started + ttl
        before = self._entries.get(key)
        if before is not None and now < before.lapses:
            ttl, lapses = max(ttl, before.ttl), max(lapses, before.lapses)
        self._entries[key] = _Entry(ttl, lapses)
        self._entries.move_to_end(key)


def _digest(before: bytes, content: bytes) -> bytes:
    # The length marks where the first part ends, so that no two pairs have the same digest.
    made = hashlib.blake2b(len(before).to_bytes(8, "big"), digest_size=16)
    made.update(before)
    made.update(content)
    return made.digest()
