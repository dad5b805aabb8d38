"""A provider with prompt caches: what limits count, what answers report, and what it costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from jackline.agents import prices as clients_prices
from jackline.simulator.exchange import Accepted, Rejected, SimRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.prompt_cache import FIVE_MINUTES, ONE_HOUR, Prompt, PromptBlock
from jackline.simulator.provider import ProviderModel, ProviderSettings
from jackline.simulator.reply_script import Say
from jackline.simulator.time_model import AT_ONCE, seeded_random
from jackline.simulator.vendor_facts import PRICES, price_of
from jackline.testing import SimulatedProvider
from tests.simulator.http_client import ask, play, send
from tests.simulator.vendor_sdks import CLOUDS, OPENAI, run_with

SONNET = "claude-sonnet-4-6"
PER_MINUTE = BucketSettings(Counts.INPUT_TOKENS, 60_000)


def request_of(
    cached: int = 50_000, plain: int = 1_000, model: str = SONNET, dialect: str = "anthropic"
) -> SimRequest:
    blocks = (PromptBlock(b"system", cached, FIVE_MINUTES), PromptBlock(b"question", plain))
    prompt = Prompt(model, blocks, automatic=dialect.startswith("openai"))
    return SimRequest(model=model, output_tokens=100, prompt=prompt, dialect=dialect)


def provider_of(*buckets: BucketSettings, **more: Any) -> ProviderModel:
    settings = ProviderSettings(buckets=buckets, service=replace(AT_ONCE, **more))
    return ProviderModel(settings, seeded_random(1))


def remaining(provider: ProviderModel, requests: list[tuple[float, SimRequest]]) -> list[int]:
    name = "anthropic-ratelimit-input-tokens-remaining"
    events = play(provider, requests)
    return [int(event.headers[name]) for event in events if isinstance(event, Accepted)]


# --- limits ---------------------------------------------------------------------------------


def test_anthropics_input_limit_counts_writes_and_not_reads_and_its_headers_say_so() -> None:
    one = request_of()
    assert remaining(provider_of(PER_MINUTE), [(0.0, one), (0.0, one), (0.0, one)]) == [
        9_000,  # 50,000 written and 1,000 beside them
        8_000,
        7_000,
    ]


@pytest.mark.parametrize(
    ("model", "dialect"),
    [
        ("claude-3-5-haiku-20241022", "anthropic"),
        (SONNET, "vertex"),
        ("gpt-5", "openai-chat"),
        ("gpt-5", "openai-responses"),
    ],
)
def test_where_reads_count_a_cached_prompt_is_refused_like_any_other(
    model: str, dialect: str
) -> None:
    one = request_of(model=model, dialect=dialect)
    provider = provider_of(PER_MINUTE)
    events = play(provider, [(0.0, one), (1.0, one)])
    assert [type(event) for event in events if isinstance(event, Accepted | Rejected)] == [
        Accepted,
        Rejected,
    ]


def test_bedrock_does_not_count_reads() -> None:
    one = request_of(model="eu.anthropic.claude-opus-4-8-v1:0", dialect="bedrock")
    assert remaining(provider_of(PER_MINUTE), [(0.0, one), (0.0, one)]) == [9_000, 8_000]


def test_a_prompt_that_lapsed_is_counted_whole_again() -> None:
    one = request_of()
    provider = provider_of(PER_MINUTE)
    assert remaining(provider, [(0.0, one), (299.0, one), (598.0, one), (898.0, one)]) == [
        9_000,
        59_000,
        59_000,
        9_000,
    ]


def test_a_refused_request_prolongs_nothing() -> None:
    one = request_of()
    provider = provider_of(BucketSettings(Counts.REQUESTS, 1))
    play(provider, [(0.0, one), (1.0, one)])
    assert [entry.why for entry in provider.ledger] == ["completed", "429"]
    assert provider.cache.look(one.prompt or _no_prompt(), 300.5).read == 0


def _no_prompt() -> Prompt:
    raise AssertionError("the request has a prompt")


# --- time -----------------------------------------------------------------------------------


def test_siblings_that_come_before_the_first_byte_all_pay_and_later_ones_read() -> None:
    provider = provider_of(first_byte=4.0)
    play(provider, [(0.0, request_of()), (3.9, request_of()), (4.1, request_of())])
    assert [entry.cache_read_tokens for entry in provider.ledger] == [0, 0, 50_000]
    assert [entry.cache_write_5m_tokens for entry in provider.ledger] == [50_000, 50_000, 0]


def test_an_answer_that_breaks_before_its_first_byte_writes_nothing_and_costs_nothing() -> None:
    provider = provider_of(first_byte=4.0)
    provider.add_fault(0.0, Fault(Effect.LATE, start=1.0, until=2.0, kills_in_flight=1.0))
    play(provider, [(0.0, request_of()), (5.0, request_of())])
    first, second = provider.ledger.entries
    assert (first.why, first.first_byte) == ("reset", None)
    assert second.cache_read_tokens == 0
    assert provider.ledger.bill().tokens["cache_write_5m"] == 50_000


def test_what_is_read_from_a_cache_need_not_be_processed_before_the_first_byte() -> None:
    provider = provider_of(first_byte_per_kilotoken=0.1)
    play(provider, [(0.0, request_of()), (100.0, request_of())])
    waits = [(entry.first_byte or 0.0) - entry.arrived for entry in provider.ledger]
    assert waits == [pytest.approx(5.1), pytest.approx(0.1)]


# --- the bill -------------------------------------------------------------------------------


def test_the_bill_charges_each_kind_of_token_at_its_price() -> None:
    provider = provider_of()
    hour = Prompt(SONNET, (PromptBlock(b"other", 100_000, ONE_HOUR),))
    written_for_an_hour = SimRequest(model=SONNET, output_tokens=100, prompt=hour)
    play(provider, [(0.0, request_of()), (1.0, request_of()), (2.0, written_for_an_hour)])
    bill = provider.ledger.bill()
    assert dict(bill.tokens) == {
        "input": 2_000,
        "cache_read": 50_000,
        "cache_write_5m": 50_000,
        "cache_write_1h": 100_000,
        "output": 300,
    }
    # Dollars per million: input 3, read 0.3, write 3.75, for an hour 6, output 15.
    millions = 2_000 * 3 + 50_000 * 0.3 + 50_000 * 3.75 + 100_000 * 6 + 300 * 15
    assert bill.dollars == pytest.approx(millions / 1e6)
    assert bill.read_share == pytest.approx(50 / 202)


def test_a_model_without_a_listed_price_is_counted_and_not_priced() -> None:
    provider = provider_of()
    play(provider, [(0.0, SimRequest(model="house-brand", input_tokens=70, output_tokens=30))])
    bill = provider.ledger.summary()["bill"]
    assert isinstance(bill, dict)
    assert (bill["dollars"], bill["unpriced"]) == (0.0, {"house-brand": 100})


def test_refused_requests_cost_nothing() -> None:
    provider = provider_of(BucketSettings(Counts.REQUESTS, 1))
    play(provider, [(0.0, request_of()), (1.0, request_of())])
    assert provider.ledger.bill().tokens["output"] == 100


@pytest.mark.parametrize("model", [name for name in PRICES if name.startswith("claude")])
def test_the_providers_prices_are_those_by_which_clients_estimate(model: str) -> None:
    listed, believed = price_of(model), clients_prices.price_of(model)
    assert listed is not None
    assert believed is not None
    kinds = (listed.input, listed.output, listed.cache_read, listed.cache_write_5m)
    expected = (believed.input, believed.output, believed.cache_read, believed.cache_write)
    assert kinds == pytest.approx(expected)
    assert listed.cache_write_1h == 2 * listed.input


# --- over HTTP ------------------------------------------------------------------------------

MARK = {"type": "ephemeral"}
SYSTEM = [{"type": "text", "text": "You review code. " * 400, "cache_control": MARK}]


@pytest.fixture
def provider() -> Iterator[SimulatedProvider]:
    with SimulatedProvider() as running:
        running.says(Say("Understood."))
        yield running


def test_whole_answers_report_what_was_written_and_then_read(provider: SimulatedProvider) -> None:
    first = ask(provider, system=SYSTEM).json["usage"]
    second = ask(provider, system=SYSTEM).json["usage"]
    written = first["cache_creation_input_tokens"]
    assert written > 1024
    assert first["cache_creation"] == {
        "ephemeral_5m_input_tokens": written,
        "ephemeral_1h_input_tokens": 0,
    }
    assert first["cache_read_input_tokens"] == 0
    assert (second["cache_read_input_tokens"], second["cache_creation_input_tokens"]) == (
        written,
        0,
    )
    assert first["input_tokens"] == second["input_tokens"] > 0
    [one, two] = provider.ledger.entries
    assert (one.cache_write_5m_tokens, two.cache_read_tokens) == (written, written)


def test_streams_report_it_at_their_start_and_at_their_end(provider: SimulatedProvider) -> None:
    hour = [{**SYSTEM[0], "cache_control": {**MARK, "ttl": "1h"}}]
    ask(provider, system=hour)
    events = ask(provider, system=hour, stream=True).events
    start = next(one for one in events if one["type"] == "message_start")["message"]["usage"]
    end = next(one for one in events if one["type"] == "message_delta")["usage"]
    assert start["cache_read_input_tokens"] == end["cache_read_input_tokens"] > 1024
    assert provider.ledger.entries[0].cache_write_1h_tokens == end["cache_read_input_tokens"]


def test_another_key_reads_nothing(provider: SimulatedProvider) -> None:
    ask(provider, system=SYSTEM, headers={"x-api-key": "one"})
    other = ask(provider, system=SYSTEM, headers={"x-api-key": "two"}).json["usage"]
    assert other["cache_read_input_tokens"] == 0


def test_marks_that_the_vendor_rejects_are_refused_and_leave_no_trace(
    provider: SimulatedProvider,
) -> None:
    got = ask(provider, system=5 * SYSTEM)
    assert got.status == 400
    assert "Found 5." in got.json["error"]["message"]
    assert provider.ledger.bill().tokens.total() == 0


def test_the_control_endpoint_has_the_bill_and_a_reset_empties_the_caches(
    provider: SimulatedProvider,
) -> None:
    ask(provider, system=SYSTEM)
    ask(provider, system=SYSTEM)
    bill = send(provider, "GET", "/_control/summary").json["bill"]
    assert bill["tokens"]["cache_read"] == bill["tokens"]["cache_write_5m"] > 1024
    assert bill["dollars"] > 0
    send(provider, "POST", "/_control/reset")
    assert ask(provider, system=SYSTEM).json["usage"]["cache_read_input_tokens"] == 0


def test_both_endpoints_of_openai_report_cached_tokens(provider: SimulatedProvider) -> None:
    talk = [{"role": "user", "content": "review " * 1000}]
    for path, field, detail in (
        ("/v1/chat/completions", "messages", "prompt_tokens_details"),
        ("/v1/responses", "input", "input_tokens_details"),
    ):
        body = {"model": "gpt-5", field: talk, "prompt_cache_key": path}
        first, second = (send(provider, "POST", path, body).json["usage"] for _ in range(2))
        assert first[detail]["cached_tokens"] == 0
        assert second[detail]["cached_tokens"] >= 1024
        assert second[detail]["cached_tokens"] % 128 == 0


# --- vendors' own clients -------------------------------------------------------------------

CLAUDE_PROGRAM = """
import json, sys
import anthropic

client = anthropic.Anthropic(api_key="k", base_url=sys.argv[1], max_retries=0)
mark = {"type": "ephemeral", "ttl": "1h"}
talk = [{"role": "user", "content": "review " * 1000}]
told = []
for turn in range(2):
    body = dict(model="claude-opus-4-8", max_tokens=100, messages=talk,
                cache_control={"type": "ephemeral"},
                system=[{"type": "text", "text": "Be brief. " * 1000, "cache_control": mark}])
    whole = client.messages.create(**body)
    with client.messages.stream(**body) as events:
        streamed = events.get_final_message()
    told += [whole.usage.to_dict(), streamed.usage.to_dict()]
    talk += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "next " * 400}]
print(json.dumps(told))
"""

OPENAI_PROGRAM = """
import json, sys
import openai

client = openai.OpenAI(api_key="k", base_url=sys.argv[1] + "/v1", max_retries=0)
talk = [{"role": "user", "content": "review " * 1000}]
told = []
for turn in range(2):
    more = dict(prompt_cache_key="k", prompt_cache_retention="24h")
    chat = client.chat.completions.create(model="gpt-5", messages=talk, **more)
    told.append(chat.usage.prompt_tokens_details.cached_tokens)
    whole = client.responses.create(model="gpt-5", input=talk, instructions="brief", **more)
    told.append(whole.usage.input_tokens_details.cached_tokens)
    talk += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "next"}]
print(json.dumps(told))
"""


@pytest.mark.real_client
def test_anthropics_own_client_reads_the_usage_of_a_growing_talk(
    provider: SimulatedProvider,
) -> None:
    first, again, grown, last = run_with(CLOUDS, CLAUDE_PROGRAM, provider.url)
    split = first["cache_creation"]
    assert min(split.values()) > 1024, "an hour for the system prompt, five minutes for the talk"
    assert first["cache_creation_input_tokens"] == sum(split.values())
    assert again["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
    assert again["cache_creation_input_tokens"] == 0
    assert grown["cache_read_input_tokens"] == first["cache_creation_input_tokens"]
    assert 400 < grown["cache_creation_input_tokens"] < 700
    written = first["cache_creation_input_tokens"] + grown["cache_creation_input_tokens"]
    assert last["cache_read_input_tokens"] == written


@pytest.mark.real_client
def test_openais_own_client_reads_cached_tokens(provider: SimulatedProvider) -> None:
    chat, response, chat_again, response_again = run_with(OPENAI, OPENAI_PROGRAM, provider.url)
    assert (chat, response) == (0, 0)
    assert chat_again >= 1024
    assert response_again >= 1024


def test_no_text_of_a_prompt_is_stored(provider: SimulatedProvider) -> None:
    ask(provider, "a secret plan", system=SYSTEM, headers={"x-api-key": "sk-secret"})
    result = json.dumps(send(provider, "GET", "/_control/ledger").json)
    assert "secret" not in result
