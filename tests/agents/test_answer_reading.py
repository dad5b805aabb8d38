"""Reading a streamed answer gives what the API would have given in one piece, however it is cut."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jackline.agents.gateway_model import AnswerStreamReader, answer_from_body
from jackline.agents.runner import CUT_CALL

Block = dict[str, Any]
texts = st.text(max_size=30)
blocks = st.one_of(
    texts.map(lambda text: {"type": "text", "text": text}),
    st.builds(
        lambda text, mark: {"type": "thinking", "thinking": text, "signature": mark},
        texts,
        st.text(min_size=1, max_size=9),
    ),
    st.builds(
        lambda name, given: {
            "type": "tool_use",
            "id": f"toolu_{name}",
            "name": name,
            "input": given,
        },
        st.sampled_from(["add", "read"]),
        st.dictionaries(texts, st.one_of(st.integers(), texts, st.lists(texts)), max_size=3),
    ),
)


def streamed(content: list[Block], pieces: int = 3, *, stop: str = "end_turn") -> bytes:
    events: list[Block] = [
        {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 5}}},
        {"type": "ping"},
    ]
    for index, block in enumerate(content):
        start, deltas = _taken_apart(block, pieces)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 9}})
    events.append({"type": "message_stop"})
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events)


def _taken_apart(block: Block, pieces: int) -> tuple[Block, list[Block]]:
    match block["type"]:
        case "text":
            deltas = [{"type": "text_delta", "text": p} for p in _cut(block["text"], pieces)]
            return {"type": "text", "text": ""}, deltas
        case "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": p} for p in _cut(block["thinking"], pieces)
            ]
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
        case _:
            written = _cut(json.dumps(block["input"]), pieces) if block["input"] else [""]
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in written]
            return {**block, "input": {}}, deltas


def _cut(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // pieces))
    return [text[at : at + size] for at in range(0, len(text), size)]


@given(st.lists(blocks, max_size=4), st.integers(1, 5), st.integers(1, 200))
def test_an_answer_is_put_together_as_it_was(content: list[Block], pieces: int, chunk: int) -> None:
    wire = streamed(content, pieces)
    reader = AnswerStreamReader()
    for at in range(0, len(wire), chunk):
        assert not reader.whole
        reader.feed(wire[at : at + chunk])
    assert reader.whole
    answer = reader.answer()
    assert answer.content == content
    assert (answer.stop_reason, answer.model, answer.usage.total) == ("end_turn", "m", 14)


@given(st.lists(blocks, min_size=1, max_size=3), st.data())
def test_what_is_cut_anywhere_is_never_whole(content: list[Block], data: st.DataObject) -> None:
    wire = streamed(content)
    reader = AnswerStreamReader()
    reader.feed(wire[: data.draw(st.integers(0, len(wire) - 1))])
    assert not reader.whole


@given(st.binary(max_size=300))
def test_nothing_that_comes_makes_it_raise(junk: bytes) -> None:
    reader = AnswerStreamReader()
    reader.feed(streamed([{"type": "text", "text": "x"}])[:200])
    reader.feed(junk)
    reader.feed(b'event: message_start\ndata: {"message": 7}\n\n')
    assert not reader.whole
    assert answer_from_body(junk) is None


def test_a_tool_call_whose_input_was_cut_off_is_marked_and_can_not_run() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "write", "input": {"text": "a" * 50}}
    wire = streamed([block], stop="max_tokens")
    head, _, tail = wire.rpartition(b"event: content_block_delta")
    reader = AnswerStreamReader()
    reader.feed(head + tail[tail.index(b"event: content_block_stop") :])
    answer = reader.answer()
    assert reader.whole
    assert answer.content == [{"type": CUT_CALL, "name": "write"}]


def test_half_a_character_in_a_tools_input_does_not_break_the_answer() -> None:
    content: list[Block] = [
        {"type": "tool_use", "id": "t", "name": "add", "input": {"a": "y\ud83d"}},
    ]
    reader = AnswerStreamReader()
    reader.feed(streamed(content, pieces=1))
    assert reader.whole
    assert reader.answer().content == content
