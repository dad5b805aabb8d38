"""Anthropic's own clients for Bedrock and Vertex read what the simulator says as a cloud."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from jackline.simulator.faults import Effect, Fault
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.reply_script import Rule, Say
from jackline.testing import SimulatedProvider
from tests.simulator.vendor_sdks import CLOUDS, run_with

pytestmark = pytest.mark.real_client

PROGRAM = """
import json, sys
import anthropic

url, cloud, model = sys.argv[1:4]
if cloud == "bedrock":
    client = anthropic.AnthropicBedrock(base_url=url, aws_region="eu-west-1", aws_access_key="AK",
                                        aws_secret_key="SK", max_retries=0)
else:
    client = anthropic.AnthropicVertex(base_url=url + "/v1", region="global", project_id="p",
                                       access_token="t", max_retries=0)
tool = {"name": "weather", "input_schema": {"type": "object"}}
body = dict(model=model, max_tokens=100, tools=[tool],
            messages=[{"role": "user", "content": "weather?"}])

def run(stream):
    try:
        if stream:
            with client.messages.stream(**body) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(**body)
    except anthropic.APIStatusError as error:
        return {"error": type(error).__name__, "status": error.status_code, "words": error.message,
                "headers": dict(error.response.headers)}
    except Exception as error:
        return {"error": type(error).__name__, "words": str(error)}
    return {"text": message.content[0].text, "stop": message.stop_reason,
            "calls": [[b.name, b.input] for b in message.content if b.type == "tool_use"],
            "out": message.usage.output_tokens}

print(json.dumps([run(False), run(True)]))
"""

MODELS = {
    "bedrock": "eu.anthropic.claude-opus-4-8-v1:0",
    "vertex": "claude-opus-4-8@20260701",
}
CALLED = Say("Looking. " * 40, (("weather", {"city": "Ulm"}), ("weather", {"city": "Köln"})))


@pytest.fixture
def provider() -> Iterator[SimulatedProvider]:
    with SimulatedProvider() as running:
        running.says(Rule(CALLED, prompt="weather"))
        yield running


def ask_cloud(provider: SimulatedProvider, cloud: str) -> list[Any]:
    """What the client makes of a whole answer, and of a streamed one."""
    result: list[Any] = run_with(CLOUDS, PROGRAM, provider.url, cloud, MODELS[cloud])
    return result


@pytest.mark.parametrize("cloud", MODELS)
def test_answers_come_whole_and_streamed_to_signed_requests(
    provider: SimulatedProvider, cloud: str
) -> None:
    provider.order(lambda p: p.restart(replace(p.settings, demands_credential=True)))
    for result in ask_cloud(provider, cloud):
        assert result["text"] == CALLED.text
        assert result["calls"] == [list(call) for call in CALLED.calls]
        assert (result["stop"], result["out"]) == ("tool_use", CALLED.output_tokens)
    assert [(entry.model, entry.dialect) for entry in provider.ledger] == [
        (MODELS[cloud], cloud)
    ] * 2
    assert [one.request.stream for one in provider.recorded] == [False, True]


@pytest.mark.parametrize("cloud", MODELS)
@pytest.mark.parametrize(
    ("fault", "error", "bedrock", "vertex"),
    [
        (Effect.THROTTLED, "RateLimitError", "Too many requests", "Resource exhausted"),
        (Effect.QUOTA_WALL, "RateLimitError", "Too many tokens per day", "Quota exceeded"),
        (Effect.SERVER_ERROR, "InternalServerError", "unexpected error", "Internal error"),
        (Effect.OVERLOADED, "ServiceUnavailableError", "unable to process", "overloaded"),
    ],
)
def test_refusals_are_the_clouds_own(
    provider: SimulatedProvider, cloud: str, fault: Effect, error: str, bedrock: str, vertex: str
) -> None:
    provider.limits(BucketSettings(Counts.REQUESTS, 100))
    provider.strike(Fault(fault))
    for result in ask_cloud(provider, cloud):
        assert result["error"] == error
        assert (bedrock if cloud == "bedrock" else vertex) in result["words"]
        assert not any("ratelimit" in name for name in result["headers"])


@pytest.mark.parametrize("cloud", MODELS)
def test_an_error_inside_a_stream_breaks_it(provider: SimulatedProvider, cloud: str) -> None:
    provider.error_event(at=0.5)
    whole, streamed = ask_cloud(provider, cloud)
    assert whole["status"] == 503
    assert streamed["error"], "the client has noticed"
    assert provider.ledger.reasons["error_event"] == 1
