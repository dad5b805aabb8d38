"""Count the tokens of an answer, in the four kinds that Anthropic distinguishes.

Rules: (1) a value that is missing or unreadable is not zero: the last known value remains; (2)
JSON numbers have any size, counts do not: each is limited to 0 … `MOST_TOKENS`; (3) cached input is
counted apart, as Anthropic does, and never twice.
"""

from __future__ import annotations

import msgspec

from jackline.dialects.json_bounds import UNREADABLE

# More than any model reads or writes in one call, and small enough to add up and multiply.
MOST_TOKENS = 1_000_000_000


def bounded_count(number: int) -> int:
    """A token count from outside, limited to what can be calculated with."""
    return min(max(0, number), MOST_TOKENS)


class _UsageFields(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    # Decoded separately: if it is unreadable, the other counts are still used.
    cache_creation: msgspec.Raw = msgspec.Raw(b"")


class _CacheCreation(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = None


class _OpenAIDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OpenAIUsage(msgspec.Struct):
    """Both dialects' names for the same counts, and one of a server with its own."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _OpenAIDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _OpenAIDetails | None = None


_usage_fields = msgspec.json.Decoder(_UsageFields)
_cache_creation = msgspec.json.Decoder(_CacheCreation)
_openai_usage = msgspec.json.Decoder(_OpenAIUsage)


class TokensUsed(msgspec.Struct, frozen=True):
    """Fresh input, output, input read from the cache, input written to the cache.

    `cache_creation_1h` is the part of what was written that lives for an hour.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_creation: int = 0
    cache_creation_1h: int = 0

    def __add__(self, other: TokensUsed) -> TokensUsed:
        return TokensUsed(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_creation + other.cache_creation,
            self.cache_creation_1h + other.cache_creation_1h,
        )

    def updated(self, usage: msgspec.Raw) -> TokensUsed:
        """The counts after Anthropic's `usage` object; an unreadable one changes nothing."""
        try:
            new = _usage_fields.decode(usage)
        except UNREADABLE:
            # The answer is still good when its usage is unreadable.
            return self
        # Written out, because this runs for every answer.
        known, written = self.input, new.input_tokens
        fresh = known if written is None else bounded_count(written)
        known, written = self.output, new.output_tokens
        output = known if written is None else bounded_count(written)
        known, written = self.cache_read, new.cache_read_input_tokens
        cache_read = known if written is None else bounded_count(written)
        known, written = self.cache_creation, new.cache_creation_input_tokens
        creation = known if written is None else bounded_count(written)
        one_hour = self.cache_creation_1h
        if new.cache_creation:
            try:
                written = _cache_creation.decode(new.cache_creation).ephemeral_1h_input_tokens
            except UNREADABLE:
                written = None
            one_hour = one_hour if written is None else bounded_count(written)
        return TokensUsed(fresh, output, cache_read, creation, one_hour)

    def updated_from_openai(self, usage: msgspec.Raw | None) -> TokensUsed:
        """The counts after the `usage` object of either of OpenAI's dialects."""
        if usage is None:
            return self
        try:
            new = _openai_usage.decode(usage)
        except UNREADABLE:
            return self
        chat, responses = new.prompt_tokens, new.input_tokens
        whole = chat if chat is not None else responses
        chat, responses = new.completion_tokens, new.output_tokens
        written = chat if chat is not None else responses
        details = new.prompt_tokens_details or new.input_tokens_details or _OpenAIDetails()
        cache_read = bounded_count(details.cached_tokens or new.prompt_cache_hit_tokens or 0)
        cache_written = bounded_count(details.cache_write_tokens or 0)
        output = self.output if written is None else bounded_count(written)
        if whole is None:
            return TokensUsed(self.input, output)
        fresh = bounded_count(whole - cache_read - cache_written)
        return TokensUsed(fresh, output, cache_read, cache_written)

    def to_anthropic(self) -> dict[str, int]:
        """The counts as Anthropic's `usage` object."""
        return {
            "input_tokens": self.input,
            "cache_creation_input_tokens": self.cache_creation,
            "cache_read_input_tokens": self.cache_read,
            "output_tokens": self.output,
        }
