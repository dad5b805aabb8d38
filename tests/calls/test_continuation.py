"""A model is asked to go on only where it is known to do so, the request otherwise the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.calls.continuation import prefilled, takes_prefill

ASKED: dict[str, Any] = {
    "model": "claude-sonnet-4-5-20250929",
    "messages": [{"role": "user", "content": "Grüße \u2028"}],
    "temperature": 0.10,
    "unknown": {"x": [1, None]},
    "stream": True,
}


def asked(**changed: object) -> bytes:
    return json.dumps({**ASKED, **changed}).encode()


@pytest.mark.parametrize(
    "model",
    [
        "claude-3-5-sonnet-20241022",
        "claude-3-haiku-20240307",
        "claude-3-7-sonnet-latest",
        "claude-sonnet-4-20250514",
        "claude-opus-4-0",
        "claude-opus-4-1-20250805",
        "claude-haiku-4-5",
        "claude-opus-4-5-20251101",
    ],
)
def test_older_models_take_a_prefill(model: str) -> None:
    assert takes_prefill(model)
    assert prefilled(asked(model=model), "So") is not None


@pytest.mark.parametrize(
    "model",
    [
        "claude-opus-4-6",
        "claude-sonnet-4-6-20260101",
        "claude-opus-4-8",
        "claude-sonnet-5",
        "gpt-5",
    ],
)
def test_newer_and_unknown_models_do_not(model: str) -> None:
    assert not takes_prefill(model)
    assert prefilled(asked(model=model), "So") is None


@pytest.mark.parametrize(
    "changed",
    [
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"thinking": {"type": "adaptive"}},
        {"tool_choice": {"type": "any"}},
        {"tool_choice": {"type": "tool", "name": "x"}},
        {"output_format": {"type": "json_schema"}},
        {"output_config": {"format": {"type": "json_schema"}}},
        {"messages": []},
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
        {"messages": "odd"},
    ],
)
def test_requests_that_exclude_a_prefill_are_left_alone(changed: dict[str, object]) -> None:
    assert prefilled(asked(**changed), "So") is None


@given(st.text())
def test_the_words_are_appended_and_nothing_else_is_changed(words: str) -> None:
    allowed = asked(
        thinking={"type": "disabled"}, tool_choice={"type": "auto"}, output_config={"effort": "low"}
    )
    body = prefilled(allowed, words)
    if not words.strip():
        assert body is None
        return
    assert body is not None
    before, after = json.loads(allowed), json.loads(body)
    assert list(after) == list(before)
    added = after["messages"].pop()
    assert added == {"role": "assistant", "content": words.rstrip()}
    assert after == before
    assert words.startswith(words.rstrip())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model":"claude-3-x"}', b"[" * 100_000])
def test_a_body_that_cannot_be_read_is_not_continued(body: bytes) -> None:
    assert prefilled(body, "So") is None
