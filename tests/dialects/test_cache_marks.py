"""Cache marks that ask for an hour: nothing else of a request changes, not by a byte."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from jackline.providers.sent_request import with_hour_marks
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.exchange import ProviderRefusal

HOUR = {"type": "ephemeral", "ttl": "1h"}
MARKS = st.sampled_from(
    [
        {"type": "ephemeral"},
        {"type": "ephemeral", "ttl": "5m"},
        {"ttl": "5m", "type": "ephemeral", "scope": "global"},
        HOUR,
    ]
).map(dict)
# Words that look like a mark, and what JSON has to escape.
TEXTS = st.lists(
    st.sampled_from(['"cache_control":{"type":"ephemeral"}', "\\", '"', "{", "}", "é", "\n", "x"]),
    max_size=6,
).map("".join)
# A tool's schema, or its input from the model, has no marks.
FOREIGN = st.fixed_dictionaries(
    {"a": TEXTS}, optional={"cache_control": MARKS, "b": st.lists(st.fixed_dictionaries({}))}
)
TEXT_BLOCKS = st.fixed_dictionaries(
    {"type": st.just("text"), "text": TEXTS}, optional={"cache_control": MARKS | st.none()}
)
BLOCKS = st.one_of(
    TEXT_BLOCKS,
    st.fixed_dictionaries(
        {"type": st.just("tool_use"), "name": TEXTS, "input": FOREIGN},
        optional={"cache_control": MARKS},
    ),
    st.fixed_dictionaries(
        {"type": st.just("tool_result"), "content": st.lists(TEXT_BLOCKS, max_size=2) | TEXTS},
        optional={"cache_control": MARKS},
    ),
)
TOOLS = st.fixed_dictionaries(
    {"name": TEXTS, "input_schema": FOREIGN}, optional={"cache_control": MARKS}
)
REQUESTS = st.fixed_dictionaries(
    {"model": st.just("claude-opus-4-8")},
    optional={
        "system": st.lists(TEXT_BLOCKS, max_size=3) | TEXTS,
        "tools": st.lists(TOOLS, max_size=3),
        "metadata": st.fixed_dictionaries({"user_id": TEXTS}),
        "cache_control": MARKS,
        "messages": st.lists(
            st.fixed_dictionaries(
                {"role": st.just("user"), "content": st.lists(BLOCKS, max_size=3) | TEXTS}
            ),
            max_size=3,
        ),
    },
)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :\n ")])


def expected(request: dict[str, Any]) -> dict[str, Any]:
    """The request with every mark of an hour, found in the decoded document."""
    changed = copy.deepcopy(request)

    def change(node: object) -> None:
        if isinstance(node, list):
            for each in node:
                change(each)
        elif isinstance(node, dict):
            if isinstance(node.get("cache_control"), dict):
                node["cache_control"]["ttl"] = "1h"
            for name, value in node.items():
                if name not in ("input", "input_schema", "cache_control"):
                    change(value)

    change(changed)
    return changed


def differs_in_ttls_alone(before: bytes, after: bytes) -> bool:
    """Whether a `ttl` was put in, or its value changed, and all else is the same byte for byte."""
    added, at = b',"ttl":"1h"', 0
    while after:
        if before[at : at + 4] == b'"5m"' and after.startswith(b'"1h"'):
            at, after = at + 4, after[4:]
        elif after.startswith(added) and not before.startswith(b',"ttl":', at):
            after = after[len(added) :]
        elif after[:1] == before[at : at + 1]:
            at, after = at + 1, after[1:]
        else:
            return False
    return at == len(before)


@given(REQUESTS, SEPARATORS, st.booleans())
def test_every_mark_asks_for_an_hour_and_nothing_else_changes(
    request: dict[str, Any], separators: tuple[str, str], ascii_only: bool
) -> None:
    written = json.dumps(request, separators=separators, ensure_ascii=ascii_only).encode()
    rewritten = with_hour_marks(written)
    assert json.loads(rewritten) == expected(request)
    if request == expected(request):
        assert rewritten is written
    assert with_hour_marks(rewritten) is rewritten
    assert differs_in_ttls_alone(written, bytes(rewritten))


@given(st.binary(max_size=200) | TEXTS.map(str.encode))
# Hypothesis also draws the constants of the code it runs: a mark that is alone is a request's.
@example(b'"cache_control":{"type":"ephemeral"}')
def test_whatever_is_no_json_object_stays_the_same_object(body: bytes) -> None:
    assume(not is_json_object(body))
    assert with_hour_marks(body) is body


def is_json_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


def test_the_bytes_around_a_mark_stay_as_the_client_wrote_them() -> None:
    body = bytearray(
        b'{ "model":"m","system" : [{"text":"\\"cache_control\\": {}", "cache_control" :\n'
        b' { "type": "ephemeral" } }], "z":1e2 ,"messages":[{"content":[{"cache_control":{"ttl"'
        b': "5m","type":"ephemeral"}}]}]}'
    )
    assert with_hour_marks(body) == (
        b'{ "model":"m","system" : [{"text":"\\"cache_control\\": {}", "cache_control" :\n'
        b' { "type": "ephemeral","ttl":"1h" } }], "z":1e2 ,"messages":[{"content":[{'
        b'"cache_control":{"ttl": "1h","type":"ephemeral"}}]}]}'
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"system":[{"cache_control":{"type":"forever"}},{"cache_control":{"type":"ephemeral"}}]}',
        b'{"system":[{"cache_control":{"type":"ephemeral","ttl":"2h"}}]}',
        b'{"system":[{"cache_control":{"type":"ephemeral","x":{}}}]}',
        b'{"system":[{"cache_control":[1]}]}',
        # A place that is not known may be a mark to the vendor: half of them would be refused.
        b'{"unknown":{"cache_control":{"type":"ephemeral"}},"cache_control":{"type":"ephemeral"}}',
        # Written twice, or with escapes: which one counts is the vendor's to say.
        b'{"cache_control":{"type":"ephemeral"},"cache_control":{"type":"ephemeral"}}',
        b'{"cache\\u005fcontrol":{"type":"ephemeral"},"system":[{"cache_control":{"type":"ephemeral"}}]}',
        b'{"system":[{"cache_control":{"type":"ephemeral"}}]',
    ],
)
def test_what_is_not_understood_leaves_all_marks_alone(body: bytes) -> None:
    assert with_hour_marks(body) is body


def test_all_marks_change_so_that_none_of_an_hour_follows_one_of_five_minutes() -> None:
    short = {"type": "ephemeral"}
    request: dict[str, Any] = {
        "model": "claude-opus-4-8",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        "system": [{"type": "text", "text": "s", "cache_control": {**short, "ttl": "5m"}}],
        "tools": [{"name": "t", "input_schema": {}, "cache_control": short}],
        "cache_control": HOUR,
    }
    assert isinstance(_asked(request).read_prompt("anthropic"), ProviderRefusal), (
        "as the client wrote it"
    )
    rewritten = json.loads(with_hour_marks(json.dumps(request).encode()))
    prompt = _asked(rewritten).read_prompt("anthropic")
    assert not isinstance(prompt, ProviderRefusal)
    assert [block.ttl for block in prompt.blocks if block.ttl] == [3600.0, 3600.0, 3600.0]


def _asked(body: dict[str, Any]) -> ClientRequest:
    return ClientRequest("/v1/messages", {}, body, 0, "", "", "", "", 0, 0)
