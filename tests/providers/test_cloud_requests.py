"""What of Anthropic's own API the clouds do not know: betas and cache scopes."""

from __future__ import annotations

import time

import msgspec
import pytest

from jackline.providers.clouds import (
    BEDROCK_BETAS,
    VERTEX_BETAS,
    cloud_request,
    known_betas,
)
from jackline.providers.sent_request import UnsupportedRequestError
from jackline.upstream import UpstreamRequest
from tests.providers.exchanges import call


def body_of(body: bytes) -> bytes:
    return msgspec.json.encode(cloud_request(call(body), "v")[0])


def test_betas_that_a_cloud_does_not_know_are_not_named_there() -> None:
    sent = [
        "claude-code-20250219",
        "interleaved-thinking-2025-05-14",
        "advanced-tool-use-2025-11-20",
        "prompt-caching-scope-2026-01-05",
        "tool-search-tool-2025-10-19",
    ]
    headers = [(b"Anthropic-Beta", " , ".join(sent[:2]).encode())]
    headers.append((b"anthropic-beta", ",".join(sent[2:]).encode()))
    assert known_betas(headers, BEDROCK_BETAS) == [
        "interleaved-thinking-2025-05-14",
        "tool-search-tool-2025-10-19",
        "tool-examples-2025-10-29",
    ]
    assert known_betas(headers, VERTEX_BETAS) == [
        "interleaved-thinking-2025-05-14",
        "tool-search-tool-2025-10-19",
    ]


def test_other_members_are_unchanged() -> None:
    body = b'{"model":"m","temperature": 1.50e0,"messages":[ {"role":"user","content":"\\u00fc"} ]}'
    assert body_of(body) == (
        b'{"anthropic_version":"v","temperature":1.50e0,'
        b'"messages":[ {"role":"user","content":"\\u00fc"} ]}'
    )


def test_the_version_is_the_clouds_whatever_the_client_sends() -> None:
    assert body_of(b'{"anthropic_version":"2023-06-01"}') == b'{"anthropic_version":"v"}'


def test_only_the_scopes_of_cache_marks_are_removed() -> None:
    body = (
        b'{"cache_control":{"type":"ephemeral","scope":"global"},'
        b'"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","scope":"global"'
        b'}}],"tools":[{"name":"t","input_schema":{"properties":{"scope":{ "type":"string"}}}}],'
        b'"messages":[ {"role":"user","content":"the \\"scope\\" of it",  "n":1.0},'
        b'{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"b",'
        b'"cache_control":{"scope":"x","ttl":"1h"}}]}]},'
        b'{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"t",'
        b'"input":{"cache_control":{"scope":"kept"}}}]}]}'
    )
    assert body_of(body) == (
        b'{"anthropic_version":"v","cache_control":{"type":"ephemeral"},'
        b'"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}],'
        b'"tools":[{"name":"t","input_schema":{"properties":{"scope":{ "type":"string"}}}}],'
        b'"messages":[{"role":"user","content":"the \\"scope\\" of it",  "n":1.0},'
        b'{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"b",'
        b'"cache_control":{"ttl":"1h"}}]}]},'
        b'{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"t",'
        b'"input":{"cache_control":{"scope":"kept"}}}]}]}'
    )


@pytest.mark.parametrize(
    "message",
    [
        call(b"[]"),
        call(b"{"),
        call(target=b"/v1/messages/batches"),
        UpstreamRequest(b"GET", b"/v1/messages", (), b"{}"),
        call()._replace(headers=((b"content-encoding", b"br"),)),
    ],
)
def test_what_is_no_message_is_refused(message: UpstreamRequest) -> None:
    with pytest.raises(UnsupportedRequestError):
        cloud_request(message, "v")


@pytest.mark.parametrize("depth", [2, 300, 700])
def test_lists_within_lists_are_read_once_at_any_depth(depth: int) -> None:
    """Each level that is read anew costs all that is in it; and Python goes down only so far."""
    inner = b'["%b","scope"]' % (b"a" * 500_000)
    messages = b"[" * depth + inner + b"]" * depth
    flat = b"[%b]" % inner

    def seconds(text: bytes) -> float:
        tries = []
        for _ in range(3):
            began = time.thread_time()
            reported = body_of(b'{"messages":%b}' % text)
            tries.append(time.thread_time() - began)
            assert reported == b'{"anthropic_version":"v","messages":%b}' % text
        return min(tries)

    assert seconds(messages) < 20 * seconds(flat)
