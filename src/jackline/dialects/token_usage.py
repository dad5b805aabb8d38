"""Count the tokens of an answer, in the four kinds that Anthropic distinguishes.

Rules: (1) a value that is missing or unreadable is not zero: the last known value remains; (2)
JSON numbers have any size, counts do not: each is limited to 0 … `MOST_TOKENS`; (3) cached input is
counted apart, as Anthropic does, and never twice; (4) an estimate only replaces a count
that is impossible or has not come, and is never less than what was reported.
"""

from __future__ import annotations

from operator import sub

import msgspec
from msgspec.structs import astuple, replace

from jackline.dialects.json_bounds import UNREADABLE

# More than any model reads or writes in one call, and small enough to add up and multiply.
MOST_TOKENS = 1_000_000_000
# Less than a token for so many bytes is no count of a text. Pictures, and the sealed thoughts of
# some vendors, have more bytes to a token than that.
_MOST_BYTES_PER_TOKEN = 40
_DENSE = (b"base64", b"image_url", b"encrypted_content", b"top_logprobs")
# Of a stream's events, so many bytes hold a token or more: most of them are no text.
_MOST_BYTES_OF_STREAM = 1024
# An event of a stream holds a token or more, and only a few hold none: what is reported may be so
# much of the estimate.
_LEAST_REPORTED = 0.1
_JSON_NAMES = ("input", "output", "cache_read", "cache_write", "cache_write_1h")


def bounded_count(number: int) -> int:
    """A token count from outside, limited to what can be calculated with."""
    if 0 <= number <= MOST_TOKENS:
        return number
    return 0 if number < 0 else MOST_TOKENS


def least_of_stream(events: int, size: int) -> int:
    """The fewest tokens that so many events, of so many bytes, are taken for."""
    return max(events, size // _MOST_BYTES_OF_STREAM)


def least_of_document(body: bytes | bytearray, repeated: int) -> int:
    """The fewest tokens that a document is taken for, of which so many bytes repeat its request."""
    if any(mark in body for mark in _DENSE):
        return 1
    return 1 + max(0, len(body) - repeated) // _MOST_BYTES_PER_TOKEN


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


class TokenUsage(msgspec.Struct, frozen=True, gc=False):
    """Fresh input, output, input read from the cache, input written to the cache.

    `cache_write_1h_tokens` is the part of what was written that lives for an hour. The names are
    those of saved runs.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0

    @classmethod
    def from_json(cls, data: object) -> TokenUsage:
        """The counts that `to_json` wrote; what is missing or no number is zero."""
        found = data if isinstance(data, dict) else {}
        counts = [found.get(name) for name in _JSON_NAMES]
        return cls(*(count if isinstance(count, int) else 0 for count in counts))

    def to_json(self) -> dict[str, object]:
        """The counts by short names, for logs."""
        return dict(zip(_JSON_NAMES, astuple(self), strict=True))

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
        )

    def __sub__(self, other: TokenUsage) -> TokenUsage:
        # What of each kind goes beyond the other: never below zero.
        return TokenUsage(*(max(0, count) for count in map(sub, astuple(self), astuple(other))))

    @property
    def total(self) -> int:
        """All tokens, of whatever price."""
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
        )

    def updated(self, usage: msgspec.Raw) -> TokenUsage:
        """The counts after Anthropic's `usage` object; an unreadable one changes nothing."""
        try:
            new = _usage_fields.decode(usage)
        except UNREADABLE:
            # The answer is still good when its usage is unreadable.
            return self
        # Written out, because this runs for every answer.
        known, written = self.input_tokens, new.input_tokens
        fresh = known if written is None else bounded_count(written)
        known, written = self.output_tokens, new.output_tokens
        output = known if written is None else bounded_count(written)
        known, written = self.cache_read_tokens, new.cache_read_input_tokens
        cache_read = known if written is None else bounded_count(written)
        known, written = self.cache_write_tokens, new.cache_creation_input_tokens
        creation = known if written is None else bounded_count(written)
        one_hour = self.cache_write_1h_tokens
        if new.cache_creation:
            try:
                written = _cache_creation.decode(new.cache_creation).ephemeral_1h_input_tokens
            except UNREADABLE:
                written = None
            one_hour = one_hour if written is None else bounded_count(written)
        return TokenUsage(fresh, output, cache_read, creation, one_hour)

    def updated_from_openai(self, usage: msgspec.Raw | None) -> TokenUsage:
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
        output = self.output_tokens if written is None else bounded_count(written)
        if whole is None:
            return TokenUsage(self.input_tokens, output)
        fresh = bounded_count(whole - cache_read - cache_written)
        return TokenUsage(fresh, output, cache_read, cache_written)

    def at_least_possible(
        self, sent: bytes | bytearray, estimated_input: int, least_output: int, *, whole: bool
    ) -> TokenUsage:
        """These counts, or an estimate where they say less than is possible.

        `sent` is the body of the request, `least_output` what came of its answer. An answer that
        is not `whole` has no last count: there what came counts.
        """
        counted = self.input_tokens + self.cache_read_tokens + self.cache_write_tokens
        fresh, output = self.input_tokens, self.output_tokens
        if counted * _MOST_BYTES_PER_TOKEN < len(sent) and (
            not counted or not any(mark in sent for mark in _DENSE)
        ):
            fresh = max(fresh, bounded_count(estimated_input) - counted)
        if not whole or output < least_output * _LEAST_REPORTED:
            output = max(output, least_output)
        return replace(self, input_tokens=fresh, output_tokens=output)

    def to_anthropic(self) -> dict[str, int]:
        """The counts as Anthropic's `usage` object."""
        return {
            "input_tokens": self.input_tokens,
            "cache_creation_input_tokens": self.cache_write_tokens,
            "cache_read_input_tokens": self.cache_read_tokens,
            "output_tokens": self.output_tokens,
        }
