"""Requests for the clouds, against those that Anthropic's own SDK sends for the same calls."""

from __future__ import annotations

import asyncio
import os
import sys
from urllib.parse import unquote

import pytest

from jackline.event_loop import run
from jackline.providers.provided_upstream import provider_for
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.upstream import UpstreamRequest
from tests.providers.exchanges import answer, decoded, replying
from tests.real_clients.anthropic_sdk import sdk_folder

pytestmark = pytest.mark.real_client

KEY = "of-the-upstream"
BETA = "interleaved-thinking-2025-05-14"
# The SDK is reported the clouds' own version; by itself it names one that older models refuse.
SCRIPT = """
import sys
import anthropic

kind, url, model, version = sys.argv[1:5]
if kind == "bedrock":
    client = anthropic.AnthropicBedrock(
        api_key="of-the-upstream", aws_region="us-east-1", base_url=url, max_retries=0
    )
else:
    client = anthropic.AnthropicVertex(
        access_token="of-the-upstream", region="us-east5", project_id="ours",
        base_url=url + "/v1", max_retries=0,
    )
requested = dict(
    model=model, max_tokens=64, system="Be kind.",
    messages=[{"role": "user", "content": "Say hello."}],
    extra_body={"anthropic_version": version},
    extra_headers={"anthropic-beta": "interleaved-thinking-2025-05-14"},
)
for how in ({}, {"stream": True}):
    try:
        client.messages.create(**requested, **how)
    except anthropic.APIError:
        pass
if kind == "vertex":
    try:
        client.messages.count_tokens(model=model, messages=requested["messages"],
            extra_body={"anthropic_version": version})
    except anthropic.APIError:
        pass
"""
MESSAGES = b'"messages":[{"role":"user","content":"Say hello."}]'
BODY_OF_CLIENT = b'{"model":"%b","max_tokens":64,"system":"Be kind.",' + MESSAGES + b"%b}"


async def sent_by_sdk(kind: UpstreamKind, model: str, version: str) -> list[bytes]:
    got: list[bytes] = []
    refusal = answer(b"{}", b"content-type: application/json", status=b"400 Bad Request")
    async with replying(refusal, got=got) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SCRIPT, kind, server.url, model, version),
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(sdk_folder())},
        )
        assert await process.wait() == 0
    return got


def rendered(kind: UpstreamKind, message: UpstreamRequest, model: str) -> UpstreamRequest:
    bedrock = kind is UpstreamKind.BEDROCK
    settings = UpstreamSettings(
        kind=kind,
        url="http://127.0.0.1:1",
        credential=Credential.BEARER,
        secret=KEY,
        region="us-east-1" if bedrock else "us-east5",
        project=None if bedrock else "ours",
    )
    return provider_for(settings, {}).render(message, model)


@pytest.mark.parametrize(
    ("kind", "name", "model", "version"),
    [
        (
            UpstreamKind.BEDROCK,
            "claude-opus-4-5",
            "us.anthropic.claude-opus-4-5-20251101-v1:0",
            "bedrock-2023-05-31",
        ),
        (
            UpstreamKind.VERTEX,
            "claude-opus-4-5-20251101",
            "claude-opus-4-5@20251101",
            "vertex-2023-10-16",
        ),
    ],
)
def test_paths_bodies_and_credentials_are_the_sdks(
    kind: UpstreamKind, name: str, model: str, version: str
) -> None:
    theirs = run(sent_by_sdk(kind, model, version))
    headers = ((b"anthropic-beta", BETA.encode()),)
    requested = [
        UpstreamRequest(b"POST", b"/v1/messages", headers, BODY_OF_CLIENT % (name.encode(), b"")),
        UpstreamRequest(
            b"POST", b"/v1/messages", headers, BODY_OF_CLIENT % (name.encode(), b',"stream":true')
        ),
    ]
    if kind is UpstreamKind.VERTEX:
        counted = b'{"model":"%b",%b}' % (name.encode(), MESSAGES)
        requested.append(UpstreamRequest(b"POST", b"/v1/messages/count_tokens", (), counted))
    assert len(theirs) == len(requested)
    for message, sent in zip(requested, theirs, strict=True):
        ours = rendered(kind, message, name)
        head, _, body = sent.partition(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        assert unquote(ours.target.decode()) == unquote(path)
        assert decoded(ours.body) == decoded(body)
        assert b"authorization: Bearer " + KEY.encode() in head or (
            b"Authorization: Bearer " + KEY.encode() in head
        )
        assert (b"Authorization", b"Bearer " + KEY.encode()) in list(ours.headers)
        if kind is UpstreamKind.VERTEX and message.headers:
            assert (b"anthropic-beta", BETA.encode()) in list(ours.headers)
            assert BETA.encode() in head
