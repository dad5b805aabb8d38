"""Bound the work that a caller's JSON can make: how many values it may have, and its last items.

Rules: (1) nothing here builds an object for each value of a document; (2) the number of values is
judged by the commas, of which there are at least as many, strings included; (3) the last items of
an array are found from its end, within a number of steps, however many stand before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_VALUES = 1_000_000
"""Of one request. A comma of a text is a token or a part of one: no model reads so many."""
MOST_OBJECTS = 100_000
"""Of a conversation that is read message by message; Anthropic takes no more messages than that."""

_FEWEST_BYTES = 2 * MOST_VALUES
# Tokens of JSON, and escaped quotes: more than any last message of a real conversation has.
_MOST_STEPS = 100_000
_FIRST_WINDOW = 64 * 1024
# All of these read the array backwards, from its mirror image: there a string begins with its
# closing quote, and the backslashes that escape a quote follow it.
_NEXT = re.compile(rb'[^"\[\]{},]*+(["\[\]{},])')
_NEXT_WITHIN = re.compile(rb'[^"\[\]{}]*+(["\[\]{}])')
_QUOTE = re.compile(rb'[^"]*+"(\\*+)')
_BLANK = b" \t\r\n"


def has_too_many_values(body: bytes | bytearray) -> bool:
    """Whether a document is refused unread; most are too short to be looked at for that."""
    return len(body) > _FEWEST_BYTES and body.count(b",") > MOST_VALUES


def last_items(array: bytes) -> Iterator[bytes]:
    """The items of an array of valid JSON, the last one first; none of what is no array.

    It ends early where an item takes too many steps to find.
    """
    text = array.strip(_BLANK)
    if text[:1] != b"[" or not text[1:-1].strip(_BLANK):
        return
    end, steps = len(text) - 1, 0
    window = _FIRST_WINDOW
    while steps < _MOST_STEPS:
        begin = max(1, end - window)
        mirror = text[begin:end][::-1]
        at = 0
        while True:
            found, taken = _item_end(mirror, at, _MOST_STEPS - steps)
            steps += taken
            if found is None:
                break
            yield mirror[at:found][::-1].strip(_BLANK)
            at = found + 1
        if steps >= _MOST_STEPS:
            return
        end -= at
        if begin == 1:
            yield text[1:end].strip(_BLANK)
            return
        # Its beginning is further in front. Twice as much each time, so that all of it together
        # is not looked at more than twice.
        window = 2 * window if at == 0 else window


def _item_end(mirror: bytes, at: int, most: int) -> tuple[int | None, int]:
    """Where the comma in front of an item stands in the mirror, or None; and the steps taken."""
    depth = steps = 0
    while steps < most:
        steps += 1
        found = (_NEXT_WITHIN if depth else _NEXT).match(mirror, at)
        if found is None:
            return None, steps
        at = found.end()
        match found[1]:
            case b",":
                return at - 1, steps
            case b'"':
                while steps < most:
                    steps += 1
                    quote = _QUOTE.match(mirror, at)
                    if quote is None or quote.end() == len(mirror):
                        return None, steps  # cut off, perhaps in the middle of backslashes
                    at = quote.end()
                    if not len(quote[1]) % 2:
                        break
            case b"]" | b"}":
                depth += 1
            case _:
                depth -= 1
    return None, steps
