"""Failures as the classifier makes them, for tests of the controller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from jackline.failures import Failure, Observation, Where, classify

START = 1_800_000_000.0


def failure(
    status: int, text: str, *, now: float = START, headers: dict[str, str] | None = None
) -> Failure:
    """What the classifier makes of an answer."""
    moment = datetime.fromtimestamp(now, UTC)
    observation = Observation(Where.HTTP, "anthropic", status, headers or {}, None, text)
    return classify(observation, now=moment)


def throttled(retry_after: float | None = None) -> Failure:
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return failure(429, "Rate limited", headers=headers)


def overloaded() -> Failure:
    return failure(529, "Overloaded")


def server_error() -> Failure:
    return failure(500, "Internal server error")


def declined() -> Failure:
    return failure(503, "Overloaded", headers={"x-should-retry": "false"})


def broken_stream() -> Failure:
    return classify(
        Observation(Where.EXCEPTION, text="Stream ended before the response was complete"),
        now=datetime.fromtimestamp(START, UTC),
    )


def invalid() -> Failure:
    return failure(400, "messages: field required")


def bad_key() -> Failure:
    return failure(401, "invalid x-api-key")


def wall(now: float, resets_in: float | None) -> Failure:
    """A session limit, with its reset or without."""
    if resets_in is None:
        return failure(429, "You've hit your session limit", now=now)
    reset = datetime.fromtimestamp(now, UTC) + timedelta(seconds=resets_in)
    headers = {
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-reset": str(int(reset.timestamp())),
    }
    return failure(429, "", now=now, headers=headers)
