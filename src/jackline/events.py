"""Announce facts as they happen, to whoever listens.

Laws: (1) an event is an immutable fact in the past tense; (2) whoever announces does not know who
listens, and works the same when nobody does; (3) no event holds a prompt, an answer or a secret.
Not here: storing events (journal/), showing them (cli/, dashboard/).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class TranscriptsRead:
    """So much of the asked-for transcripts has been read by now."""

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int


Event: TypeAlias = TranscriptsRead
Announce: TypeAlias = Callable[[Event], None]


def to_nobody(_event: Event) -> None:
    """Listen to nothing: the default audience."""
