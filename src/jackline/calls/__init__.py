"""Carry one logical model call to its final answer, across attempts, lanes and broken streams.

Laws: (1) the controller decides, this room only waits, sends and reports; (2) every attempt is
classified once; (3) nothing leaks: a call that ends, however it ends, leaves no task and no permit.
Not here: deciding (lanes/), talking HTTP (upstream/), what went wrong (failures/).
"""

from jackline.calls.carried import Carried
from jackline.calls.carrier import Carrier
from jackline.calls.collecting import carry, gave_up
from jackline.calls.continuation import takes_prefill
from jackline.calls.request import (
    Cap,
    Dialect,
    Ending,
    HoldLimits,
    Receiver,
    Refusal,
    Rejection,
    Request,
)
from jackline.calls.stitching import Mode
from jackline.calls.story import Answer, AttemptTold

__all__ = [
    "Answer",
    "AttemptTold",
    "Cap",
    "Carried",
    "Carrier",
    "Dialect",
    "Ending",
    "HoldLimits",
    "Mode",
    "Receiver",
    "Refusal",
    "Rejection",
    "Request",
    "carry",
    "gave_up",
    "takes_prefill",
]
