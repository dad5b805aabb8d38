"""Change what Claude would refuse in a conversation with foreign turns, and nothing else.

Laws: (1) when nothing is wrong, the very same bytes come back; (2) messages without a fault are
carried byte for byte, so that the vendor's cache still knows them; (3) a call and its result change
their id together; (4) what cannot be read is left for the vendor to refuse.
Not here: which blocks are at fault (blocks.py), when a conversation returns (calls/).
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

import msgspec

from jackline.dialects.neutral.account import UNREADABLE, Notes, Translated
from jackline.dialects.returning.blocks import BlockFitter, Json
from jackline.dialects.returning.thinking_turn import without_thinking_if_needed

_top = msgspec.json.Decoder(dict[str, msgspec.Raw])
_messages = msgspec.json.Decoder(list[msgspec.Raw])


class _Message(msgspec.Struct):
    role: str
    content: list[msgspec.Raw] | str | None = None


_message = msgspec.json.Decoder(_Message)
_any = msgspec.json.Decoder(dict[str, object])


def fit_for_claude(
    body: bytes | bytearray,
    *,
    distrust_thinking: bool = False,
    refused: Container[str] = (),
) -> Translated:
    """The request as Claude takes it.

    `distrust_thinking` drops every thinking block: for when the vendor has said that a signature
    is invalid, which cannot be seen from outside. `refused` are signatures that it said so of.
    """
    whole = bytes(body)
    notes = Notes()
    try:
        whole.decode()
        top = _top.decode(whole)
        kept = _messages.decode(top["messages"])
        fitter = BlockFitter(notes, distrust_thinking=distrust_thinking, refused=refused)
        messages = _fitted(kept, fitter)
        changed = without_thinking_if_needed(top, messages, notes)
    except (*UNREADABLE, KeyError):
        return Translated(whole)
    if not notes.told():
        return Translated(whole)
    told: dict[str, msgspec.Raw | list[msgspec.Raw]] = {**changed, "messages": messages}
    return Translated(msgspec.json.encode(told), notes.told())


class _Joint(NamedTuple):
    """Messages that become one: the first of them, and the blocks of all."""

    first: msgspec.Raw
    blocks: list[msgspec.Raw | Json]


def _fitted(kept: list[msgspec.Raw], fitter: BlockFitter) -> list[msgspec.Raw]:
    """The messages; those that lost all they said are gone, and their neighbours are one."""
    fitter.notes.count_objects(len(kept))
    messages: list[msgspec.Raw | _Joint] = []
    fallen, last_role = False, ""
    for place, raw in enumerate(kept):
        message = _message.decode(raw)
        content = _fitted_content(message, fitter, f"messages[{place}].content")
        if content is None:
            fitted = raw
        elif content:
            fitted = _with_content(raw, content)
        else:
            fallen = True
            continue
        if fallen and messages and message.role == last_role:
            last = messages[-1]
            if not isinstance(last, _Joint):
                last = messages[-1] = _Joint(last, _blocks(last))
            # Written only once, however many follow: each time anew would cost their square.
            last.blocks.extend(_blocks(fitted))
        else:
            messages.append(fitted)
        fallen, last_role = False, message.role
    return [_with_content(*each) if isinstance(each, _Joint) else each for each in messages]


def _fitted_content(
    message: _Message, fitter: BlockFitter, at: str
) -> list[msgspec.Raw | Json] | None:
    """What the message says now; None when nothing was wrong with it."""
    content = message.content
    if isinstance(content, list):
        return fitter.fit(content, at)
    if content is None or content.strip() or message.role == "system":
        return None
    fitter.notes.add(at, "an empty message says nothing")
    return []


def _with_content(raw: msgspec.Raw, content: list[msgspec.Raw | Json]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({**_any.decode(raw), "content": content}))


def _blocks(raw: msgspec.Raw) -> list[msgspec.Raw | Json]:
    content = _message.decode(raw).content
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [*(content or ())]
