"""Change the cache marks of an Anthropic request from five minutes to one hour.

Rules: (1) nothing but the `ttl` of marks changes: every other byte stays as the client wrote it;
(2) all marks of a request or none, since the vendor refuses one of an hour after one of five
minutes; (3) no mark is added or removed; (4) a `cache_control` in a text, or in the input or
result of a tool, is no mark; (5) whatever is not understood leaves the whole request unchanged:
the vendor says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from jackline.dialects.json_bounds import UNREADABLE

# Inside a JSON string a quote has a backslash before it, so these are keys and never text.
_KEY = re.compile(rb'"cache_control"\s*:\s*')
_NAME = b'"cache_control"'
_FLAT_OBJECT = re.compile(rb"\{[^{}]*\}")
_TTL = re.compile(rb'"ttl"\s*:\s*("5m")')
# Text of the model or the user, where the same key means nothing.
_FOREIGN = frozenset({"input", "input_schema", "input_examples", "metadata"})
# Tool results and documents contain blocks.
_HOLDS_BLOCKS = frozenset({"content", "source"})
_LISTS = frozenset({"tools", "system", "messages"})
# Blocks in blocks: a document in a tool result is the deepest that vendors accept.
_DEEPEST = 8

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_mark = msgspec.json.Decoder(dict[str, object])


def with_hour_marks(body: bytes | bytearray) -> bytes | bytearray:
    """The body with cache marks of one hour; the same object when nothing changes."""
    keys = _keys(body)
    if not keys:
        return body
    try:
        is_mark = _marks(_members.decode(body), 0)
        changes = [
            change
            # Not as many: a key is written twice, or with escapes.
            for key, counts in zip(keys, is_mark, strict=True)
            if counts and (change := _change(body, key)) is not None
        ]
    except UNREADABLE:
        return body
    if not changes:
        return body
    pieces: list[bytes | bytearray] = []
    at = 0
    for start, end, text in changes:
        pieces += (body[at:start], text)
        at = end
    return b"".join((*pieces, body[at:]))


def _keys(body: bytes | bytearray) -> list[int]:
    """Where the value of each `cache_control` begins."""
    found = []
    at = body.find(_NAME)
    while at >= 0:
        key = _KEY.match(body, at)
        if key is not None:
            found.append(key.end())
        at = body.find(_NAME, at + len(_NAME))
    return found


def _marks(members: Mapping[str, msgspec.Raw], depth: int) -> Iterator[bool]:
    """For each `cache_control` in an object, in order: whether it is a mark.

    ValueError for one at an unknown place.
    """
    for name, value in members.items():
        if name == "cache_control":
            yield True
            continue
        text = bytes(value)
        if _NAME not in text:
            continue  # a plain search is many times faster than a pattern
        found = len(_keys(text))
        if not found:
            continue
        if name in _FOREIGN:
            yield from [False] * found
        elif name in (_LISTS if depth == 0 else _HOLDS_BLOCKS) and depth < _DEEPEST:
            for block in (value,) if text.startswith(b"{") else _items.decode(value):
                if bytes(block).startswith(b"{"):
                    yield from _marks(_members.decode(block), depth + 1)
        else:
            raise ValueError


def _change(body: bytes | bytearray, start: int) -> tuple[int, int, bytes] | None:
    """Start, end and new text for the mark at a place; None when it needs no change."""
    if body.startswith(b"null", start):
        return None
    written = _FLAT_OBJECT.match(body, start)
    if written is None:
        raise ValueError
    mark = _mark.decode(written[0])
    if mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
        raise ValueError
    if "ttl" not in mark:
        end = written.start() + len(written[0].rstrip(b"} \t\r\n"))
        return end, end, b',"ttl":"1h"'
    if mark["ttl"] == "1h":
        return None
    ttl = _TTL.search(written[0])
    if ttl is None:
        raise ValueError
    return start + ttl.start(1), start + ttl.end(1), b'"1h"'
