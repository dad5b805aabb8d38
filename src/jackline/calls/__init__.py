"""Carry one logical model call to its final answer, across attempts, lanes and broken streams.

Rules: (1) the controller decides, this room only waits, sends and reports; (2) every attempt is
classified once; (3) nothing leaks: a call that ends, however it ends, leaves no task and no permit.
"""

from jackline.calls.call_manager import CallManager
from jackline.calls.continuation import takes_prefill
from jackline.calls.pending_call import PendingCall
from jackline.calls.request import (
    CallCompletion,
    CallRefusal,
    CallRequest,
    Cap,
    Dialect,
    FailedAttempt,
    HoldLimits,
    Receiver,
    VendorRejection,
)
from jackline.calls.stitch import Mode

__all__ = [
    "CallCompletion",
    "CallManager",
    "CallRefusal",
    "CallRequest",
    "Cap",
    "Dialect",
    "FailedAttempt",
    "HoldLimits",
    "Mode",
    "PendingCall",
    "Receiver",
    "VendorRejection",
    "takes_prefill",
]
