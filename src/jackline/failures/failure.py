"""What went wrong, in one value that every other package can act on.

Rules: (1) a `Failure` is made only by `classify`; (2) quota and billing are never `retry_same`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from jackline.failures.resets import span


class Kind(StrEnum):
    """What went wrong, named by what has to happen next."""

    SERVER_THROTTLE = "server_throttle"
    RATE_LIMIT = "rate_limit"
    ACCOUNT_QUOTA = "account_quota"
    BILLING = "billing"
    OVERLOADED = "overloaded"
    UPSTREAM_5XX = "upstream_5xx"
    NETWORK_EDGE = "network_edge"
    TIMEOUT = "timeout"
    TRUNCATED_STREAM = "truncated_stream"
    AUTH = "auth"
    INVALID_REQUEST = "invalid_request"
    MODEL_NOT_FOUND = "model_not_found"
    CONTENT_POLICY = "content_policy"
    TOOL_ERROR = "tool_error"
    MISSING_STRUCTURED_OUTPUT = "missing_structured_output"
    CLIENT_CANCEL = "client_cancel"
    NOT_A_FAILURE = "not_a_failure"


class Scope(StrEnum):
    """How far the failure reaches: who else would get it now."""

    REQUEST = "request"
    MODEL = "model"
    UPSTREAM = "upstream"
    ACCOUNT = "account"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Failure:
    """One classified failure.

    `retry_same` means that the same request to the same place can succeed without any change;
    `failover_helps` means that another upstream, account or model can. `resets_at` is aware, and
    may be in the past when the source was slow; `resets_in` is set when `resets_at` was computed
    from a duration: for a long wait that matters, since the wall clock may be set meanwhile.
    `evidence` lists the signals that decided, strongest first, in texts that a person can check.
    """

    kind: Kind
    sub: str | None
    scope: Scope
    retry_same: bool
    failover_helps: bool
    retry_after: timedelta | None = None
    resets_at: datetime | None = None
    evidence: tuple[str, ...] = ()
    resets_in: timedelta | None = field(default=None, compare=False)

    def wait_from(self, now: datetime) -> timedelta:
        """How long to wait from `now` on by the source; zero when it does not say."""
        waits = [timedelta(0)]
        if self.retry_after is not None:
            waits.append(self.retry_after)
        if self.resets_at is not None:
            waits.append(span(now, self.resets_at))
        return max(waits)

    def to_json(self) -> dict[str, object]:
        """The seven documented keys of `jackline why --jsonl`."""
        retry_after = self.retry_after
        return {
            "kind": self.kind.value,
            "sub": self.sub,
            "scope": self.scope.value,
            "retry_same": self.retry_same,
            "failover_helps": self.failover_helps,
            "retry_after_s": None if retry_after is None else plain_seconds(retry_after),
            "resets_at": None if self.resets_at is None else self.resets_at.isoformat(),
        }


def plain_seconds(duration: timedelta) -> int | float:
    """Seconds without a useless fraction: 30, not 30.0."""
    seconds = duration.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds
