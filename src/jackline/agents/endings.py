"""Say which ending a failure means, and what is kept of it as evidence.

Laws: (1) total: every kind of failure has its ending, in one table; (2) a throttle never becomes a
quota, nor the reverse; (3) pure; nothing here looks at a status or a text: `failures` has judged.
Not here: what to do about an ending (flows/), classifying (failures/).
"""

from __future__ import annotations

from collections.abc import Mapping

from jackline.agents.outcome import Ending, Evidence
from jackline.agents.ports import ModelFailedError
from jackline.failures import Failure, Kind

ENDINGS: Mapping[Kind, Ending] = {
    Kind.SERVER_THROTTLE: Ending.RATE_LIMIT,
    Kind.RATE_LIMIT: Ending.RATE_LIMIT,
    Kind.ACCOUNT_QUOTA: Ending.QUOTA,
    Kind.BILLING: Ending.QUOTA,
    Kind.OVERLOADED: Ending.OUTAGE,
    Kind.UPSTREAM_5XX: Ending.OUTAGE,
    Kind.NETWORK_EDGE: Ending.OUTAGE,
    Kind.TIMEOUT: Ending.OUTAGE,
    Kind.TRUNCATED_STREAM: Ending.OUTAGE,
    Kind.AUTH: Ending.REFUSED,
    Kind.INVALID_REQUEST: Ending.REFUSED,
    Kind.MODEL_NOT_FOUND: Ending.REFUSED,
    Kind.CONTENT_POLICY: Ending.REFUSED,
    Kind.TOOL_ERROR: Ending.TOOL_ERROR,
    Kind.MISSING_STRUCTURED_OUTPUT: Ending.SCHEMA,
    Kind.CLIENT_CANCEL: Ending.CANCELLED,
    # It ended without an answer, and nothing says why.
    Kind.NOT_A_FAILURE: Ending.CRASH,
}
# Some cancels are limits that the user has set, and are told by their own names.
_BY_SUB: Mapping[tuple[Kind, str], Ending] = {
    (Kind.CLIENT_CANCEL, "max_turns"): Ending.TURNS,
    (Kind.CLIENT_CANCEL, "budget"): Ending.BUDGET,
}


def ending_of(failure: Failure) -> Ending:
    """What an agent ends with when this failure is the last word."""
    return _BY_SUB.get((failure.kind, failure.sub or ""), ENDINGS[failure.kind])


def evidence_of(
    failure: Failure,
    *,
    says: str,
    status: int | None = None,
    attempts: int = 0,
    request_id: str | None = None,
) -> Evidence:
    """What is kept of the failure."""
    return Evidence(
        status=status,
        failure=failure.kind.value,
        sub=failure.sub,
        says=says,
        attempts=attempts,
        request_id=request_id,
        resets_at=failure.resets_at,
    )


def ended_by(error: ModelFailedError) -> tuple[Ending, Evidence]:
    """The ending and its evidence for a model call that came to nothing."""
    evidence = evidence_of(
        error.failure,
        says=error.says,
        status=error.status,
        attempts=error.attempts,
        request_id=error.request_id,
    )
    return ending_of(error.failure), evidence
