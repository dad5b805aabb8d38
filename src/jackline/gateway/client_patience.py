"""Say when a client without a stream leaves, so that it is answered before, and goes first in time.

Rules: (1) what the client's headers tell of its own limit is believed, whatever name its SDK has
for it; (2) it is answered a little earlier than it leaves; (3) a client that will not ask again
hurries from the beginning, any other in the last part of its time.
Not here: what it is answered (messages.py), what hurrying means (lanes/waiting_room.py).
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from jackline.gateway.exchange import Exchange
from jackline.gateway.identity import Client

# What Claude Code gives a call without a stream; the SDKs give 600.
_WHOLE_ANSWER_WITHIN = 280.0
# A client may write any number.
_LONGEST_PATIENCE = 366 * 86400.0
_RAISED = 600.0
# The SDKs for JavaScript limit the whole call, those for Python and Ruby each read; without a
# stream both are the same.
_LIMITS = (b"x-stainless-timeout", b"x-stainless-read-timeout")
_SECONDS = re.compile(rb"\d{1,12}(?:\.\d{1,12})?")
# The SDKs ask three times unless they are told otherwise, and count from 0. Claude Code asks more
# often and always says 0.
_LAST_TRY = 2
_EARLIER, _EARLIER_SHARE = 5.0, 0.1
# For so long before it leaves, a client that will ask again goes before those that can wait.
_HURRIES_FOR, _HURRIES_SHARE = 60.0, 0.25


class Leaving(NamedTuple):
    """When a client has to be answered at the latest, and from when on it hurries."""

    leaves_at: float = math.inf
    hurries_at: float = math.inf


def leaving(exchange: Exchange, client: Client, now: float) -> Leaving:
    """When the client of a call without a stream leaves that asks now."""
    patience = _patience(exchange, client)
    leaves_at = now + patience - max(_EARLIER, _EARLIER_SHARE * patience)
    if _number(exchange.header(b"x-stainless-retry-count")) >= _LAST_TRY:
        return Leaving(leaves_at, now)
    return Leaving(leaves_at, leaves_at - min(_HURRIES_FOR, _HURRIES_SHARE * patience))


def _patience(exchange: Exchange, client: Client) -> float:
    told = next(filter(None, (_number(exchange.header(name)) for name in _LIMITS)), 0.0)
    if not told:
        return _WHOLE_ANSWER_WITHIN
    # Claude Code's sockets give up earlier than it says, unless its user has raised the limit.
    eager = client.claude_code and told <= _RAISED
    return min(told, _WHOLE_ANSWER_WITHIN if eager else _LONGEST_PATIENCE)


def _number(given: bytes | None) -> float:
    return float(given) if given is not None and _SECONDS.fullmatch(given) else 0.0
