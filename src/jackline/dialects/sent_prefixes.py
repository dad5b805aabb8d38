"""Know which beginnings of prompts were sent, and so how much of one a cache can hold.

Rules: (1) pure; a prompt is its tools, system and messages, in that order, without cache marks,
which move from call to call; (2) beginnings are compared at the end of each message and every few
thousand bytes, as hashes: no text is kept; (3) of a whole earlier prompt a cache can hold what its
call was counted for, its answer included; of a part of one the part of that by size, and half as
much again, because texts differ in tokens; (4) what others have sent counts from when it was sent:
siblings may be answered in any order; (5) bounded: what was not sent for longer than a cache lives,
or for longest, is dropped, and counts as never sent.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from itertools import count
from typing import NamedTuple

import msgspec

from jackline.dialects.json_bounds import UNREADABLE
from jackline.dialects.token_usage import TokenUsage

# No vendor's cache that is written without a further charge lives for longer.
LIFE = 3600.0
_STEP = 4096
_MOST_BEGINNINGS = 100_000
_TO_SPARE = 1.5
# Of a prompt that is not answered yet.
_FEWEST_BYTES_PER_TOKEN = 2
# Vendors count in blocks, and add words of their own.
_ROUNDING, _ROUNDING_TOKENS = 0.04, 128
_MARK = re.compile(rb'"cache_control"\s?:\s?\{[^{}]{0,100}\}')
_PARTS = ("tools", "system", "instructions")
_CONVERSATIONS = ("messages", "input")
_Fields = dict[str, msgspec.Raw]
_fields = msgspec.json.Decoder(_Fields)
_items = msgspec.json.Decoder(list[msgspec.Raw])


class _Sent(NamedTuple):
    tokens: int
    is_whole: bool
    at: float
    call: int
    by_others: bool = False


class SentCall(NamedTuple):
    """One call under way, and the beginnings of its prompt by their names, with their lengths."""

    number: int
    beginnings: list[tuple[bytes, int]]


class SentPrefixes:
    """The beginnings of all prompts that were sent to some models."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, _Sent] = OrderedDict()
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, model: str, body: bytes, now: float) -> SentCall:
        """Remember what is sent from now on; siblings may be answered before it is."""
        call = SentCall(next(self._numbers), list(_beginnings(model, body)))
        for name, length in call.beginnings:
            old = self._known.pop(name, None)
            if old is None or now - old.at > LIFE:
                most = length // _FEWEST_BYTES_PER_TOKEN
                self._known[name] = _Sent(most, is_whole=False, at=now, call=call.number)
            else:
                self._known[name] = old._replace(at=now, by_others=True)
        while len(self._known) > _MOST_BEGINNINGS:
            self._known.popitem(last=False)
        return call

    def counted(self, call: SentCall, usage: TokenUsage, now: float) -> TokenUsage:
        """The usage of a call, with no more read from the cache than can be in it.

        The rest counts as fresh input.
        """
        return read_as_fresh(usage, self.unsent(call, usage, now))

    def unsent(self, call: SentCall, usage: TokenUsage, now: float, attempts: int = 1) -> int:
        """How many of the tokens that were read from the cache can not have been in it.

        A call of several attempts may have read what its first ones have written.
        """
        most = 0
        for name, _ in reversed(call.beginnings):
            known = self._known.get(name)
            if known is not None and (known.by_others or known.call != call.number):
                most = known.tokens
                break
        total = usage.total - usage.output_tokens
        self._learn(call, total, usage.output_tokens, now)
        most += int(total * _ROUNDING) + _ROUNDING_TOKENS
        if attempts > 1:
            most += total - usage.cache_read_tokens
        return max(0, usage.cache_read_tokens - most)

    def _learn(self, call: SentCall, total: int, output: int, now: float) -> None:
        last, size = call.beginnings[-1] if call.beginnings else (b"", 0)
        for name, length in call.beginnings:
            known = self._known.get(name)
            if known is None:
                continue
            if name == last:
                tokens = total + output
            elif known.is_whole:
                continue
            else:
                tokens = min(total, int(_TO_SPARE * total * length / size))
            self._known[name] = known._replace(tokens=tokens, is_whole=name == last, at=now)


def read_as_fresh(usage: TokenUsage, tokens: int) -> TokenUsage:
    """The usage, with so many tokens less read from the cache and more fresh."""
    tokens = min(tokens, usage.cache_read_tokens)
    if not tokens:
        return usage
    return msgspec.structs.replace(
        usage,
        input_tokens=usage.input_tokens + tokens,
        cache_read_tokens=usage.cache_read_tokens - tokens,
    )


def _beginnings(model: str, body: bytes) -> Iterator[tuple[bytes, int]]:
    """A name for each beginning of the prompt, and how long it is."""
    try:
        fields = _fields.decode(body)
    except UNREADABLE:
        return
    digest, length = blake2b(model.encode(), digest_size=12), 0
    for piece in _pieces(fields):
        plain = _without_marks(piece)
        for at in range(0, len(plain), _STEP):
            part = plain[at : at + _STEP]
            digest.update(part)
            length += len(part)
            yield digest.digest(), length


def _without_marks(piece: bytes) -> bytes:
    if b'"cache_control"' not in piece:
        return piece
    parts, left_at = [], 0
    for mark in _MARK.finditer(piece):
        parts.append(piece[left_at : mark.start()].rstrip(b", "))
        left_at = mark.end()
    return b"".join((*parts, piece[left_at:]))


def _pieces(fields: _Fields) -> Iterator[bytes]:
    for name in _PARTS:
        if name in fields:
            yield bytes(fields[name])
    for name in _CONVERSATIONS:
        if name not in fields:
            continue
        try:
            for item in _items.decode(fields[name]):
                yield bytes(item)
        except UNREADABLE:
            yield bytes(fields[name])
