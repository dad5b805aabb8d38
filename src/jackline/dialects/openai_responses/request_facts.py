"""Read the few facts of a Responses request that the way of a call depends on.

Laws: as in anthropic_request.py: the body is never changed, and one that cannot be read gives no
facts and no exception.
Not here: what is asked.
"""

from __future__ import annotations

import msgspec

from jackline.dialects.anthropic_request import RequestFacts

_LETTERS_PER_TOKEN = 4


class _Asked(msgspec.Struct):
    model: str | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None


_asked = msgspec.json.Decoder(_Asked)


def read_responses_request(body: bytes | bytearray) -> RequestFacts:
    """Model, streaming and sizes."""
    size = len(body) // _LETTERS_PER_TOKEN
    try:
        asked = _asked.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return RequestFacts(None, False, 0, size)
    return RequestFacts(asked.model, bool(asked.stream), max(0, asked.max_output_tokens or 0), size)
