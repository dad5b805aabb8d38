"""A subscription's windows count, warn, refuse and refill as the real one's do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from jackline.failures import Kind, classify
from jackline.failures.observation import Observation
from jackline.simulator.exchange import Accepted, Rejected, SimRequest
from jackline.simulator.limits import QuotaWindowSettings, WindowClaim
from jackline.simulator.provider import ProviderModel, ProviderSettings
from jackline.simulator.time_model import AT_ONCE, Calendar, seeded_random
from tests.simulator.http_client import play

HOUR = 3600.0
UNIFIED = "anthropic-ratelimit-unified"


def subscription(*windows: QuotaWindowSettings) -> ProviderModel:
    return ProviderModel(ProviderSettings(windows=windows, service=AT_ONCE), seeded_random(1))


def tokens(count: int, model: str = "claude-opus-4-8") -> SimRequest:
    return SimRequest(model=model, input_tokens=count, output_tokens=1, stream=False)


def test_a_used_up_window_refuses_until_its_reset_and_says_when_that_is() -> None:
    provider = subscription(QuotaWindowSettings(WindowClaim.FIVE_HOUR, 1000))
    arrivals = [(0.0, tokens(1000)), (HOUR, tokens(10)), (5 * HOUR + 1, tokens(10))]
    events = [event for event in play(provider, arrivals) if not isinstance(event, Accepted)]
    refused = events[1]
    assert isinstance(refused, Rejected)
    assert refused.headers[f"{UNIFIED}-status"] == "rejected"
    assert refused.headers["retry-after"] == str(int(4 * HOUR))
    epoch = provider.settings.calendar.epoch
    assert int(refused.headers[f"{UNIFIED}-reset"]) == epoch + 5 * HOUR
    assert [entry.why for entry in provider.ledger] == ["completed", "429", "completed"]


def test_the_fullest_window_speaks_and_warns_before_it_is_used_up() -> None:
    provider = subscription(
        QuotaWindowSettings(WindowClaim.FIVE_HOUR, 1000),
        QuotaWindowSettings(WindowClaim.SEVEN_DAY, 10_000, used=4000),
    )
    events = play(provider, [(0.0, tokens(100)), (1.0, tokens(830))])
    first, second = (event for event in events if isinstance(event, Accepted))
    assert first.headers[f"{UNIFIED}-representative-claim"] == "seven_day"
    assert first.headers[f"{UNIFIED}-status"] == "allowed"
    assert second.headers[f"{UNIFIED}-representative-claim"] == "five_hour"
    assert second.headers[f"{UNIFIED}-status"] == "allowed_warning"
    assert second.headers[f"{UNIFIED}-5h-surpassed-threshold"] == "0.9"


def test_a_window_for_one_model_leaves_the_others_alone() -> None:
    provider = subscription(QuotaWindowSettings(WindowClaim.SEVEN_DAY_OPUS, 100, used=100))
    play(provider, [(0.0, tokens(1)), (1.0, tokens(1, "claude-sonnet-4-6"))])
    assert [entry.why for entry in provider.ledger] == ["429", "completed"]
    assert provider.ledger.entries[0].wall


@pytest.mark.parametrize("claim", list(WindowClaim))
def test_the_text_of_a_wall_means_a_quota_with_this_reset(claim: WindowClaim) -> None:
    calendar = Calendar()
    resets_at = 3 * HOUR if claim is WindowClaim.FIVE_HOUR else 75 * HOUR
    now = datetime.fromtimestamp(calendar.epoch, UTC)
    for zone in (UTC, ZoneInfo("Europe/Berlin")):
        text = claim.wall_text(calendar, resets_at, zone)
        failure = classify(Observation.of_text(text), now=now)
        assert failure.kind is Kind.ACCOUNT_QUOTA, text
        assert failure.resets_at == now + timedelta(seconds=resets_at), text


def test_a_reset_in_text_is_never_earlier_than_the_real_one() -> None:
    assert Calendar().clock_text(3600.0) == "10am (UTC)"
    assert Calendar().clock_text(3601.0) == "10:01am (UTC)"
    assert Calendar().day_text(86_399.0) == "Nov 16, 9am (UTC)"
