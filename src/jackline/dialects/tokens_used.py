"""Count what an answer cost, in the four kinds of tokens that Anthropic distinguishes.

Rules: (1) a value that is missing, or not understood, is not a zero: the last known one remains;
(2) JSON numbers have any size, counts do not: each is brought between 0 and `MOST_TOKENS`.
Not here: prices, and what a lane does with the counts (lanes/).
"""

from __future__ import annotations

import msgspec

# More than any model reads or writes in one call, and little enough to be added up and multiplied.
MOST_TOKENS = 1_000_000_000


def bounded_count(number: int) -> int:
    """A count of tokens that someone else wrote, as one that can be calculated with."""
    return min(max(0, number), MOST_TOKENS)


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


class UsageFields(msgspec.Struct):
    """A `usage` object as it is written."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    # Read on its own: what cannot be read of it makes the rest no worse.
    cache_creation: msgspec.Raw = msgspec.Raw(b"")


class _Lives(msgspec.Struct):
    """What was written to the cache, by how long it lives."""

    ephemeral_1h_input_tokens: int | None = None


_lives = msgspec.json.Decoder(_Lives)
_told = msgspec.json.Decoder(UsageFields)


def updated(known: TokensUsed, usage: msgspec.Raw) -> TokensUsed:
    """What is known after a `usage` object was read; one that makes no sense changes nothing."""
    try:
        told = _told.decode(usage)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # An answer is not worth less because its bill cannot be read.
        return known
    return updated_by(known, told)


def updated_by(known: TokensUsed, told: UsageFields) -> TokensUsed:
    """What is known after this was told."""
    return TokensUsed(
        _latest(known.input, told.input_tokens),
        _latest(known.output, told.output_tokens),
        _latest(known.cache_read, told.cache_read_input_tokens),
        _latest(known.cache_creation, told.cache_creation_input_tokens),
        known.cache_creation_1h if not told.cache_creation else _written_1h(known, told),
    )


def _written_1h(known: TokensUsed, told: UsageFields) -> int:
    try:
        return _latest(
            known.cache_creation_1h, _lives.decode(told.cache_creation).ephemeral_1h_input_tokens
        )
    except (msgspec.DecodeError, ValueError, RecursionError):
        return known.cache_creation_1h


def _latest(known: int, told: int | None) -> int:
    return known if told is None else bounded_count(told)
