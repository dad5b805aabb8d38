"""Keep names that come from outside short and printable: of sessions, agents, tools, requests.

Rules: (1) every such name is cut here and nowhere else before it is saved or shown; (2) two names
that differ still differ after they were cut; (3) what is left holds no control character, so that a
name cannot steer a terminal or forge a line of a log; (4) text from a store, a path or a message,
which somebody else may have written, goes through `printable` before a terminal gets it. The name
of a model is never cut, since it decides about lanes and prices: a wrong one is refused
(`problem_of_model`); nor is a path, since it decides about a place: one that is too long for the
system is refused before it is followed, which takes the square of its length (`is_long_path`).
"""

from __future__ import annotations

import hashlib

LONGEST_NAME = 200
LONGEST_MODEL = 512
LONGEST_PATH = 4_096
"""In bytes; no system of ours takes longer ones."""
_MARK = "~"
_DIGEST_BYTES = 8


def printable(text: str, *, keep: str = "") -> str:
    """The text with all that would steer a terminal, or hide a part, written out; but `keep`."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


def problem_of_model(name: str) -> str | None:
    """Why a model cannot have this name; None when it can."""
    if len(name) > LONGEST_MODEL:
        return f"the model's name is longer than {LONGEST_MODEL} characters"
    return None if name.isprintable() else "the model's name holds control characters"


def is_long_path(path: str) -> bool:
    """Whether it has more bytes than a path may have."""
    return len(path) > LONGEST_PATH or len(path.encode("utf-8", "replace")) > LONGEST_PATH


def cut_name(name: str) -> str:
    """The name, or its beginning with a fingerprint of all of it."""
    if len(name) <= LONGEST_NAME and name.isprintable():
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).hexdigest()
    begin = name[: LONGEST_NAME - len(digest) - len(_MARK)]
    shown = "".join(sign if sign.isprintable() else "?" for sign in begin)
    return shown + _MARK + digest
