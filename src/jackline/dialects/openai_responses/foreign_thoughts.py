"""Take encrypted thoughts out of a Responses request, for a server that did not make them.

Laws: (1) all else stays as it is written; (2) what is left out is noted; (3) what cannot be read is
left for the vendor to refuse.
Not here: when that is needed (providers/mending.py).
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from jackline.dialects.neutral.account import UNREADABLE, Notes, Translated


class _Item(msgspec.Struct):
    type: str | None = None
    encrypted_content: str | None = None


_top = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_item = msgspec.json.Decoder(_Item)


def without_reasoning(body: bytes | bytearray, refused: Container[str] | None = None) -> Translated:
    """The request without its thoughts, or without those that are known to be `refused`."""
    whole = bytes(body)
    notes = Notes()
    kept: list[msgspec.Raw] = []
    try:
        top = _top.decode(whole)
        items = _items.decode(top["input"])
        notes.count_objects(len(items))
        for place, raw in enumerate(items):
            item = _item.decode(raw)
            known = refused is None or (item.encrypted_content or "") in refused
            if item.type == "reasoning" and known:
                notes.add(f"input[{place}]", "a thought that another server has encrypted")
            else:
                kept.append(raw)
    except (*UNREADABLE, KeyError):
        return Translated(whole)
    if not notes.told():
        return Translated(whole)
    return Translated(msgspec.json.encode({**top, "input": kept}), notes.told())
