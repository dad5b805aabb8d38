"""Answers as OpenAI's servers give them, whole and streamed, made from one description.

Rules: (1) the whole form and the streamed form of an answer say the same; (2) fragments of parallel
calls come in any order that keeps each call's own; (3) it shares no code with what reads it.
Not here: what is asserted.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.dialects.translation.requests import INPUTS, WORDS

Json = dict[str, Any]
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 60},
}
RESPONSE_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 0},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 120,
}


@dataclass(frozen=True)
class Call:
    """A call as the model made it; `pieces` are its arguments as they were streamed."""

    id: str
    name: str
    pieces: tuple[str, ...]

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class Answer:
    """What was answered: text in pieces, then calls, whose fragments come in this order."""

    reasoning: tuple[str, ...]
    words: tuple[str, ...]
    calls: tuple[Call, ...]
    order: tuple[int, ...]
    finish: str

    @property
    def text(self) -> str:
        return "".join(self.words)


def _cut(draw: st.DrawFn, whole: str) -> tuple[str, ...]:
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=3)))
    edges = [0, *places, len(whole)]
    return tuple(whole[start:end] for start, end in itertools.pairwise(edges))


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    ids = draw(
        st.one_of(
            st.lists(
                st.integers(10**20, 10**24).map(lambda n: f"call_{n}"), max_size=3, unique=True
            ),
            st.lists(st.sampled_from(["", "0", "call_0", "functions.Bash:0"]), max_size=3),
        )
    )
    calls = tuple(
        Call(known, draw(st.sampled_from(["Bash", "Read"])), _cut(draw, json.dumps(draw(INPUTS))))
        for known in ids
    )
    fragments = [place for place, call in enumerate(calls) for _ in call.pieces]
    return Answer(
        tuple(draw(st.lists(WORDS, max_size=2))),
        tuple(draw(st.lists(WORDS, max_size=3))),
        calls,
        tuple(draw(st.permutations(fragments))),
        draw(st.sampled_from(["tool_calls" if calls else "stop", "length", "content_filter"])),
    )


def data(document: Json) -> bytes:
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n".encode()


def named(document: Json) -> bytes:
    return f"event: {document['type']}\n".encode() + data(document)


# --- chat ----------------------------------------------------------------------------------------


def chat_whole(answer: Answer) -> bytes:
    message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = "".join(answer.reasoning)
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
    return json.dumps(
        {**FRAME, "object": "chat.completion", "choices": [choice], "usage": USAGE}
    ).encode()


FRAME: Json = {"id": "chatcmpl-9aXbYc", "created": 1700000000, "model": "gpt-x"}
CHUNK: Json = {**FRAME, "object": "chat.completion.chunk"}


def chunk(delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return data({**CHUNK, "choices": [choice], "usage": None})


def chat_events(answer: Answer) -> list[bytes]:
    events = [chunk({"role": "assistant", "content": "", "refusal": None})]
    events += [chunk({"reasoning_content": piece}) for piece in answer.reasoning]
    events += [chunk({"content": piece}) for piece in answer.words]
    # A server begins its calls one after the other, and may then fill them in any order.
    left = []
    for place, call in enumerate(answer.calls):
        function: Json = {"name": call.name, "arguments": ""}
        head = {"index": place, "id": call.id, "type": "function", "function": function}
        events.append(chunk({"tool_calls": [head]}))
        left.append(list(call.pieces))
    for place in answer.order:
        piece = {"index": place, "function": {"arguments": left[place].pop(0)}}
        events.append(chunk({"tool_calls": [piece]}))
    events.append(chunk({}, answer.finish))
    events.append(data({**CHUNK, "choices": [], "usage": USAGE}))
    events.append(b"data: [DONE]\n\n")
    return events


# --- responses -----------------------------------------------------------------------------------

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def responses_document(answer: Answer) -> Json:
    output: list[Json] = []
    if answer.reasoning:
        summary = [{"type": "summary_text", "text": piece} for piece in answer.reasoning]
        output.append({"id": "rs_1", "type": "reasoning", "summary": summary})
    if answer.words:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        output.append(
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    for place, call in enumerate(answer.calls):
        output.append(
            {
                "id": f"fc_{place}",
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
                "status": "completed",
            }
        )
    reason = INCOMPLETE.get(answer.finish)
    return {
        "id": "resp_67ccd2bed1ec8190",
        "object": "response",
        "created_at": 1700000000,
        "status": "incomplete" if reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": None,
        "metadata": {},
        "model": "gpt-x",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": RESPONSE_USAGE,
    }


def responses_whole(answer: Answer) -> bytes:
    return json.dumps(responses_document(answer)).encode()


def responses_events(answer: Answer) -> list[bytes]:
    document = responses_document(answer)
    begun = {**document, "status": "in_progress", "output": [], "usage": None}
    told: list[Json] = [
        {"type": "response.created", "response": {**begun, "incomplete_details": None}},
        {"type": "response.in_progress", "response": {**begun, "incomplete_details": None}},
    ]
    first_call = len(document["output"]) - len(answer.calls)
    for place, item in enumerate(document["output"][:first_call]):
        told += _spoken_item(place, item, answer)
    for place, item in enumerate(document["output"][first_call:], first_call):
        empty = {**item, "arguments": "", "status": "in_progress"}
        told.append({"type": "response.output_item.added", "output_index": place, "item": empty})
    left = [list(call.pieces) for call in answer.calls]
    for number in answer.order:
        at = {"output_index": first_call + number, "item_id": f"fc_{number}"}
        piece = left[number].pop(0)
        told.append({"type": "response.function_call_arguments.delta", "delta": piece, **at})
        if not left[number]:
            item = document["output"][first_call + number]
            whole = {"arguments": item["arguments"], **at}
            told.append({"type": "response.function_call_arguments.done", **whole})
            told.append(
                {
                    "type": "response.output_item.done",
                    "output_index": at["output_index"],
                    "item": item,
                }
            )
    ended = "response.incomplete" if document["incomplete_details"] else "response.completed"
    told.append({"type": ended, "response": document})
    return [named({**event, "sequence_number": place}) for place, event in enumerate(told)]


def _spoken_item(place: int, item: Json, answer: Answer) -> list[Json]:
    at = {"output_index": place, "item_id": item["id"]}
    if item["type"] == "reasoning":
        empty = {**item, "summary": []}
        deltas = [
            {
                "type": "response.reasoning_summary_text.delta",
                "delta": piece,
                "summary_index": number,
                **at,
            }
            for number, piece in enumerate(answer.reasoning)
        ]
    else:
        empty = {**item, "content": [], "status": "in_progress"}
        part = {"type": "output_text", "text": "", "annotations": []}
        where = {"content_index": 0, **at}
        deltas = [
            {"type": "response.content_part.added", "part": part, **where},
            *(
                {"type": "response.output_text.delta", "delta": piece, "logprobs": [], **where}
                for piece in answer.words
            ),
            {"type": "response.output_text.done", "text": answer.text, "logprobs": [], **where},
            {"type": "response.content_part.done", "part": item["content"][0], **where},
        ]
    return [
        {"type": "response.output_item.added", "output_index": place, "item": empty},
        *deltas,
        {"type": "response.output_item.done", "output_index": place, "item": item},
    ]
