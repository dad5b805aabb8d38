"""Count what the next call sends, before it is sent: roughly, and at most.

Rules: (1) pure; (2) the vendor's own count of the conversation so far goes before ours; (3) the
upper bound is one token for each byte, since no tokenizer makes more of a text; pictures and the
vendor's hidden words about tools, which bytes do not tell, are counted at their most.
"""

from __future__ import annotations

from jackline.agents.messages.conversation import Conversation
from jackline.agents.messages.defaults import CHARACTERS_PER_TOKEN
from jackline.agents.messages.shortening import weight
from jackline.agents.ports import NextCall
from jackline.agents.task import JsonObject

_HIDDEN = 1_000
"""Tokens that a vendor adds to every call; Anthropic documents up to 804, for tools."""

_PICTURE = 5_000
"""Tokens; Anthropic scales larger pictures down to 4,784."""


def next_call(body: JsonObject, max_tokens: int, talk: Conversation) -> NextCall:
    """The call as far as it is known beforehand."""
    return NextCall(
        str(body["model"]),
        max_tokens,
        lambda: _rough_input(body, talk),
        lambda: _most_input(body, talk),
    )


def _rough_input(body: JsonObject, talk: Conversation) -> int:
    if talk.counted:
        return talk.counted + weight(talk.said) // CHARACTERS_PER_TOKEN
    return weight(body) // CHARACTERS_PER_TOKEN


def _most_input(body: JsonObject, talk: Conversation) -> int:
    most = _most_tokens(body)
    if talk.counted:
        most = min(most, talk.counted + _most_tokens(talk.said))
    return most + _HIDDEN


def _most_tokens(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, dict):
        if value.get("type") == "base64" and str(value.get("media_type")).startswith("image/"):
            return _PICTURE
        # Four for the marks around and between the two.
        return sum(_most_tokens(key) + _most_tokens(each) + 4 for key, each in value.items())
    if isinstance(value, list):
        return sum(_most_tokens(each) + 1 for each in value)
    return len(str(value))
