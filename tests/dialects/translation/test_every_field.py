"""Every field of a request is used, noted or refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from jackline.dialects.neutral.fields import TranslatedDocument, UntranslatableError
from jackline.dialects.openai_chat import to_chat
from jackline.dialects.openai_responses import to_responses
from tests.dialects.translation.leaves import all_values, keys, leaves, names, numbered
from tests.dialects.translation.requests import Alien, alien_requests, requests

Translate = Callable[[bytes, str], TranslatedDocument]
BOTH = pytest.mark.parametrize("translate", [to_chat, to_responses])
# Which field of the target says that a flag is set.
FLAGS = {
    "stream": ("stream", True),
    "strict": ("strict", True),
    "disable_parallel_tool_use": ("parallel_tool_calls", False),
}
CHOICES = {"any": "required", "tool": "function"}


def _is_carried(path: str, value: Any, output: Any, received: list[Any], strings: str) -> bool:
    name = path.rsplit(".", 1)[-1]
    if name in FLAGS and value is True:
        return FLAGS[name] in list(keys(output))
    if isinstance(value, str):
        return CHOICES.get(value, value) in strings
    if value is None or value is False:
        # What is not there, or not set, is what the target takes for granted.
        return True
    return any(type(one) is type(value) and one == value for one in received)


@BOTH
@given(sent=requests())
def test_every_leaf_is_used_or_noted(translate: Translate, sent: dict[str, Any]) -> None:
    sent = numbered(sent)
    result = translate(json.dumps(sent).encode(), "gpt-x")
    output = json.loads(result.body)
    received = list(all_values(output))
    strings = "\0".join(one for one in received if isinstance(one, str))
    for path, value in leaves(sent):
        if path == "model" or path.rsplit(".", 1)[-1] in ("type", "role"):
            continue
        noted = any(names(note, path) for note in result.notes)
        assert noted or _is_carried(path, value, output, received, strings), path


@BOTH
@given(alien=alien_requests())
def test_what_nobody_knows_is_refused_by_its_path(translate: Translate, alien: Alien) -> None:
    with pytest.raises(UntranslatableError) as refused:
        translate(json.dumps(alien.request).encode(), "gpt-x")
    assert refused.value.at == alien.at


@BOTH
@given(sent=requests())
def test_notes_and_refusals_name_places_and_never_content(
    translate: Translate, sent: dict[str, Any]
) -> None:
    spoken = "XYZZY-7291"
    marked = json.loads(json.dumps(sent), object_hook=lambda one: _marked(one, spoken))
    result = translate(json.dumps(marked).encode(), "gpt-x")
    assert spoken in result.body.decode()
    assert not any(spoken in note for note in result.notes)


def _marked(one: dict[str, Any], spoken: str) -> dict[str, Any]:
    if one.get("role") == "user":
        return {**one, "content": [*_listed(one["content"]), {"type": "text", "text": spoken}]}
    return one


def _listed(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@BOTH
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"null", b'{"messages": 7}', b'{"messages": [7]}', b'{"system": "\xff"}'],
)
def test_a_body_that_is_no_request_is_refused_and_nothing_else_is_raised(
    translate: Translate, body: bytes
) -> None:
    with pytest.raises(UntranslatableError):
        translate(body, "gpt-x")
