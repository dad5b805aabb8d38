"""OpenAI's own Python SDK reads what the simulator says in OpenAI's dialects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from jackline.simulator.faults import Effect, Fault
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.reply_script import Rule, Say, structured
from jackline.testing import SimulatedProvider
from tests.simulator.vendor_sdks import OPENAI, run_with

pytestmark = pytest.mark.real_client

# Every answer is checked against the SDK's types, none left out, before it is printed.
PROGRAM = """
import json, sys
import openai
from pydantic import TypeAdapter
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

client = openai.OpenAI(api_key="sk-test", base_url=sys.argv[1] + "/v1", max_retries=0, timeout=120)
event_type = TypeAdapter(ResponseStreamEvent)

def chat(body, stream):
    if not stream:
        whole = client.chat.completions.create(**body)
        ChatCompletion.model_validate(whole.to_dict(), strict=True)
    else:
        body = {**body, "stream_options": {"include_usage": True}}
        with client.chat.completions.stream(**body) as events:
            for event in events:
                if event.type == "chunk":
                    ChatCompletionChunk.model_validate(event.chunk.to_dict(), strict=True)
            whole = events.get_final_completion()
    spoken, usage = whole.choices[0].message, whole.usage
    calls = [[c.id, c.function.name, json.loads(c.function.arguments)]
             for c in spoken.tool_calls or ()]
    return {"text": spoken.content or "", "refusal": spoken.refusal, "calls": calls,
            "finish": whole.choices[0].finish_reason,
            "usage": [usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens,
                      usage.completion_tokens]}

def responses(body, stream):
    if not stream:
        whole = client.responses.create(**body)
    else:
        numbers = []
        with client.responses.stream(**body) as events:
            for event in events:
                numbers.append(event.sequence_number)
                if event.type in ("response.failed", "error"):
                    event_type.validate_python(event.to_dict(), strict=True)
            cut = event.type == "response.incomplete"
            whole = event.response if cut else events.get_final_response()
        assert numbers == list(range(len(numbers)))
    Response.model_validate(json.loads(whole.to_json()), strict=True)
    calls = [[i.call_id, i.name, json.loads(i.arguments)]
             for i in whole.output if i.type == "function_call"]
    refusals = [p.refusal for i in whole.output if i.type == "message"
                for p in i.content if p.type == "refusal"]
    reason = whole.incomplete_details.reason if whole.incomplete_details else whole.status
    return {"text": whole.output_text, "refusal": refusals[0] if refusals else None,
            "calls": calls, "finish": reason,
            "usage": [whole.usage.input_tokens, whole.usage.input_tokens_details.cached_tokens,
                      whole.usage.output_tokens]}

def run(job):
    try:
        return globals()[job["api"]](job["body"], job["stream"])
    except openai.APIStatusError as error:
        return {"error": type(error).__name__, "status": error.status_code, "code": error.code,
                "type": error.type, "headers": dict(error.response.headers)}
    except openai.APIError as error:
        return {"error": type(error).__name__, "code": error.code, "type": error.type}

told = {"models": [m.id for m in client.models.list()]} if sys.argv[2] == "models" else [
    run(job) for job in json.loads(sys.argv[2])]
print(json.dumps(told))
"""

WAYS = [(api, stream) for api in ("chat", "responses") for stream in (False, True)]
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.fixture
def provider() -> Iterator[SimulatedProvider]:
    with SimulatedProvider() as running:
        yield running


def ask_in_all_ways(provider: SimulatedProvider, prompt: str = "weather?") -> list[Any]:
    """What the SDK makes of the same question, by both endpoints, whole and streamed."""
    return run_jobs(provider, [job(api, stream, prompt) for api, stream in WAYS])


def run_jobs(provider: SimulatedProvider, jobs: list[dict[str, Any]]) -> list[Any]:
    result: list[Any] = run_with(OPENAI, PROGRAM, provider.url, json.dumps(jobs))
    return result


def job(api: str, stream: bool, prompt: str, *after: dict[str, Any], **more: Any) -> dict[str, Any]:
    entries = [{"role": "user", "content": prompt}, *after]
    named = {"type": "function", "name": "weather", "parameters": TOOL}
    body: dict[str, Any] = {"model": "gpt-5", **more}
    if api == "chat":
        body |= {
            "messages": entries,
            "tools": [{"type": "function", "function": {"name": "weather", "parameters": TOOL}}],
        }
    else:
        body |= {"input": entries, "tools": [named]}
    return {"api": api, "stream": stream, "body": body}


def test_text_and_parallel_calls_come_whole_with_their_usage(provider: SimulatedProvider) -> None:
    message = Say(
        "Looking at „both“ cities. " * 20, (("weather", {"city": "Köln"}), ("weather", {}))
    )
    provider.says(message)
    for result in ask_in_all_ways(provider):
        assert result["text"] == message.text
        assert [call[1:] for call in result["calls"]] == [
            ["weather", {"city": "Köln"}],
            ["weather", {}],
        ]
        assert len({call[0] for call in result["calls"]}) == 2
        assert result["finish"] in ("tool_calls", "completed")
        assert result["usage"][1:] == [0, message.output_tokens]
    ledger = provider.ledger
    assert ledger.useful == 4
    assert ledger.summary()["dialects"] == {"openai-chat": 2, "openai-responses": 2}


def test_results_of_tools_are_read_back(provider: SimulatedProvider) -> None:
    provider.says(Rule(Say("Rain."), results="12 mm", turn=1), Say("no result was read"))
    function = {"name": "weather", "arguments": "{}"}
    calls = [{"id": f"c{n}", "type": "function", "function": function} for n in (1, 2)]
    chat: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "12 mm"},
        {"role": "tool", "tool_call_id": "c2", "content": "dry"},
    ]
    items = [{"type": "function_call", "call_id": f"c{n}", **function} for n in (1, 2)]
    outputs = [
        {"type": "function_call_output", "call_id": "c1", "output": "12 mm"},
        {"type": "function_call_output", "call_id": "c2", "output": "dry"},
    ]
    jobs = [job("chat", True, "weather?", *chat), job("responses", True, "?", *items, *outputs)]
    for result in run_jobs(provider, jobs):
        assert result["text"] == "Rain."
        assert result["usage"][1] == 0, "so short a prompt is not cached"


def test_structured_output_comes_as_text_by_the_schema(provider: SimulatedProvider) -> None:
    provider.says(structured({"city": "Ulm"}))
    schema = {"name": "place", "schema": TOOL}
    jobs = [
        job("chat", stream, "?", response_format={"type": "json_schema", "json_schema": schema})
        for stream in (False, True)
    ] + [
        job("responses", stream, "?", text={"format": {"type": "json_schema", **schema}})
        for stream in (False, True)
    ]
    for result in run_jobs(provider, jobs):
        assert (json.loads(result["text"]), result["calls"]) == ({"city": "Ulm"}, [])


def test_stop_reasons_are_those_of_the_dialect(provider: SimulatedProvider) -> None:
    provider.says(
        Rule(Say("cut", stop="max_tokens"), prompt="long"),
        Rule(Say("No.", stop="refusal"), prompt="bad"),
    )
    assert [result["finish"] for result in ask_in_all_ways(provider, "hi")] == ["stop"] * 2 + [
        "completed"
    ] * 2
    jobs = [job("chat", False, "long"), *(job("responses", s, "long") for s in (False, True))]
    assert [result["finish"] for result in run_jobs(provider, jobs)] == ["length"] + [
        "max_output_tokens"
    ] * 2
    assert {result["refusal"] for result in ask_in_all_ways(provider, "bad")} == {"No."}


def test_a_named_limit_is_a_rate_limit_with_headers_and_a_wait(
    provider: SimulatedProvider,
) -> None:
    provider.limits(BucketSettings(Counts.REQUESTS, 1), BucketSettings(Counts.INPUT_TOKENS, 10**6))
    result = run_jobs(provider, [job("chat", True, "a"), job("chat", True, "b")])[1]
    assert (result["error"], result["code"], result["type"]) == (
        "RateLimitError", "rate_limit_exceeded", "requests",
    )  # fmt: skip
    headers = result["headers"]
    assert headers["x-ratelimit-limit-requests"] == "1"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-ratelimit-limit-tokens"] == "1000000"
    assert headers["x-ratelimit-reset-requests"] in ("59s", "1m0s", "1m1s")
    assert int(headers["retry-after"]) >= 55
    assert not any(name.startswith("anthropic") for name in headers)


@pytest.mark.parametrize(
    ("fault", "error", "status", "code"),
    [
        (Fault(Effect.QUOTA_WALL), "RateLimitError", 429, "insufficient_quota"),
        (Fault(Effect.THROTTLED, retry_after=7), "RateLimitError", 429, "rate_limit_exceeded"),
        (Fault(Effect.SERVER_ERROR), "InternalServerError", 500, None),
        (Fault(Effect.OVERLOADED), "InternalServerError", 503, None),
    ],
)
def test_refusals_are_the_sdks_own_errors(
    provider: SimulatedProvider, fault: Fault, error: str, status: int, code: str | None
) -> None:
    provider.strike(fault)
    for result in ask_in_all_ways(provider):
        assert (result["error"], result["status"], result["code"]) == (error, status, code)
        assert result["headers"]["x-request-id"].startswith("req_")
        assert (result["headers"].get("retry-after") == "7") is (fault.retry_after == 7)


@pytest.mark.parametrize(
    ("status", "code"), [(None, "server_is_overloaded"), (500, "server_error")]
)
def test_an_error_inside_a_stream_is_raised(
    provider: SimulatedProvider, status: int | None, code: str
) -> None:
    provider.strike(Fault(Effect.ERROR_EVENT, status=status, at_share=0.5))
    for result in run_jobs(provider, [job("chat", True, "a"), job("responses", True, "b")]):
        assert (result["error"], result["code"]) == ("APIError", code)


def test_the_models_are_listed(provider: SimulatedProvider) -> None:
    result = run_with(OPENAI, PROGRAM, provider.url, "models")
    assert result["models"] == list(provider.order(lambda playing: playing.settings.models))
