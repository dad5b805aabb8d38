"""Write an `Outcome` as JSON and read it again.

Laws: (1) what is read is equal to what was written, the value apart; (2) an agent's value is kept
beside its outcome, not in it, so that it is kept once; (3) unknown fields are ignored and missing
ones have their defaults, so that versions can read each other.
Not here: values (values.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from jackline.agents.outcome import Outcome
from jackline.errors import JournalError

_DECODER = msgspec.json.Decoder(Outcome[Any])


def encode_outcome(outcome: Outcome[Any], *, plain_value: object = None) -> bytes:
    """The outcome as JSON, with `plain_value` (JSON data) in place of its own."""
    return msgspec.json.encode(replace(outcome, value=plain_value))


def decode_outcome(data: bytes) -> Outcome[Any]:
    """The outcome; its value is plain JSON data, or None."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise JournalError(f"An outcome that was kept cannot be read: {error}.") from error
