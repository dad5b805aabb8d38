"""Name what prompt caches may hold of a request: its conversation, and the prefix that it shares.

Rules: (1) names only: nothing of a prompt can be read from them; (2) the body is searched, not
decoded, and only where the answer matters: a wrong name costs a wrong guess of a price, which the
next answer corrects; (3) a conversation is named by who asks and by its first message: whatever
changes that loses the cache, too; (4) a prefix without a mark for caching has no name.
Not here: what is cached (lanes/prompt_caches.py).
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import NamedTuple

from jackline.gateway.identity import Who
from jackline.lanes.prompt_caches import is_worth_sharing

_LETTERS_PER_TOKEN = 4
_MARK = b'"cache_control"'
# So much of the first message is looked at, and so much of it tells conversations apart: marks that
# stand in the first and are left out, whole or cut in two, must not change the second.
_BEGINNING = 2048
_TOLD_APART_BY = 1700
_MARK_WRITTEN = re.compile(rb',?"cache_control"\s*:\s*\{[^{}]*\}')
# Claude Code writes this anew for each conversation; reports differ on whether its vendor's cache
# leaves it out, too.
_BILLING = re.compile(rb'x-anthropic-billing-header:[^"]*')
_MESSAGES = re.compile(rb'"messages"\s*:\s*\[')
_SPOKEN = b'"assistant"'
_ANSWERED = re.compile(rb'"role"\s*:\s*"assistant"')
_HEADS = (b'"system":[', b'"system": [', b'"tools":[', b'"tools": [')
_BEHIND = re.compile(rb'"(?:messages|metadata)"\s*:')
_first_of = json.JSONDecoder().raw_decode


class Prefix(NamedTuple):
    """The tools and instructions of a request; no name where they are not to be cached."""

    name: str = ""
    tokens: int = 0


NO_PREFIX = Prefix()


def conversation_of(who: Who | None, body: bytes | bytearray) -> str:
    """What the request goes on with; empty where its client asks for no caching.

    A session asks more under its id than its conversation: prompts of hooks, titles, summaries.
    What a cache holds of one is nothing to the other; their first messages tell them apart.
    """
    if who is None and body.rfind(_MARK) < 0:
        return ""
    first = _first_message(body)
    if who is None:
        return first
    return f"{who[0]}/{who[1] or ''}/{first}"


def begins_conversation(body: bytes | bytearray) -> bool:
    """Whether the model has not spoken yet; where it has, that stands near the beginning."""
    # Finding a word takes half the time of matching a pattern in a long first message.
    return body.find(_SPOKEN) < 0 or _ANSWERED.search(body) is None


def _first_message(body: bytes | bytearray) -> str:
    found = _MESSAGES.search(body)
    if found is None:
        return ""
    beginning = bytes(body[found.end() : found.end() + _BEGINNING])
    # The mark moves on with each turn; the first message stays.
    if _MARK in beginning:
        beginning = _MARK_WRITTEN.sub(b"", beginning)
    # One letter for each byte, whatever they mean: so a cut falls where it was counted.
    text = beginning.decode("latin-1")
    try:
        _, end = _first_of(text)
    except (ValueError, RecursionError):
        end = len(text)  # it is longer than what is looked at
    return _digest(text[: min(end, _TOLD_APART_BY)].encode("latin-1"))


def prefix_of(body: bytes | bytearray) -> Prefix:
    """What the request shares with others that have the same tools and instructions."""
    starts = [at for head in _HEADS if (at := body.rfind(head)) >= 0]
    if not starts:
        return NO_PREFIX
    behind = _BEHIND.search(body, min(starts))
    part = bytes(body[min(starts) : behind.start() if behind else len(body)])
    tokens = len(part) // _LETTERS_PER_TOKEN
    if _MARK not in part or not is_worth_sharing(tokens):
        return NO_PREFIX
    return Prefix(_digest(_BILLING.sub(b"", part)), tokens)


def _digest(part: bytes) -> str:
    return hashlib.blake2b(part, digest_size=12).hexdigest()
