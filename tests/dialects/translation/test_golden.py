"""Small pairs that a person can read: requests and answers of both sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jackline.dialects.neutral.fields import UntranslatableError
from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.openai_chat import ChatStreamTranslator, from_chat, to_chat
from jackline.dialects.openai_responses import (
    ResponsesStreamTranslator,
    from_responses,
    to_responses,
)

DATA = Path(__file__).parent / "data"
REQUESTS = sorted((DATA / "requests").glob("*.json"))
ANSWERS = sorted((DATA / "answers").glob("*.json"))
OPTIONS = AnswerOptions("claude-opus-4-8", {"mcp_short": "mcp__real_name"}, ("END",))


def pair(file: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return loaded


@pytest.mark.parametrize("dialect", ["chat", "responses"])
@pytest.mark.parametrize("file", REQUESTS, ids=lambda file: file.stem)
def test_a_request_is_translated_as_in_its_file(file: Path, dialect: str) -> None:
    golden = pair(file)
    translate = to_chat if dialect == "chat" else to_responses
    body = json.dumps(golden["asked"]).encode()
    if f"{dialect}_refused" in golden:
        with pytest.raises(UntranslatableError) as refused:
            translate(body, "gpt-x")
        assert str(refused.value) == golden[f"{dialect}_refused"]
    else:
        result = translate(body, "gpt-x")
        assert json.loads(result.body) == golden[dialect]
        assert list(result.notes) == golden[f"{dialect}_notes"]


@pytest.mark.parametrize("file", ANSWERS, ids=lambda file: file.stem)
def test_an_answer_is_translated_as_in_its_file(file: Path) -> None:
    golden = pair(file)
    translate = from_chat if golden["dialect"] == "chat" else from_responses
    result = translate(json.dumps(golden["answer"]).encode(), OPTIONS)
    assert json.loads(result.body) == golden["anthropic"]
    assert list(result.notes) == golden["notes"]
    assert result.is_error is golden["is_error"]


@pytest.mark.parametrize(
    ("name", "translator"),
    [("chat", ChatStreamTranslator(OPTIONS)), ("responses", ResponsesStreamTranslator(OPTIONS))],
)
def test_a_stream_is_translated_as_in_its_file(
    name: str, translator: ChatStreamTranslator | ResponsesStreamTranslator
) -> None:
    result = translator.feed((DATA / "streams" / f"{name}.sse").read_bytes())
    wanted = (DATA / "streams" / f"{name}.anthropic.sse").read_bytes()
    # A checkout may have changed the line ends of both.
    assert result == wanted.replace(b"\r\n", b"\n")
    assert translator.whole
    assert [note.split(": ")[1][:9] for note in translator.notes.sentences()] == ["reasoning"]
