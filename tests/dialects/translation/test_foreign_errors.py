"""Foreign errors reach clients in the words that they act on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects.neutral.foreign_error import to_anthropic_error


def told(status: int, **error: object) -> dict[str, str]:
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
    assert told(status, **error) == {"type": kind, "message": error["message"]}


def test_a_prompt_that_is_too_long_is_told_in_the_sentence_that_claude_code_compacts_by() -> None:
    words = (
        "This model's maximum context length is 128000 tokens. "
        "However, your messages resulted in 130001 tokens."
    )
    error = told(400, message=words, code="context_length_exceeded")
    assert error == {
        "type": "invalid_request_error",
        "message": "prompt is too long: 130001 tokens > 128000 maximum",
    }
    bare = "Your input exceeds the context window of this model."
    assert told(400, message=bare)["message"] == f"prompt is too long: {bare}"


def test_keys_that_an_error_quotes_are_blanked() -> None:
    error = told(401, message="Incorrect API key provided: sk-proj-abcdefghijkl1234567890.")
    assert "abcdefghijkl" not in error["message"]


@given(st.integers(400, 599), st.binary(max_size=100))
def test_any_body_becomes_an_error_of_anthropics(status: int, body: bytes) -> None:
    document = json.loads(to_anthropic_error(status, body))
    assert document["type"] == "error"
    assert document["error"]["message"]
