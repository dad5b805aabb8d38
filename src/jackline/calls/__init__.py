"""Carry one logical model call to its final answer, across attempts, lanes and broken streams.

Laws: (1) the controller decides, this room only waits, sends and reports; (2) every attempt is
classified once; (3) nothing leaks: a call that ends, however it ends, leaves no task and no permit.
Not here: deciding (lanes/), talking HTTP (upstream/), what went wrong (failures/).
"""

from jackline.calls.carrier import Carrier
from jackline.calls.port import Answered, Began, Heard, Rejected, Request, Upstream, UpstreamEvent
from jackline.calls.story import Answer, AttemptTold

__all__ = [
    "Answer",
    "Answered",
    "AttemptTold",
    "Began",
    "Carrier",
    "Heard",
    "Rejected",
    "Request",
    "Upstream",
    "UpstreamEvent",
]
