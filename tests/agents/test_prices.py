"""What calls cost: known prices by any spelling, the user's own first, and never a guess."""

from __future__ import annotations

import pytest

from jackline.agents.messages.conversation import MessagesSettings
from jackline.agents.prices import Price, dollars, dollars_of_answer, in_dollars, price_of
from jackline.dialects import TokenUsage

MILLION = 1_000_000


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-4-8",
        "claude-opus-4-8[1m]",
        "anthropic/claude-opus-4.8",
        "us.anthropic.claude-opus-4-8-v1:0",
        "claude-opus-4-8@20260801",
        "claude-opus-4-8-20260801",
    ],
)
def test_a_model_is_recognised_as_vendors_clouds_and_routers_write_it(name: str) -> None:
    assert price_of(name) == Price(5.0, 25.0, 0.5, 6.25, 10.0)


@pytest.mark.parametrize("name", ["gpt-5.5", "", "claude", "claude-opus-99", "claude-opus-4-88"])
def test_an_unknown_model_has_no_price(name: str) -> None:
    assert dollars(name, TokenUsage(MILLION, MILLION)) is None


def test_each_kind_of_token_has_its_own_price() -> None:
    usage = TokenUsage(MILLION, MILLION, MILLION, MILLION)
    assert dollars("claude-haiku-4-5-20251001", usage) == pytest.approx(1.0 + 5.0 + 0.1 + 1.25)
    assert dollars("claude-haiku-4-5", TokenUsage()) == 0.0


def test_what_is_written_for_an_hour_costs_twice_the_input_and_the_rest_of_it_as_usual() -> None:
    hour = TokenUsage(cache_write_tokens=MILLION, cache_write_1h_tokens=MILLION)
    assert dollars("claude-haiku-4-5", hour) == pytest.approx(2.0)
    half = TokenUsage(cache_write_tokens=MILLION, cache_write_1h_tokens=MILLION // 2)
    assert dollars("claude-haiku-4-5", half) == pytest.approx(1.25 / 2 + 2.0 / 2)
    assert half.total == MILLION, "the hour's are a part of all that were written"
    more = TokenUsage(cache_write_tokens=MILLION, cache_write_1h_tokens=5 * MILLION)
    assert dollars("claude-haiku-4-5", more) == pytest.approx(2.0)


def test_the_users_own_prices_come_first_and_may_be_patterns() -> None:
    nines = Price(9.0, 9.0, 9.0, 9.0, 9.0)
    own = {"gpt-*": Price(1.0, 2.0, 0.0, 0.0, 0.0), "claude-opus-4-8": nines}
    assert dollars("gpt-5.5", TokenUsage(MILLION, MILLION), own) == pytest.approx(3.0)
    assert dollars("claude-opus-4-8", TokenUsage(MILLION), own) == pytest.approx(9.0)


def test_the_default_model_has_a_price() -> None:
    assert price_of(MessagesSettings().model) is not None


def test_an_amount_for_people_never_reads_as_nothing_when_it_is_something() -> None:
    told = [in_dollars(amount) for amount in (0.0, 1e-9, 0.0013, 0.25, 0.1, 1234.5)]
    assert told == ["$0.00", "$0.000001", "$0.0013", "$0.25", "$0.10", "$1,234.50"]


@pytest.mark.parametrize("answered", ["house-model-9", "claude-3-haiku", "claude-haiku-4-5", ""])
def test_an_upstream_makes_nothing_cheaper_by_naming_another_model(answered: str) -> None:
    usage = TokenUsage(1_000_000, 1_000)
    asked = dollars("claude-opus-4-8", usage)
    assert dollars_of_answer("claude-opus-4-8", answered, usage) == asked
    assert dollars_of_answer("house-model-9", "claude-opus-4-8", usage) == asked
    assert dollars_of_answer("house-model-9", answered, usage) in (None, dollars(answered, usage))
