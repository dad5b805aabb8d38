"""Count what an answer cost, in the four kinds of tokens that Anthropic tells apart.

Laws: (1) a value that was not told, or not understood, is not a zero: the last one told stands.
Not here: prices, and what a lane makes of the counts (lanes/).
"""

from __future__ import annotations

import msgspec


class TokensUsed(msgspec.Struct, frozen=True):
    """Fresh input, output, input read from the cache, input written to the cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_creation: int = 0

    def __add__(self, other: TokensUsed) -> TokensUsed:
        return TokensUsed(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_creation + other.cache_creation,
        )


class UsageTold(msgspec.Struct):
    """A `usage` object as it is written."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


_told = msgspec.json.Decoder(UsageTold)


def updated(known: TokensUsed, usage: msgspec.Raw) -> TokensUsed:
    """What is known after a `usage` object was read; one that makes no sense changes nothing."""
    try:
        told = _told.decode(usage)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # An answer is not worth less because its bill cannot be read.
        return known
    return updated_by(known, told)


def updated_by(known: TokensUsed, told: UsageTold) -> TokensUsed:
    """What is known after this was told."""
    return TokensUsed(
        known.input if told.input_tokens is None else told.input_tokens,
        known.output if told.output_tokens is None else told.output_tokens,
        known.cache_read if told.cache_read_input_tokens is None else told.cache_read_input_tokens,
        known.cache_creation
        if told.cache_creation_input_tokens is None
        else told.cache_creation_input_tokens,
    )
