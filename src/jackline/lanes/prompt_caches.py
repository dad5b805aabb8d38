"""Know which conversations are in a provider's prompt cache, and which calls request an hour.

Rules: (1) pure: caches are learned from the usage of the last accepted answer, counted from when
its call was sent; (2) a cost is computed when a call is sent, never earlier; (3) after two
predicted hits that missed, a conversation counts as uncached until a hit is seen; (4) where the
vendor counts cached tokens like any others, nothing here changes order or cost; (5) a call's own
TTL comes before its lane's, and neither counts where no hour is known to be supported; (6) `auto`
requests an hour only when nothing of the conversation is cached (no document says whether such a
mark reads an entry of five minutes), keeps to it unless nothing is ever read, and leaves calls with
a subscription's login alone; (7) bounded: what lapsed, or was not used for longest, is dropped.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from jackline.dialects.token_usage import MOST_TOKENS, TokenUsage, bounded_count
from jackline.lanes.call import Call
from jackline.lanes.settings import CacheTtl

# In seconds: how long an entry lives after it was last used, if its writer asked for nothing else.
SHORT_LIFE = 300.0
LONG_LIFE = 3600.0
# So long before its end a cache is not counted on any more: clocks differ, requests travel.
_NEAR_END = 1.0
# Siblings wait for so long for the first byte of the one that writes their common prefix.
SIBLINGS_WAIT = 20.0
# A prefix below any vendor's minimum is never cached.
SMALLEST_PREFIX = 512
# Most vendors cache no prompt below; it costs no more than a warm call does.
_SMALLEST_PROMPT = 1024
# After so many predicted hits that missed, a conversation counts as uncached.
MISSES_BELIEVED = 2
# The part of what was expected that must have been read for a hit.
_HIT = 0.5
_MOST_CONVERSATIONS = 5_000
_MOST_PREFIXES = 2_000


class CacheState(IntEnum):
    """What the cache holds of a call's conversation."""

    # Nothing is known of caches here, or they change nothing.
    PLAIN = 0
    WARM = 1
    LAPSED = 2
    NEW = 3
    # It is not cached, though others here are.
    UNCACHED = 4


class CachedConversation(msgspec.Struct):
    """What was seen of one conversation, as of the call that was answered last.

    `estimated` is what that call was taken to have as its prompt, `prompt` what it had.
    """

    cached: int
    until: float
    life: float
    estimated: int
    prompt: int
    misses: int = 0

    @property
    def sent_at(self) -> float:
        """When the call was sent that was answered last."""
        return self.until - self.life


class _Prefix(msgspec.Struct):
    """The beginning that several conversations share; `carrier` is the permit that writes it."""

    tokens: int
    until: float = 0.0
    life: float = SHORT_LIFE
    carrier: int | None = None
    carried_since: float = 0.0
    is_cached: bool = True


class PromptCaches:
    """The caches of one lane, as far as its answers report."""

    def __init__(self, *, reads_count: bool = False) -> None:
        self.reads_count = reads_count
        # Whether any answer here was read from a cache or written to one.
        self.in_use = False
        # By when the next call that has waited for very long may go out of turn, cold as it is.
        self.next_aged = 0.0
        # Prefixes that are written now, or will not be; whoever waited for them may go.
        self.released: list[str] = []
        self.conversations: dict[str, CachedConversation] = {}
        self._prefixes: dict[str, _Prefix] = {}

    # --- reading --------------------------------------------------------------------------

    def cache_state(self, call: Call, now: float) -> tuple[CacheState, float]:
        """What is cached of the call's conversation, and until when if anything is."""
        if self.reads_count or not self.in_use:
            return CacheState.PLAIN, 0.0
        if not call.conversation:
            return CacheState.UNCACHED, 0.0
        known = self._known(call)
        if known is None:
            is_small = call.input_tokens < _SMALLEST_PROMPT
            return (CacheState.UNCACHED if is_small else CacheState.NEW), 0.0
        if known.misses >= MISSES_BELIEVED or not known.cached:
            return CacheState.UNCACHED, 0.0
        if now < known.until - _NEAR_END:
            return CacheState.WARM, known.until - _NEAR_END
        return CacheState.LAPSED, 0.0

    def cached_of(self, conversation: str) -> CachedConversation | None:
        """What is, or was, cached of a conversation; None where it is not, or all the same."""
        known = None if self.reads_count else self.conversations.get(conversation)
        if known is None or not known.cached or known.misses >= MISSES_BELIEVED:
            return None
        return known

    def cost(self, call: Call, now: float) -> float:
        """What the call takes of the input limit if it is sent now."""
        return self._cost(call, now)[0]

    def charge(self, permit: int, call: Call, now: float) -> tuple[float, float]:
        """The call is sent now: what it takes of the limit, and what it is expected to read."""
        cost, read = self._cost(call, now)
        if call.prefix and not read and not self.reads_count:
            prefix = self._prefixes.get(call.prefix)
            if prefix is None:
                prefix = self._prefixes[call.prefix] = _Prefix(call.prefix_tokens)
                if len(self._prefixes) > _MOST_PREFIXES:
                    del self._prefixes[next(iter(self._prefixes))]
            if prefix.carrier is None or now >= prefix.carried_since + SIBLINGS_WAIT:
                prefix.carrier, prefix.carried_since = permit, now
        return cost, read

    def siblings_wait_until(self, call: Call, now: float) -> float:
        """Until when the call should wait, as another is just writing the prefix of both; or 0."""
        if not call.prefix or self.reads_count:
            return 0.0
        prefix = self._prefixes.get(call.prefix)
        if prefix is None or prefix.carrier is None or not prefix.is_cached:
            return 0.0
        if now < prefix.until - _NEAR_END:
            return 0.0
        until = prefix.carried_since + SIBLINGS_WAIT
        if now >= until:
            return 0.0
        known = self._known(call)
        is_warm = known is not None and now < known.until - _NEAR_END
        return 0.0 if is_warm else until

    def counted(self, usage: TokenUsage) -> int:
        """What an answer has taken of the input limit."""
        counted = usage.input_tokens + usage.cache_write_tokens
        return counted + usage.cache_read_tokens if self.reads_count else counted

    # --- learning -------------------------------------------------------------------------

    def begun(self, permit: int, call: Call, sent_at: float) -> None:
        """The answer has begun, so its prefix is in the cache."""
        prefix = self._prefixes.get(call.prefix)
        if prefix is not None and prefix.carrier == permit:
            prefix.carrier = None
            prefix.until = max(prefix.until, sent_at + prefix.life)
            self.released.append(call.prefix)

    def ended(self, permit: int, call: Call) -> None:
        """The attempt is over; if it was to write a prefix, another must."""
        prefix = self._prefixes.get(call.prefix)
        if prefix is not None and prefix.carrier == permit:
            prefix.carrier = None
            self.released.append(call.prefix)

    def answered(self, call: Call, sent_at: float, expected_read: float, usage: TokenUsage) -> None:
        """Learn from a whole answer."""
        if usage.cache_read_tokens or usage.cache_write_tokens:
            self.in_use = True
        prefix = self._prefixes.get(call.prefix) if call.prefix else None
        if prefix is not None:
            prefix.life = _life(usage, prefix.life)
            # Whatever the marks of the request say: the vendor may not cache it.
            prefix.is_cached = (
                usage.cache_read_tokens + usage.cache_write_tokens >= _HIT * prefix.tokens
            )
            # Whoever reads or writes what comes behind it lets it live on.
            lives_until = max(prefix.until, sent_at + prefix.life)
            prefix.until = lives_until if prefix.is_cached else 0.0
        name = call.conversation
        if not (name and self.in_use):
            return
        known = self.conversations.pop(name, None)
        life = _life(usage, known.life if known is not None else SHORT_LIFE)
        misses = known.misses if known is not None else 0
        if usage.cache_read_tokens and usage.cache_read_tokens >= _HIT * expected_read:
            misses = 0
        elif expected_read:
            misses += 1
        cached = usage.cache_read_tokens + usage.cache_write_tokens
        if known is not None and known.until > sent_at + life and known.cached > cached:
            # An answer to something that was sent earlier says nothing about what came since.
            self.conversations[name] = known
            known.misses = misses
            return
        # Put in again, so that those that were used longest ago stand first.
        prompt = usage.input_tokens + cached
        self.conversations[name] = CachedConversation(
            cached, sent_at + life, life, call.input_tokens, prompt, misses
        )
        if len(self.conversations) > _MOST_CONVERSATIONS:
            del self.conversations[next(iter(self.conversations))]

    def _known(self, call: Call) -> CachedConversation | None:
        """What was seen of the conversation that the call goes on with."""
        if call.begins or not call.conversation:
            return None
        return self.conversations.get(call.conversation)

    def _cost(self, call: Call, now: float) -> tuple[float, float]:
        if self.reads_count:
            return prompt_tokens(call), 0.0
        known = self._known(call)
        prompt = prompt_tokens(call)
        if known is not None:
            if known.estimated > 0:
                # Measured by how the last estimate was wrong.
                prompt *= known.prompt / known.estimated
            if known.misses >= MISSES_BELIEVED:
                return prompt, 0.0
            if known.cached and now < known.until - _NEAR_END:
                return max(1.0, prompt - known.cached), float(min(known.cached, prompt))
        prefix = self._prefixes.get(call.prefix) if call.prefix else None
        if prefix is not None and now < prefix.until - _NEAR_END:
            shared = min(float(prefix.tokens), prompt)
            return max(1.0, prompt - shared), shared
        return prompt, 0.0


def prompt_tokens(call: Call) -> float:
    """What the call was taken to have as its prompt, as a number that can be calculated with."""
    tokens = call.input_tokens
    # Asked for every call: comparing costs a third of `min` and `max`.
    return tokens if 0 <= tokens <= MOST_TOKENS else bounded_count(tokens)


def counted_until(known: CachedConversation) -> float:
    """Until when what is cached of a conversation is counted on."""
    return known.until - _NEAR_END


def _life(usage: TokenUsage, before: float) -> float:
    """How long what an answer has cached lives: the shortest part of it is the first to go."""
    if usage.cache_write_tokens > usage.cache_write_1h_tokens:
        return SHORT_LIFE
    return LONG_LIFE if usage.cache_write_1h_tokens else before


_MOST_HOUR_CONVERSATIONS = 5_000


class HourCaches:
    """Which conversations of one lane are cached for an hour; `ttl` is what its upstream says.

    None means vendors that are not known to take an hour.
    """

    def __init__(self, ttl: CacheTtl | None = None) -> None:
        self.ttl = ttl
        # Until when calls are expected to wait for longer than a short cache lives.
        self.long_waits_until = 0.0
        # Put in again when used, so that those that were used longest ago stand first.
        self._hour_conversations: dict[str, None] = {}

    def asks_hour(
        self, call: Call, known: CachedConversation | None, *, waited: float, now: float
    ) -> bool:
        """Whether a call that is sent now, after so long a wait, asks for an hour.

        `known` is what was seen of its conversation.
        """
        if waited >= SHORT_LIFE:
            self.long_waits_until = now + LONG_LIFE
        conversation = call.conversation
        if self.ttl is None or not conversation:
            return False
        ttl = self.ttl if call.cache_ttl is None else call.cache_ttl
        if ttl is CacheTtl.AUTO:
            if call.login:
                return False
            is_cached = known is None or known.misses < MISSES_BELIEVED
            long_waits = now < self.long_waits_until
            keeps = conversation in self._hour_conversations
            asks = is_cached and (keeps or pays(known, now, long_waits=long_waits))
        else:
            asks = ttl is CacheTtl.HOUR
        if asks:
            self._hour_conversations.pop(conversation, None)
            self._hour_conversations[conversation] = None
            if len(self._hour_conversations) > _MOST_HOUR_CONVERSATIONS:
                del self._hour_conversations[next(iter(self._hour_conversations))]
        return asks


def pays(known: CachedConversation | None, now: float, *, long_waits: bool) -> bool:
    """Whether a cache of an hour is worth twice the input price instead of 1.25 times.

    It is where a pause of more than five minutes is likely: the conversation had one before, which
    an hour would have outlived, or calls on its lane wait for so long.
    """
    if known is not None:
        if now < known.until:
            return False
        sent_at = known.until - known.life
        if known.cached and now < sent_at + LONG_LIFE:
            return True
    return long_waits
