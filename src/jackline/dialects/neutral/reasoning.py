"""Bind a model's encrypted thoughts to the tool calls that they led to.

A model of OpenAI's goes on better after a tool's result when it is given back what it thought
before the call. Only its own server can read that, and Anthropic's dialect has no place for it, so
it is kept here, under the id of the call, and never told to a client.

Laws: (1) a thought belongs to the next call of the same answer; one that no call follows is not
kept, because nobody asks for it again; (2) what is kept goes back as it came; (3) what waits for a
call is bounded: what comes beyond is not kept, and the model thinks anew.
Not here: where it is kept, and for whom (providers/kept_reasoning.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

# Of one answer, until a call follows. A thought has some kilobytes.
_MOST_WAITING = 1_000
_MOST_BYTES = 8 * 1024 * 1024


class Kept(NamedTuple):
    """A thought as an input item; `before_words` tells that words stood between it and the call."""

    item: msgspec.Raw
    before_words: bool


Remember: TypeAlias = Callable[[str, Sequence[Kept]], None]
Recall: TypeAlias = Callable[[str], Sequence[Kept]]


class ReasoningBinder:
    """Follows one answer."""

    __slots__ = ("_before_words", "_bytes", "_remember", "_waiting")

    def __init__(self, remember: Remember | None) -> None:
        self._remember = remember
        self._waiting: list[msgspec.Raw] = []
        self._bytes = 0
        # How many of those that wait were thought before the model last said something.
        self._before_words = 0

    def thought(self, id: str | None, summary: object, encrypted: str | None) -> bool:  # noqa: A002
        """The model has thought; whether this will be kept."""
        if self._remember is None or not encrypted:
            return False
        item = {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted}
        encoded = msgspec.json.encode(item)
        if len(self._waiting) >= _MOST_WAITING or self._bytes + len(encoded) > _MOST_BYTES:
            return False
        self._waiting.append(msgspec.Raw(encoded))
        self._bytes += len(encoded)
        return True

    def words(self) -> None:
        """The model has said something."""
        self._before_words = len(self._waiting)

    def call(self, id: str) -> None:  # noqa: A002
        """The model has called a tool; `id` is what Anthropic's clients know the call by."""
        if self._waiting and self._remember is not None:
            before = self._before_words
            kept = [Kept(item, place < before) for place, item in enumerate(self._waiting)]
            self._waiting, self._before_words, self._bytes = [], 0, 0
            self._remember(id, kept)
