"""The trial call: what is sent, with whose credentials, and what counts as an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from jackline import event_loop
from jackline.cli.upstream_trial import TrialResult, make_trial_call, model_to_try
from jackline.errors import UsageError
from jackline.failures import Kind
from jackline.providers import Credential, UpstreamKind, UpstreamSettings
from tests.planted import BEARER, KEY
from tests.providers.exchanges import answer, replying

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
MESSAGE = json.dumps({"type": "message", "content": []}).encode()
SHELL = {"ANTHROPIC_API_KEY": KEY}
PORTAL = b"<html><title>Sign in</title></html>"


def tried(
    body: bytes,
    *,
    kind: UpstreamKind = UpstreamKind.ANTHROPIC,
    credential: Credential = Credential.PASS_THROUGH,
    content_type: bytes = b"application/json",
    environ: Mapping[str, str] | None = None,
) -> tuple[TrialResult, bytes]:
    got: list[bytes] = []

    async def scene() -> TrialResult:
        response = answer(body, b"content-type: " + content_type)
        async with replying(response, got=got) as server:
            settings = UpstreamSettings("it", server.url, kind, credential, KEY)
            return await make_trial_call(settings, "a-model", environ or {}, NOW)

    return event_loop.run(scene()), got[0]


def test_one_word_requests_one_token() -> None:
    result, request = tried(MESSAGE, environ=SHELL)
    assert (result.failure, result.status, result.exit_code) == (None, 200, 0)
    head, _, body = request.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/messages HTTP/1.1")
    assert f"x-api-key: {KEY}".encode() in head
    assert json.loads(body) == {
        "model": "a-model",
        "max_tokens": 1,
        "messages": [{"role": "user", "content": "ping"}],
    }


def test_openai_gets_the_smallest_limit_it_accepts() -> None:
    _, request = tried(b"{}", kind=UpstreamKind.OPENAI_RESPONSES, credential=Credential.BEARER)
    assert json.loads(request.partition(b"\r\n\r\n")[2])["max_output_tokens"] == 16


@pytest.mark.parametrize(
    ("name", "is_login"), [("ANTHROPIC_AUTH_TOKEN", False), ("CLAUDE_CODE_OAUTH_TOKEN", True)]
)
def test_a_logins_token_is_sent_as_what_it_is(name: str, is_login: bool) -> None:
    _, request = tried(MESSAGE, environ={name: BEARER})
    assert f"authorization: Bearer {BEARER}".encode() in request
    assert (b"anthropic-beta: oauth-2025-04-20" in request) is is_login


def test_nothing_of_the_shell_is_sent_where_it_is_not_passed_through() -> None:
    _, request = tried(MESSAGE, credential=Credential.NONE, environ=SHELL)
    assert KEY.encode() not in request


def test_a_sign_in_page_is_no_answer() -> None:
    result, _ = tried(PORTAL, content_type=b"text/html", environ=SHELL)
    assert result.failure is not None
    assert result.failure.kind is Kind.NETWORK_EDGE
    assert result.exit_code == 5


def test_the_model_is_the_one_that_would_stand_in() -> None:
    models = {"claude-opus-*": "gpt-5.5", "claude-haiku-*": "gpt-mini"}
    claude = UpstreamSettings(models={"claude-opus-*": "opus-here"})
    other = UpstreamSettings(kind=UpstreamKind.OPENAI_CHAT, models=models)
    only = UpstreamSettings(kind=UpstreamKind.OPENAI_CHAT, models={"claude-opus-*": "gpt-5.5"})
    assert model_to_try(claude, None) == "claude-haiku-4-5"
    assert model_to_try(claude, "claude-opus-4-8") == "opus-here"
    assert model_to_try(other, None) == "gpt-mini"
    assert model_to_try(only, None) == "gpt-5.5"
    assert model_to_try(only, "o9") == "o9"
    with pytest.raises(UsageError, match="the models of"):
        model_to_try(UpstreamSettings(kind=UpstreamKind.OPENAI_CHAT), None)
