"""Say what each kind of failure means for the lane and for the call.

Laws: (1) every kind has exactly one reaction; (2) only what more waiting or another lane can heal
makes a call wait.
Not here: carrying it out (consequences.py).
"""

from __future__ import annotations

from enum import Enum, auto

from jackline.failures import Failure, Kind, Scope


class Reaction(Enum):
    """What a failure asks for."""

    PARK = auto()
    THROTTLE = auto()
    OUTAGE = auto()
    BROKEN_ANSWER = auto()
    CALL = auto()


_BY_KIND = {
    Kind.ACCOUNT_QUOTA: Reaction.PARK,
    Kind.BILLING: Reaction.CALL,
    Kind.SERVER_THROTTLE: Reaction.THROTTLE,
    Kind.RATE_LIMIT: Reaction.THROTTLE,
    Kind.OVERLOADED: Reaction.THROTTLE,
    Kind.UPSTREAM_5XX: Reaction.OUTAGE,
    Kind.NETWORK_EDGE: Reaction.OUTAGE,
    Kind.TIMEOUT: Reaction.OUTAGE,
    Kind.TRUNCATED_STREAM: Reaction.BROKEN_ANSWER,
    Kind.AUTH: Reaction.CALL,
    Kind.INVALID_REQUEST: Reaction.CALL,
    Kind.MODEL_NOT_FOUND: Reaction.CALL,
    Kind.CONTENT_POLICY: Reaction.CALL,
    Kind.TOOL_ERROR: Reaction.CALL,
    Kind.MISSING_STRUCTURED_OUTPUT: Reaction.CALL,
    Kind.CLIENT_CANCEL: Reaction.CALL,
    Kind.NOT_A_FAILURE: Reaction.CALL,
}


def reaction_to(failure: Failure) -> Reaction:
    """What to do about `failure`."""
    reaction = _BY_KIND[failure.kind]
    if failure.kind is Kind.BILLING and failure.resets_at is not None:
        return Reaction.PARK
    if failure.kind is Kind.AUTH and failure.retry_same:
        return Reaction.OUTAGE
    if failure.kind is Kind.NETWORK_EDGE and not failure.retry_same:
        return Reaction.CALL
    return reaction


def parks_account(failure: Failure) -> bool:
    """Whether every lane of the account meets the same wall."""
    return failure.scope is Scope.ACCOUNT
