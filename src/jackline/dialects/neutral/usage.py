"""Count what a foreign answer cost in Anthropic's kinds of tokens.

Laws: (1) input that was read from or written to a cache is counted apart, as Anthropic does, and
never twice; (2) a bill that cannot be read changes nothing.
Not here: prices; Anthropic's own bills (tokens_used.py).
"""

from __future__ import annotations

import msgspec

from jackline.dialects.neutral.account import UNREADABLE
from jackline.dialects.tokens_used import TokensUsed, bounded_count


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Bill(msgspec.Struct):
    """Both dialects' names for the same things, and one of a server that counts on its own."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None


_bill = msgspec.json.Decoder(_Bill)


def foreign_usage(known: TokensUsed, usage: msgspec.Raw | None) -> TokensUsed:
    """What is known after a `usage` object of either dialect was read."""
    if usage is None:
        return known
    try:
        bill = _bill.decode(usage)
    except UNREADABLE:
        # An answer is not worth less because its bill cannot be read.
        return known
    whole = bill.prompt_tokens if bill.prompt_tokens is not None else bill.input_tokens
    said = bill.completion_tokens if bill.completion_tokens is not None else bill.output_tokens
    details = bill.prompt_tokens_details or bill.input_tokens_details or _Details()
    read = bounded_count(details.cached_tokens or bill.prompt_cache_hit_tokens or 0)
    written = bounded_count(details.cache_write_tokens or 0)
    output = known.output if said is None else bounded_count(said)
    if whole is None:
        return TokensUsed(known.input, output)
    return TokensUsed(bounded_count(whole - read - written), output, read, written)


def told_usage(usage: TokensUsed) -> dict[str, int]:
    """The bill in Anthropic's words."""
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_creation,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }
