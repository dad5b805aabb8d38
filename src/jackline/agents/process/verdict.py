"""Say what one process of an agent program came to.

Laws: (1) `Done` only for an answer that is there and whole; (2) `Failed` carries a classified
failure; (3) `Incomplete` is a work that ended well but for an answer, or a part, that is owed.
Not here: judging (claude_code/, codex/), what is done about it (carrying.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from jackline.agents.outcome import Ending
from jackline.failures import Failure


@dataclass(frozen=True, slots=True)
class Done:
    """The answer: its text, and where a schema was asked for what was given by it."""

    text: str
    given: object = None


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Something is owed: `ask` says so to the agent, `says` to a person."""

    ask: str
    says: str
    ending: Ending = Ending.SCHEMA
    """What it ends with when it stays owed."""
    raw: str = ""
    """What was given in place of a valid answer, as it came."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, and what was seen of the reason."""

    failure: Failure
    says: str
    status: int | None = None
    request_id: str | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Broken:
    """The program itself ended without a last word: killed, crashed, or never started."""

    says: str
    ending: Ending = Ending.CRASH


Verdict: TypeAlias = Done | Incomplete | Failed | Broken
