"""What we write is what the vendors' own SDKs take, and what we are fed is what they give."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.openai_chat import ChatStreamTranslator, from_chat, to_chat
from jackline.dialects.openai_responses import (
    ResponsesStreamTranslator,
    from_responses,
    to_responses,
)
from tests.dialects.translation.foreign_answers import (
    Answer,
    answers,
    chat_events,
    chat_whole,
    responses_document,
    responses_events,
    responses_whole,
)
from tests.dialects.translation.oracles import Oracle, OracleError
from tests.dialects.translation.requests import requests

OPTIONS = AnswerOptions("claude-opus-4-8")
FEW = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FEW
@given(sent=requests())
def test_openais_types_take_every_request_that_we_write(
    oracle: Oracle, sent: dict[str, Any]
) -> None:
    body = json.dumps(sent).encode()
    for kind, translate in (("chat request", to_chat), ("responses request", to_responses)):
        result = json.loads(translate(body, "gpt-x").body)
        assert oracle.ask("typed", kind, result) == result


def test_openais_types_refuse_what_does_not_belong_there(oracle: Oracle) -> None:
    """The judge can say no: deep inside of a message, too."""
    message = {"role": "tool", "tool_call_id": "1", "content": "x", "warp_drive": 1}
    with pytest.raises(OracleError, match="warp_drive"):
        oracle.ask("typed", "chat request", {"model": "m", "messages": [message]})
    item = {"type": "function_call_output", "call_id": "1", "output": [{"type": "warp"}]}
    with pytest.raises(OracleError):
        oracle.ask("typed", "responses request", {"model": "m", "input": [item]})


@FEW
@given(answer=answers())
def test_anthropics_types_take_every_message_that_we_write(oracle: Oracle, answer: Answer) -> None:
    for body in (
        from_chat(chat_whole(answer), OPTIONS).body,
        from_responses(responses_whole(answer), OPTIONS).body,
    ):
        result = json.loads(body)
        assert oracle.ask("typed", "message", result) == result


@FEW
@given(answer=answers())
def test_anthropics_client_reads_every_stream_that_we_write(oracle: Oracle, answer: Answer) -> None:
    for translator, events, whole in (
        (
            ChatStreamTranslator(OPTIONS),
            chat_events(answer),
            from_chat(chat_whole(answer), OPTIONS),
        ),
        (
            ResponsesStreamTranslator(OPTIONS),
            responses_events(answer),
            from_responses(responses_whole(answer), OPTIONS),
        ),
    ):
        stream = translator.feed(b"".join(events))
        read = oracle.ask("streamed", stream.decode())
        wanted = json.loads(whole.body)
        assert {name: read[name] for name in wanted} == wanted


@FEW
@given(answer=answers())
def test_the_answers_of_these_tests_are_what_openais_types_describe(
    oracle: Oracle, answer: Answer
) -> None:
    plain = Answer((), answer.words, answer.calls, answer.order, answer.finish)
    oracle.ask("typed", "chat answer", json.loads(chat_whole(plain)))
    for event in chat_events(plain)[:-1]:
        oracle.ask("typed", "chat chunk", json.loads(event.removeprefix(b"data: ")))
    oracle.ask("typed", "responses answer", responses_document(answer))
    for event in responses_events(answer):
        oracle.ask("typed", "responses event", json.loads(event.split(b"data: ", 1)[1]))
