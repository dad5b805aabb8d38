"""Every kind of failure has its ending, and its evidence is kept."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jackline.agents.outcome import Ending
from jackline.agents.runner import ending_of, evidence_of
from jackline.failures import Failure, Kind, Scope

EXPECTED = {
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
    Kind.NOT_A_FAILURE: Ending.CRASH,
}


def failure(kind: Kind, sub: str | None = None) -> Failure:
    reset = datetime(2026, 11, 15, 22, 10, tzinfo=UTC)
    return Failure(kind, sub, Scope.REQUEST, False, False, resets_at=reset)


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_failure_has_its_ending(kind: Kind) -> None:
    assert ending_of(failure(kind)) is EXPECTED[kind]


@pytest.mark.parametrize(
    ("sub", "ending"), [("max_turns", Ending.TURNS), ("budget", Ending.BUDGET)]
)
def test_limits_that_the_user_set_are_told_by_their_own_names(sub: str, ending: Ending) -> None:
    assert ending_of(failure(Kind.CLIENT_CANCEL, sub)) is ending


def test_the_evidence_says_what_was_seen_how_often_and_until_when() -> None:
    seen = failure(Kind.ACCOUNT_QUOTA, "session")
    evidence = evidence_of(
        seen, says="The session limit.", status=429, request_id="req_1", attempts=3
    )
    assert ending_of(seen) is Ending.QUOTA
    assert (evidence.status, evidence.failure, evidence.sub) == (429, "account_quota", "session")
    assert (evidence.attempts, evidence.request_id) == (3, "req_1")
    assert evidence.resets_at == seen.resets_at
    assert evidence.says == "The session limit."
