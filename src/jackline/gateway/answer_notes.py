"""Write beside an answer's headers what the gateway has to tell of it.

Laws: (1) every answer has a `request-id`: the vendor's own, else the call's; (2) ours come last, so
that the vendor's keep their order; (3) what an upstream writes under the names of ours is dropped.
Not here: the figures themselves (messages.py, relay.py).
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from itertools import count

from jackline.outside_names import cut_name
from jackline.upstream.port import Headers

# Call ids are unique over restarts by their first part, and cheap by their second.
_THIS_PROCESS = f"jl_{secrets.token_hex(4)}"
_numbers = count(1)
# A shorter wait is written as 0.000.
_NOTHING = 0.0005
_OURS = frozenset(
    b"x-jackline-" + name for name in (b"call", b"lane", b"attempts", b"waited", b"resets-at")
)
_LENGTHS = frozenset(map(len, _OURS))


def new_call_id() -> str:
    """A name for a call that no other call has."""
    return f"{_THIS_PROCESS}{next(_numbers):06x}"


def noted(
    headers: Headers, call: str, lane: str = "", attempts: int = 0, waited: float = 0.0
) -> list[tuple[bytes, bytes]]:
    """The headers with ours behind them."""
    told = list(headers)
    named = call.encode()
    if request_id(headers) is None:
        told.append((b"request-id", named))
    told.append((b"x-jackline-call", named))
    told.append((b"x-jackline-lane", lane.encode("latin-1", "replace")))
    told.append((b"x-jackline-attempts", b"%d" % attempts))
    told.append((b"x-jackline-waited", b"%.3f" % max(0.0, waited)))
    return told


def without_ours(headers: Headers) -> list[tuple[bytes, bytes]]:
    """An upstream's headers without those that only the gateway may write."""
    return [
        pair for pair in headers if len(pair[0]) not in _LENGTHS or pair[0].lower() not in _OURS
    ]


def note_lines(call: str, lane: str, attempts: int, waited: float, *, names_it: bool) -> bytes:
    """Our headers as they are written; `names_it` when the vendor gave no request-id."""
    named = call.encode()
    told = _at_first_try(lane) if attempts == 1 and waited < _NOTHING else b""
    return b"%bx-jackline-call: %b\r\n%b" % (
        b"request-id: %b\r\n" % named if names_it else b"",
        named,
        told or _story_lines(lane, attempts, waited),
    )


def _story_lines(lane: str, attempts: int, waited: float) -> bytes:
    # A lane is named after a model, and that is the client's word: no line end may be in it.
    name = lane.encode("latin-1", "replace").translate(None, b"\r\n\0")
    return b"x-jackline-lane: %b\r\nx-jackline-attempts: %d\r\nx-jackline-waited: %.3f\r\n" % (
        name,
        attempts,
        max(0.0, waited),
    )


@lru_cache(maxsize=256)
def _at_first_try(lane: str) -> bytes:
    """What is told of nearly every call."""
    return _story_lines(lane, 1, 0.0)


def request_id(headers: Headers) -> str | None:
    """The name that an answer goes by."""
    for name, value in headers:
        if len(name) == 10 and name.lower() == b"request-id":
            return cut_name(value.decode("latin-1"))
    return None
