"""Write an `Outcome` as JSON and read it again.

Laws: (1) what is read is equal to what was written, the value apart; (2) an agent's value is kept
beside its outcome, not in it, so that it is kept once, and a text that is the value likewise;
(3) unknown fields are ignored and missing ones have their defaults, so that versions can read each
other.
Not here: values (values.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from jackline.agents.outcome import Outcome
from jackline.errors import JournalError
from jackline.flows.records import CallRecord, CallState

_DECODER = msgspec.json.Decoder(Outcome[Any])


def encode_outcome(outcome: Outcome[Any], *, plain_value: object = None) -> bytes:
    """The outcome as JSON, with `plain_value` (JSON data) in place of its own."""
    return msgspec.json.encode(replace(outcome, value=plain_value))


def encode_kept_beside(outcome: Outcome[Any]) -> bytes:
    """The outcome as JSON, for a call that keeps the value itself; see `outcome_of`."""
    is_value = outcome.ok and outcome.value == outcome.text
    return encode_outcome(replace(outcome, text="") if is_value else outcome)


def outcome_of(call: CallRecord) -> Outcome[Any]:
    """How the agent of an ended call ended, without its value; its text is there again."""
    outcome = decode_outcome(call.outcome or b'{"terminated_by":"completion"}')
    if outcome.text or call.state is not CallState.DONE or call.value is None:
        return outcome
    value = msgspec.json.decode(call.value)
    return replace(outcome, text=value) if isinstance(value, str) else outcome


def decode_outcome(data: bytes) -> Outcome[Any]:
    """The outcome; its value is plain JSON data, or None."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise JournalError(f"An outcome that was kept cannot be read: {error}.") from error
