"""An independent translator understands us as we mean it, where both say anything at all.

llm-rosetta plays the client's reader of our requests and the server that answers us. It leaves out
errors of tools, documents in words and cleared system texts, and counts cached tokens in its own
way; there is nothing to compare there.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.openai_chat import ChatStreamTranslator, from_chat, to_chat
from jackline.dialects.openai_responses import (
    ResponsesStreamTranslator,
    from_responses,
    to_responses,
)
from jackline.dialects.sse import EventSplitter, data_of
from tests.dialects.answers import ANSWERS, Answered
from tests.dialects.strict_client import StrictClient
from tests.dialects.translation.foreign_answers import data, named
from tests.dialects.translation.oracles import Oracle
from tests.dialects.translation.requests import IDS, INPUTS, WORDS

Json = dict[str, Any]
FEW = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _is_no_number(text: str) -> bool:
    """The peer reads a result that is JSON as its value, and writes `0E0` as `0.0`."""
    try:
        return not isinstance(json.loads(text), int | float)
    except ValueError:
        return True


RESULTS = WORDS.filter(_is_no_number)


@st.composite
def common_requests(draw: st.DrawFn) -> Json:
    """What both translators can say."""
    messages: list[Json] = [{"role": "user", "content": draw(WORDS)}]
    used = draw(st.lists(IDS.filter(lambda one: len(one) <= 40), max_size=5, unique=True))
    while used:
        many = draw(st.integers(1, 3))
        batch, used = used[:many], used[many:]
        calls = [
            {"type": "tool_use", "id": one, "name": "Bash", "input": draw(INPUTS)} for one in batch
        ]
        plain_text = [{"type": "text", "text": draw(WORDS)}] if draw(st.booleans()) else []
        results = [
            {"type": "tool_result", "tool_use_id": one, "content": draw(RESULTS)} for one in batch
        ]
        messages.append({"role": "assistant", "content": plain_text + calls})
        messages.append({"role": "user", "content": results})
    sent: Json = {"model": "m", "max_tokens": draw(st.integers(1, 9999)), "messages": messages}
    sent["tools"] = [
        {"name": "Bash", "description": draw(WORDS), "input_schema": {"type": "object"}}
    ]
    extras: Json = {
        "system": draw(WORDS),
        "temperature": 0.5,
        "top_p": 0.25,
        "stream": True,
        "tool_choice": draw(
            st.sampled_from([{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "Bash"}])
        ),
    }
    for name in draw(st.lists(st.sampled_from(sorted(extras)), unique=True)):
        sent[name] = extras[name]
    return sent


def meaning(sent: Json) -> Json:
    """An Anthropic request as what it says, apart from how it is written."""
    said: list[Any] = []
    for message in sent["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            match block["type"]:
                case "text":
                    said.append((message["role"], block["text"]))
                case "tool_use":
                    said.append(("call", block["id"], block["name"], block["input"]))
                case "tool_result":
                    result = block["content"]
                    plain_text = result if isinstance(result, str) else result[0]["text"]
                    said.append(("result", block["tool_use_id"], plain_text))
    system = sent.get("system", "")
    tools = [(tool["name"], tool["description"], tool["input_schema"]) for tool in sent["tools"]]
    return {
        "said": said,
        "system": system if isinstance(system, str) else system[0]["text"],
        "tools": tools,
        "choice": sent.get("tool_choice", {}).get("type"),
        "bounds": [sent.get(name) for name in ("max_tokens", "temperature", "top_p")],
        "stream": sent.get("stream", False),
    }


@FEW
@given(sent=common_requests())
def test_a_request_comes_back_as_it_was_when_another_translates_it_back(
    oracle: Oracle, sent: Json
) -> None:
    body = json.dumps(sent).encode()
    for source, translate in (("openai_chat", to_chat), ("openai_responses", to_responses)):
        output = json.loads(translate(body, "m").body)
        back = oracle.ask("rosetta", "request", source, "anthropic", output)
        assert meaning(back) == meaning(sent)


PLAIN = [
    name
    for name, answer in ANSWERS.items()
    # It makes up a text for a refusal.
    if answer.blocks
    and all(block["type"] in ("text", "tool_use") for block in answer.blocks)
    and all(block.get("text", "x").strip() for block in answer.blocks)
]


def spoken(blocks: list[Json]) -> tuple[str, list[Any]]:
    """The text and the calls; rosetta preserves the order inside of each, not between them.

    It joins texts by a space of its own, so that only the letters can be compared.
    """
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    plain_text = "".join(text.split())
    calls = [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    return plain_text, calls


OPTIONS = AnswerOptions("claude-test")


@pytest.mark.parametrize("answer", [ANSWERS[name] for name in PLAIN], ids=PLAIN)
def test_a_whole_answer_is_the_same_as_another_translators(
    oracle: Oracle, answer: Answered
) -> None:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": answer.blocks,
        "stop_reason": answer.stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 42},
    }
    for source, translate in (("openai_chat", from_chat), ("openai_responses", from_responses)):
        foreign = oracle.ask("rosetta", "answer", source, "anthropic", message)
        output = json.loads(translate(json.dumps(foreign).encode(), OPTIONS).body)
        assert spoken(output["content"]) == spoken(answer.blocks)
        assert output["usage"]["output_tokens"] == 42
        if source == "openai_chat" and answer.stop_reason != "end_turn":
            assert output["stop_reason"] == answer.stop_reason


@pytest.mark.parametrize("answer", [ANSWERS[name] for name in PLAIN], ids=PLAIN)
def test_a_stream_is_the_same_as_another_translators(oracle: Oracle, answer: Answered) -> None:
    events = [json.loads(data_of(event)) for event in EventSplitter().feed(answer.stream)]
    chunks = oracle.ask("rosetta", "stream", "openai_chat", "anthropic", events)
    chat = ChatStreamTranslator(OPTIONS)
    output = chat.feed(b"".join(data(one) for one in chunks) + b"data: [DONE]\n\n")
    foreign = oracle.ask("rosetta", "stream", "openai_responses", "anthropic", events)
    responses = ResponsesStreamTranslator(OPTIONS)
    for stream, whole in (
        (output, chat.whole),
        (responses.feed(b"".join(named(one) for one in foreign)), responses.whole),
    ):
        client = StrictClient()
        client.read(stream)
        assert whole
        assert client.complete
        assert spoken(client.blocks) == spoken(answer.blocks)
        calls = [block["id"] for block in client.blocks if block["type"] == "tool_use"]
        assert len(set(calls)) == len(calls)
