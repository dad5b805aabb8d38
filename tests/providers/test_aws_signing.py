"""The signature, against the request that botocore's own client would send."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import pytest

from jackline.providers.bedrock import AwsKeys

BODY = b'{"anthropic_version":"bedrock-2023-05-31","max_tokens":1,"messages":[]}'
MODELS = [
    "us.anthropic.claude-opus-4-5-20251101-v1:0",
    "global.anthropic.claude-opus-4-8",
    "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/abc",
]


def sent_by_botocore(model: str, keys: AwsKeys, region: str, *, stream: bool) -> Any:
    """The request that botocore's HTTP client would send; it is not sent."""
    session = import_module("botocore.session").Session()
    client = session.create_client(
        "bedrock-runtime",
        region_name=region,
        aws_access_key_id=keys.access_key,
        aws_secret_access_key=keys.secret_key,
        aws_session_token=keys.token,
    )
    seen: list[Any] = []

    def keep(request: Any, **_other: Any) -> Any:
        seen.append(request)
        answer = import_module("botocore.awsrequest").AWSResponse
        return answer(request.url, 500, {}, type("Raw", (), {"stream": lambda *_: [b"{}"]})())

    client.meta.events.register("before-send.bedrock-runtime.*", keep)
    ask = client.invoke_model_with_response_stream if stream else client.invoke_model
    with pytest.raises(import_module("botocore.exceptions").ClientError):
        ask(modelId=model, body=BODY, contentType="application/json", accept="application/json")
    client.close()
    return seen[0]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("token", [None, "a/session+token=="])
@pytest.mark.parametrize("model", MODELS)
def test_the_same_request_at_the_same_moment_has_botocores_signature(
    model: str, token: str | None, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    keys = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", token)
    theirs = sent_by_botocore(model, keys, "eu-west-1", stream=stream)
    headers = {name: _text(value) for name, value in theirs.headers.items()}
    stamp = datetime.strptime(headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    names = headers["Authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    added = {"host", "x-amz-date", "x-amz-security-token"}
    signed = {n: v for n, v in headers.items() if n.lower() in set(names) - added}
    url = urlsplit(theirs.url)
    ours = keys.sign((url.netloc, url.path), signed, BODY, "eu-west-1", stamp)
    assert ours["Authorization"] == headers["Authorization"]
    assert ours.get("X-Amz-Security-Token") == token
    assert theirs.body == BODY


def test_no_key_is_shown() -> None:
    assert "secret" not in repr(AwsKeys("id-secret", "key-secret", "token-secret"))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
