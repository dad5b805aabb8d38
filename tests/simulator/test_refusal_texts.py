"""Our own classifier understands the texts of the simulated provider."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jackline.failures import Kind, classify
from jackline.failures.observation import Observation
from jackline.simulator.anthropic_wire import AnthropicMessages
from jackline.simulator.exchange import (
    TOO_MANY_CONNECTIONS,
    ConnectionBroken,
    ProviderRefusal,
    Rejected,
    SimRequest,
)
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.limits import BucketSettings, Counts, RateBucket
from jackline.simulator.provider import ProviderModel, ProviderSettings
from jackline.simulator.time_model import DEFAULT_EPOCH, Calendar, seeded_random
from tests.simulator.http_client import play

NOW = datetime.fromtimestamp(DEFAULT_EPOCH, UTC)


def meaning(refusal: ProviderRefusal | Rejected) -> tuple[Kind, str | None]:
    seen = Observation.of_response(
        refusal.status, refusal.headers, refusal.body.encode(), provider="anthropic"
    )
    failure = classify(seen, now=NOW)
    return failure.kind, failure.sub


@pytest.mark.parametrize(
    ("effect", "kind"),
    [
        (Effect.THROTTLED, Kind.SERVER_THROTTLE),
        (Effect.OVERLOADED, Kind.OVERLOADED),
        (Effect.SERVER_ERROR, Kind.UPSTREAM_5XX),
        (Effect.BAD_GATEWAY, Kind.UPSTREAM_5XX),
        (Effect.ENVOY, Kind.UPSTREAM_5XX),
        (Effect.ENVOY_OVERFLOW, Kind.OVERLOADED),
        (Effect.CAPTIVE_PORTAL, Kind.NETWORK_EDGE),
        (Effect.QUOTA_WALL, Kind.ACCOUNT_QUOTA),
    ],
)
def test_a_refusing_fault_is_recognised(effect: Effect, kind: Kind) -> None:
    provider = ProviderModel(ProviderSettings(faults=(Fault(effect),)), seeded_random(1))
    (event,) = play(provider, [(0.0, SimRequest())])
    assert isinstance(event, Rejected)
    assert meaning(event)[0] is kind


@pytest.mark.parametrize(
    ("counts", "sub"),
    [(Counts.REQUESTS, "rpm"), (Counts.INPUT_TOKENS, "itpm"), (Counts.OUTPUT_TOKENS, "otpm")],
)
def test_a_bucket_that_names_itself_is_recognised(counts: Counts, sub: str) -> None:
    bucket = RateBucket(BucketSettings(counts, 50), Calendar(), 0.0)
    request = SimRequest(input_tokens=1)
    for _ in range(50):
        bucket.take(0.0, request)
    bucket.finished(0.0, request, 50)
    refusal = bucket.check(0.0, request, 0)
    assert refusal is not None
    assert meaning(refusal) == (Kind.RATE_LIMIT, sub)


def test_a_concurrency_cap_is_recognised() -> None:
    assert meaning(TOO_MANY_CONNECTIONS) == (Kind.RATE_LIMIT, "concurrency")


@pytest.mark.parametrize("result", ["headers", "text"])
def test_a_wall_that_announces_its_reset_is_understood_to_the_minute(result: str) -> None:
    fault = Fault(Effect.QUOTA_WALL, until=7200.0, reset_announced=result)  # type: ignore[arg-type]
    provider = ProviderModel(ProviderSettings(faults=(fault,)), seeded_random(1))
    (event,) = play(provider, [(0.0, SimRequest())])
    assert isinstance(event, Rejected)
    seen = Observation.of_response(event.status, event.headers, event.body, provider="anthropic")
    failure = classify(seen, now=NOW)
    assert failure.resets_at == NOW + timedelta(seconds=7200)


def test_an_error_inside_a_stream_is_recognised() -> None:
    provider = ProviderModel(
        ProviderSettings(faults=(Fault(Effect.ERROR_EVENT),)), seeded_random(1)
    )
    broken = play(provider, [(0.0, SimRequest())])[-1]
    assert isinstance(broken, ConnectionBroken)
    stream = AnthropicMessages().error_event(broken.body)
    assert classify(Observation.of_stream(stream), now=NOW).kind is Kind.OVERLOADED
