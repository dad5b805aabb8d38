"""Make the ids and names that one side refuses into ones that it takes.

Laws: (1) the same id always becomes the same id, so that calls and results stay bound; (2) an id
that is accepted as it is stays as it is; (3) two ids of one answer never become one; (4) what comes
out is short, however long what came was.
Not here: when an id has to change (the readers and writers of each dialect).
"""

from __future__ import annotations

import re
from hashlib import sha256

CLAUDE_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
# Shorter ids are counters: they come again in the next answer, and Claude wants each only once.
_LEAST_UNIQUE = 16
_DIGITS = 24
_LONGEST_NAME = 64
# Of ids in answers. Ids are a few dozen letters long; the id of an answer is hashed for each of its
# calls, and may not make that dear.
_LONGEST_ID = 256


def digest(*parts: str) -> str:
    """Some letters that stand for these parts."""
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:_DIGITS]


def _bare(foreign: str, *prefixes: str) -> str:
    """The id without the mark of its kind."""
    for prefix in prefixes:
        if foreign.startswith(prefix):
            return foreign.removeprefix(prefix)
    return foreign


def message_id(foreign: str, otherwise: bytes) -> str:
    """Anthropic's kind of id for an answer; from its bytes when it has none."""
    if len(foreign) <= _LONGEST_ID and CLAUDE_ID.fullmatch(foreign):
        return f"msg_{_bare(foreign, 'chatcmpl-', 'resp_', 'resp-', 'msg_')}"
    if foreign:
        return f"msg_{digest(foreign)}"
    return f"msg_{sha256(otherwise).hexdigest()[:_DIGITS]}"


class ToolIds:
    """Ids for the tool calls of one answer."""

    __slots__ = ("_answer", "_used")

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self._used: set[str] = set()

    def of(self, foreign: str) -> str:
        """Anthropic's kind of id for the next call of this answer."""
        own = f"toolu_{_bare(foreign, 'call_', 'toolu_')}"
        if (
            not _LEAST_UNIQUE <= len(foreign) <= _LONGEST_ID
            or not CLAUDE_ID.fullmatch(own)
            or own in self._used
        ):
            own = f"toolu_{digest(self._answer, foreign, str(len(self._used)))}"
        self._used.add(own)
        return own


def call_id(known: str, longest: int) -> str:
    """The id of a call in the other dialect, the same for the call and for its result."""
    return known if 0 < len(known) <= longest else f"call_{digest(known)}"


def tool_name(real: str) -> str:
    """A tool's name as OpenAI takes it: at most 64 plain letters."""
    plain = _NOT_IN_A_NAME.sub("_", real)
    if plain == real and 0 < len(real) <= _LONGEST_NAME:
        return real
    return f"{plain[: _LONGEST_NAME - 9]}_{digest(real)[:8]}"
