"""Bound the work that a caller's JSON can cause: its number of values, and its last items.

Rules: (1) nothing here builds an object for each value of a document; (2) the number of values is
estimated by the commas, of which there are at least as many, strings included; (3) the last items
of an array are found from its end, within a number of steps, however many are before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
"""What a decoder raises for bytes that it cannot read."""
MOST_VALUES = 1_000_000
"""Of one request. A comma of a text is a token or a part of one: no model reads so many."""
MOST_OBJECTS = 100_000
"""Of a conversation that is read message by message; Anthropic accepts no more messages."""

_FEWEST_BYTES = 2 * MOST_VALUES
# Tokens of JSON, and escaped quotes: more than any last message of a real conversation has.
_MOST_STEPS = 100_000
# Searched together between two strings.
_WINDOW = 16 * 1024
_STRUCTURE = re.compile(rb"[\[\]{},]")
_BLANK = b" \t\r\n"


def has_too_many_values(body: bytes | bytearray) -> bool:
    """Whether a document must be refused without reading it; most are too short to be searched."""
    return len(body) > _FEWEST_BYTES and body.count(b",") > MOST_VALUES


def count_values(body: bytes | bytearray) -> int:
    """At least as many values as decoding makes, those inside of others included."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def last_items(array: bytes) -> Iterator[bytes]:
    """The items of an array of valid JSON, the last one first; none of what is no array.

    It ends early when an item takes too many steps to find.
    """
    text = array.strip(_BLANK)
    if text[:1] != b"[" or not text[1:-1].strip(_BLANK):
        return
    # Everything before `at` and after `quote` is outside of strings.
    end = at = len(text) - 1
    quote = text.rfind(b'"', 0, at)
    depth = steps = 0
    while steps < _MOST_STEPS:
        begin = max(1, quote + 1, at - _WINDOW)
        for found in reversed([*_STRUCTURE.finditer(text, begin, at)]):
            steps += 1
            match found[0]:
                case b",":
                    if not depth:
                        yield text[found.end() : end].strip(_BLANK)
                        end = found.start()
                case b"]" | b"}":
                    depth += 1
                case _:
                    depth -= 1
        at = begin
        if at == 1:
            yield text[1:end].strip(_BLANK)
            return
        if at == quote + 1:
            at, searched = _string_begin(text, quote, _MOST_STEPS - steps)
            steps += searched
            quote = text.rfind(b'"', 0, at)


def _string_begin(text: bytes, closing: int, most: int) -> tuple[int, int]:
    """Where the string begins that ends with this quote, and how many quotes were searched."""
    at = closing
    for step in range(1, most + 1):
        at = text.rfind(b'"', 0, at)
        size = 64
        while True:
            before = text[max(0, at - size) : at]
            escapes = len(before) - len(before.rstrip(b"\\"))
            if escapes < len(before) or size > at:
                break
            size *= 2  # all of them are backslashes: an odd number escapes the quote
        if not escapes % 2:
            return at, step
    return at, most
