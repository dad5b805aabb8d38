"""Say no to a client in the shape that Anthropic's clients read, with what to change.

Laws: (1) the body is always `{"type":"error","error":{"type":…,"message":…}}`; (2) a message names
what to change, and never holds a header's value, a body or a token.
Not here: errors of the vendor, which pass through as they came.
"""

from __future__ import annotations

import json

# The error type that Anthropic's API names with each status; the others are close relatives.
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    431: "invalid_request_error",
    501: "invalid_request_error",
    503: "overloaded_error",
    504: "timeout_error",
    505: "invalid_request_error",
    529: "overloaded_error",
}


class Refusal(Exception):  # noqa: N818 -- it is an answer, raised where the reason is found
    """A request that is answered with no, and the reason."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The end-to-end headers of the answer."""
        headers = [(b"Content-Type", b"application/json")]
        if self.retry_after is not None:
            headers.append((b"Retry-After", b"%d" % self.retry_after))
        return headers

    @property
    def body(self) -> bytes:
        """The body of the answer."""
        return refusal_body(self.status, self.message)


def refusal_body(status: int, message: str) -> bytes:
    """The error as JSON."""
    error = {"type": KINDS.get(status, "api_error"), "message": message}
    return json.dumps({"type": "error", "error": error}).encode()
