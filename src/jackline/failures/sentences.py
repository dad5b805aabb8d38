"""TEMPORARY stand-in; being written by the lead."""

from __future__ import annotations

from jackline.failures.failure import Failure, Kind

_NAMES = {
    Kind.SERVER_THROTTLE: "a server-side throttle",
    Kind.RATE_LIMIT: "the account's rate limit",
    Kind.BILLING: "the account's billing",
    Kind.OVERLOADED: "the API's overload",
    Kind.UPSTREAM_5XX: "a server error at the API",
    Kind.NETWORK_EDGE: "the network",
    Kind.TIMEOUT: "a timeout",
    Kind.TRUNCATED_STREAM: "a broken answer stream",
    Kind.AUTH: "a refused login",
    Kind.INVALID_REQUEST: "a rejected request",
    Kind.MODEL_NOT_FOUND: "a model that was not found",
    Kind.CONTENT_POLICY: "the content policy",
    Kind.TOOL_ERROR: "a tool's failure",
    Kind.MISSING_STRUCTURED_OUTPUT: "a missing structured output",
    Kind.CLIENT_CANCEL: "a cancellation",
    Kind.NOT_A_FAILURE: "nothing",
}


def name_of(failure: Failure) -> str:
    """A noun phrase for the failure."""
    if failure.kind is Kind.ACCOUNT_QUOTA:
        return f"the account's {failure.sub or 'usage'} limit"
    if failure.sub == "refused":
        return "a refused connection"
    return _NAMES[failure.kind]
