"""The facts of a request are read exactly, and cheaply where the order of its keys allows it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.dialects import account_of, read_request, request_messages

texts = st.text(max_size=12)
tricky = st.one_of(
    texts,
    st.sampled_from(['","stream":true}', '"stream":false}', '\\","model":"x"', ',"max_tokens":9,']),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 10**6) | tricky,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(tricky, inner, max_size=3),
    max_leaves=8,
)
members = st.dictionaries(
    tricky.filter(lambda key: key not in ("model", "stream", "max_tokens")), values, max_size=4
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """A request as a document, and as some client would write it."""
    sent: dict[str, Any] = draw(members)
    for key, value in (("model", tricky), ("stream", st.booleans())):
        if draw(st.booleans()):
            sent[key] = draw(value)
    if draw(st.booleans()):
        sent["max_tokens"] = draw(st.integers(0, 10**6))
    keys = draw(st.permutations(list(sent)))
    if draw(st.booleans()):
        # As Claude Code has it: the model first, stream last.
        keys = sorted(keys, key=lambda key: (key != "model", key == "stream"))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    written = json.dumps(
        {key: sent[key] for key in keys},
        separators=separators,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 2])),
    )
    return sent, written.encode(errors="surrogatepass")


@given(bodies(), st.sampled_from([bytes, bytearray]))
def test_model_and_stream_are_exactly_those_of_the_document(
    made: tuple[dict[str, Any], bytes], kind: type[bytes] | type[bytearray]
) -> None:
    sent, body = made
    facts = read_request(kind(body))
    assert facts.model == sent.get("model")
    assert facts.stream == sent.get("stream", False)
    assert facts.input_tokens == len(body) // 4


CLAUDE_CODE = (
    b'{"model":"claude-opus-4-8","messages":[{"role":"user","content":"%s"}],"metadata":{"user_id":'
    b'"{\\"device_id\\":\\"d\\",\\"account_uuid\\":\\"%s\\",\\"session_id\\":\\"s\\"}"},'
    b'"max_tokens":64000,"thinking":{"type":"adaptive"},"output_config":{"effort":"high"},'
    b'"stream":true}'
)


def test_a_request_of_claude_code_is_read_without_being_decoded() -> None:
    """What is between the ends of the body is not read: here it could not be decoded."""
    undecodable = CLAUDE_CODE.replace(b'"role"', b'role"') % (b"hi", b"")
    for body in (undecodable, undecodable.replace(b'":', b'": ')):
        facts = read_request(body)
        assert (facts.model, facts.stream, facts.max_tokens) == ("claude-opus-4-8", True, 64000)
        assert request_messages(body) is None


def test_other_orders_are_read_too() -> None:
    facts = read_request(b'{"max_tokens": 5, "messages": [], "model": "m", "stream": true}')
    assert (facts.model, facts.stream, facts.max_tokens) == ("m", True, 5)
    facts = read_request(b'{"model": "m", "messages": [], "max_tokens": 5}')
    assert (facts.model, facts.stream, facts.max_tokens) == ("m", False, 5)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"model":7}', b"\xff", b"[" * 200_000, b'{"model":"a"', b"null"]
)
def test_a_body_that_cannot_be_read_names_no_model(body: bytes) -> None:
    assert read_request(body).model is None
    assert request_messages(body) is None
    assert account_of(body) is None


def test_the_same_turn_requested_in_another_way_has_the_same_messages() -> None:
    streaming = CLAUDE_CODE % (b"hi", b"")
    without = streaming.replace(b',"stream":true', b"")
    assert request_messages(streaming) == request_messages(without)
    assert request_messages(streaming) == b'[{"role":"user","content":"hi"}]'
    assert request_messages(CLAUDE_CODE % (b"ho", b"")) != request_messages(streaming)


def test_the_account_is_found_in_the_metadata_only() -> None:
    assert account_of(CLAUDE_CODE % (b"hi", b"1234-ab")) == "1234-ab"
    assert account_of(CLAUDE_CODE % (b"hi", b"")) is None
    quoted = b'\\"metadata\\":{\\"user_id\\":\\"{}\\"} account_uuid'
    assert account_of(CLAUDE_CODE % (quoted, b"1234-ab")) == "1234-ab"
    assert account_of(b'{"messages":"account_uuid"}') is None
    assert account_of(b'{"metadata":{"user_id":"plain words"}}') is None
    assert account_of(b'{"metadata":{"user_id":null,"x":"account_uuid"}}') is None


def test_the_account_is_found_far_from_the_end() -> None:
    user_id = json.dumps({"account_uuid": "far-away"})
    sent = {"metadata": {"other": 1, "user_id": user_id}, "messages": "x" * 10_000}
    assert account_of(json.dumps(sent).encode()) == "far-away"
