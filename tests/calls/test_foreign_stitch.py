"""Answers in OpenAI's dialects are mended until something of them has gone out, and then cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.calls.stitch import AskAgain, BreakOff, Mode, OpenAiStitch
from jackline.dialects import TokenUsage


def chat_events() -> list[bytes]:
    def chunk(delta: dict[str, object], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        data = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}
        return f"data: {json.dumps(data)}\n\n".encode()

    usage = {
        "object": "chat.completion.chunk",
        "choices": [],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    return [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hello"}),
        chunk({"content": " you"}),
        chunk({}, "stop"),
        f"data: {json.dumps(usage)}\n\n".encode(),
        b"data: [DONE]\n\n",
    ]


def responses_events() -> list[bytes]:
    def event(kind: str, **fields: object) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()

    done = {"id": "resp_1", "usage": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}}
    return [
        event("response.created", response={"id": "resp_1"}),
        event("response.in_progress", response={"id": "resp_1"}),
        event("response.output_item.added", output_index=0, item={"type": "message"}),
        event("response.output_text.delta", output_index=0, delta="Hello"),
        event("response.completed", response=done),
    ]


def stitch(mode: Mode, responses: bool) -> OpenAiStitch:
    made = OpenAiStitch(mode, responses=responses)
    made.attempt_began()
    return made


@pytest.mark.parametrize("responses", [False, True])
@pytest.mark.parametrize("mode", ["live", "block"])
@given(cuts=st.lists(st.integers(1, 4000), max_size=6))
def test_a_whole_answer_goes_out_byte_for_byte_however_it_was_cut(
    mode: Mode, responses: bool, cuts: list[int]
) -> None:
    whole = b"".join(responses_events() if responses else chat_events())
    places = [0, *sorted(cut % len(whole) for cut in cuts), len(whole)]
    made = stitch(mode, responses)
    out = b"".join(made.feed(whole[a:b]) for a, b in pairwise(places))
    assert out == whole
    assert made.complete
    assert (made.usage.input_tokens, made.usage.output_tokens) == (7, 3)


@pytest.mark.parametrize("responses", [False, True])
@pytest.mark.parametrize("mode", ["live", "block"])
def test_a_break_anywhere_is_repaired_unseen_or_cut_and_never_looks_whole(
    mode: Mode, responses: bool
) -> None:
    whole = b"".join(responses_events() if responses else chat_events())
    end = whole.rindex(b"\n\n")
    for cut in range(end):
        made = stitch(mode, responses)
        out = made.feed(whole[:cut])
        assert not made.complete
        repair = made.broke()
        if out:
            assert mode == "live"
            assert isinstance(repair, BreakOff)
            made.attempt_began()
            assert made.feed(whole) == b"", "two answers never run into each other"
        else:
            assert isinstance(repair, AskAgain)
            made.attempt_began()
            assert made.feed(whole) == whole


def test_a_live_answer_of_responses_waits_for_real_content() -> None:
    made = stitch("live", responses=True)
    created, progress, item, *_ = responses_events()
    assert made.feed(created + progress) == b""
    assert made.feed(item) == created + progress + item


def test_an_error_in_the_stream_is_told_and_not_passed_on() -> None:
    made = stitch("live", responses=True)
    error = {"type": "error", "code": "server_error", "message": "sorry"}
    made.feed(responses_events()[0])
    assert made.feed(f"event: error\ndata: {json.dumps(error)}\n\n".encode()) == b""
    assert made.error_event is not None
    assert made.broken
    assert isinstance(made.broke(), AskAgain)


@pytest.mark.parametrize("responses", [False, True])
def test_what_a_failed_answer_says_that_it_has_used_counts(responses: bool) -> None:
    used = {"prompt_tokens": 7, "completion_tokens": 3}
    failed: dict[str, object] = {"error": {"message": "The server had an error"}, "usage": used}
    if responses:
        failed = {"type": "response.failed", "response": failed}
    reader = stitch("live", responses)
    name = b"event: response.failed\n" if responses else b""
    assert not reader.feed(name + b"data: " + json.dumps(failed).encode() + b"\n\n")
    assert reader.error_event is not None
    assert reader.usage == TokenUsage(7, 3)
