"""Foreign errors reach clients in the texts that they act on."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects.neutral.answer import to_anthropic_error
from jackline.failures import Observation, classify


def result(status: int, **error: object) -> dict[str, str]:
    document = json.loads(to_anthropic_error(status, json.dumps({"error": error}).encode()))
    assert document["type"] == "error"
    inner: dict[str, str] = document["error"]
    return inner


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (
            400,
            {"message": "Unsupported parameter: 'top_k'.", "code": "unsupported_parameter"},
            "invalid_request_error",
        ),
        (
            401,
            {"message": "Incorrect API key provided.", "code": "invalid_api_key"},
            "authentication_error",
        ),
        (403, {"message": "Country not supported."}, "permission_error"),
        (
            404,
            {"message": "The model `x` does not exist.", "code": "model_not_found"},
            "not_found_error",
        ),
        (413, {"message": "Request entity too large."}, "request_too_large"),
        (
            429,
            {"message": "Rate limit reached for requests.", "code": "rate_limit_exceeded"},
            "rate_limit_error",
        ),
        (
            429,
            {"message": "You exceeded your current quota.", "code": "insufficient_quota"},
            "billing_error",
        ),
        (500, {"message": "The server had an error.", "type": "server_error"}, "api_error"),
        (
            503,
            {"message": "The engine is overloaded.", "code": "server_is_overloaded"},
            "overloaded_error",
        ),
        (504, {"message": "Gateway timeout"}, "timeout_error"),
    ],
)
def test_each_kind_of_error_has_its_name_and_keeps_its_sentence(
    status: int, error: dict[str, str], kind: str
) -> None:
    assert result(status, **error) == {"type": kind, "message": error["message"]}


def test_a_prompt_that_is_too_long_gets_the_message_by_which_claude_code_compacts() -> None:
    text = (
        "This model's maximum context length is 128000 tokens. "
        "However, your messages resulted in 130001 tokens."
    )
    error = result(400, message=text, code="context_length_exceeded")
    assert error == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 130001 tokens > 128000 maximum",
    }
    bare = "Your input exceeds the context window of this model."
    assert result(400, message=bare)["message"] == f"prompt is too long: {bare}"


def test_keys_that_an_error_quotes_are_blanked() -> None:
    error = result(401, message="Incorrect API key provided: sk-proj-abcdefghijkl1234567890.")
    assert "abcdefghijkl" not in error["message"]


@given(st.integers(400, 599), st.binary(max_size=100))
def test_any_body_becomes_an_error_of_anthropics(status: int, body: bytes) -> None:
    document = json.loads(to_anthropic_error(status, body))
    assert document["type"] == "error"
    assert document["error"]["message"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "rate_limit_exceeded",
            "Rate limit reached for gpt-x on tokens per min (TPM): Limit 30000.",
        ),
        ("insufficient_quota", "You exceeded your current quota, please check your plan."),
        ("usage_limit_reached", "The usage limit has been reached"),
        ("server_error", "The server had an error while processing your request."),
        ("server_is_overloaded", "Our servers are currently overloaded. Please try again later."),
        ("invalid_api_key", "Incorrect API key provided."),
        ("context_length_exceeded", "This model's maximum context length is 9 tokens."),
        ("model_not_found", "The model `x` does not exist"),
        ("content_policy_violation", "Your request was flagged by our safety system"),
    ],
)
def test_an_error_inside_of_a_stream_is_judged_the_same_in_both_languages(
    code: str, message: str
) -> None:
    foreign = json.dumps({"error": {"code": code, "message": message}}).encode()
    judged = [
        classify(
            Observation.of_stream(b"event: error\ndata: " + body + b"\n\n"),
            now=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for body in (foreign, to_anthropic_error(500, foreign))
    ]
    assert judged[0].kind is judged[1].kind
    assert judged[0].retry_same is judged[1].retry_same
    assert judged[0].failover_helps is judged[1].failover_helps
