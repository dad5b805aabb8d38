"""Write Anthropic's requests as the clouds take them that serve Claude.

Laws: (1) what names the model and the version stands where the cloud wants it; (2) betas that a
cloud does not know are not named there: it would refuse the whole request; (3) what is asked stays
as it is written, but for cache scopes, which exist only at Anthropic's own door.
Not here: addresses and credentials (bedrock.py, vertex.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from jackline.providers.provider import CannotCarryError
from jackline.providers.sent_body import is_true, members_of, plain, raw, written
from jackline.upstream.port import Message

MESSAGES = b"/v1/messages"
COUNT_TOKENS = b"/v1/messages/count_tokens"

_BOTH = frozenset(
    {
        "compact-2026-01-12",
        "computer-use-2025-01-24",
        "computer-use-2025-11-24",
        "context-1m-2025-08-07",
        "context-management-2025-06-27",
        "dangerous-tool-use-2026-09-03",
        "interleaved-thinking-2025-05-14",
        "thinking-binding-controls-2026-08-01",
        "thinking-display-updates-2026-08-18",
        "tool-search-tool-2025-10-19",
    }
)
BEDROCK_BETAS = _BOTH | {
    "effort-2025-11-24",
    "fine-grained-tool-streaming-2025-05-14",
    "mid-conversation-output-config-2026-07-01",
    "mid-conversation-tool-changes-2026-07-01",
    "output-128k-2025-02-19",
    "structured-outputs-2025-11-13",
    "token-efficient-tools-2025-02-19",
    "tool-examples-2025-10-29",
}
VERTEX_BETAS = _BOTH | {
    "compact-2026-09-04",
    "per-turn-control-2026-07-01",
    "web-search-2025-03-05",
}
# The clouds know by their single names what Anthropic's own door gathers under one.
_SINGLE_NAMES: Mapping[str, tuple[str, ...]] = {
    "advanced-tool-use-2025-11-20": ("tool-search-tool-2025-10-19", "tool-examples-2025-10-29"),
}
_WITH_CACHE_MARKS = ("cache_control", "system", "tools", "messages")


class CloudRequest(NamedTuple):
    """The members of a request, without the model, and whether a stream is asked for."""

    members: dict[str, msgspec.Raw]
    stream: bool

    def body(self) -> bytes:
        """The request as it is sent."""
        return written(self.members)


def model_in_path(name: str, safe: str = "") -> str:
    """The name of a model as a part of a path; CannotCarryError for dots alone, which lead away."""
    if not name.strip("."):
        raise CannotCarryError("no model is named by dots alone")
    return quote(name, safe=safe)


def cloud_request(message: Message, version: str) -> CloudRequest:
    """The request for a cloud's version of the protocol; CannotCarryError when it is none."""
    path = message.target.partition(b"?")[0]
    if message.method != b"POST" or path not in (MESSAGES, COUNT_TOKENS):
        raise CannotCarryError("upstreams of this kind take nothing but messages")
    body = plain(message)
    members = members_of(body)
    if members is None:
        raise CannotCarryError("the body is no JSON object")
    members.pop("model", None)
    if b'"scope"' in body:
        for name in _WITH_CACHE_MARKS:
            if name in members:
                members[name] = _without_scopes(name, members[name])
    told = {"anthropic_version": raw(version)}
    told.update((name, value) for name, value in members.items() if name not in told)
    return CloudRequest(told, is_true(members.get("stream")))


def known_betas(betas: Iterable[str], known: frozenset[str]) -> list[str]:
    """The betas that a cloud knows, by its own names."""
    single = [name for beta in betas for name in _SINGLE_NAMES.get(beta, (beta,))]
    return [name for name in dict.fromkeys(single) if name in known]


def _without_scopes(name: str, value: msgspec.Raw) -> msgspec.Raw:
    """The value; only the messages and blocks in which a scope stood are written anew."""
    text = bytes(value)
    if b'"scope"' not in text:
        return value
    if text[:1] == b"[":
        items = msgspec.json.decode(text, type=list[msgspec.Raw])
        return msgspec.Raw(msgspec.json.encode([_item_without_scopes(item) for item in items]))
    if name == "cache_control":
        marked = {"cache_control": msgspec.json.decode(text)}
        return raw(marked["cache_control"]) if _strip(marked) else value
    return _item_without_scopes(value)


def _item_without_scopes(item: msgspec.Raw) -> msgspec.Raw:
    """A message or a block; one whose lists go too deep to be read is left to the cloud."""
    if b'"scope"' not in bytes(item):
        return item
    try:
        found = msgspec.json.decode(item)
        return raw(found) if _strip(found) else item
    except RecursionError:
        return item


def _strip(node: object) -> bool:
    """Take the scopes out of cache marks; tells whether there were any."""
    changed = False
    if isinstance(node, dict):
        mark = node.get("cache_control")
        if isinstance(mark, dict) and mark.pop("scope", None) is not None:
            changed = True
        # What a tool was given to work with is the model's own; it is left alone.
        inner = [value for key, value in node.items() if key not in ("input", "input_schema")]
    else:
        inner = node if isinstance(node, list) else []
    for value in inner:
        changed = _strip(value) or changed
    return changed
