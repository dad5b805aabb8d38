"""Claude on Bedrock, over real connections: requests, streams, refusals, breaks."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from jackline.errors import UsageError
from jackline.event_loop import run
from jackline.failures import Kind, Observation, classify
from jackline.http1.responses import CutShortError, GarbledError
from jackline.providers.provided_upstream import provider_for
from jackline.providers.sent_request import UnsupportedRequestError
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from tests.providers.exchanges import (
    BODY_OF_CLIENT,
    NOW,
    STREAM_HEAD,
    STREAMED,
    answer,
    call,
    chunked,
    decoded,
    exchange,
    names,
    replying,
)
from tests.providers.frames import EVENTS, STREAM, check_whole
from tests.upstream.loopback import Recorder

KEY = "ABSK-of-the-upstream"
MODEL = "claude-opus-4-8"
PROFILE = "us.anthropic.claude-opus-4-8"
HEAD = STREAM_HEAD + (
    b"content-type: application/vnd.amazon.eventstream\r\nx-amzn-requestid: r1\r\n\r\n"
)
WHOLE = (
    b'{"id":"msg_bdrk_1","type":"message","role":"assistant","model":"claude-opus-4-8",'
    b'"content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn","stop_sequence":null,'
    b'"usage":{"input_tokens":9,"output_tokens":1}}'
)


def settings(
    credential: Credential = Credential.BEARER,
    url: str = "https://bedrock-runtime.us-east-1.amazonaws.com",
    region: str | None = "us-east-1",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> UpstreamSettings:
    return UpstreamSettings(
        name="far",
        kind=UpstreamKind.BEDROCK,
        url=url,
        credential=credential,
        secret=KEY,
        region=region,
        headers=headers,
    )


def test_an_invocation_names_the_model_in_the_path_and_the_version_in_the_body() -> None:
    rendered = provider_for(settings(), {}).render(call(), MODEL)
    assert rendered.target == b"/model/us.anthropic.claude-opus-4-8/invoke"
    assert rendered.body == (
        b'{"anthropic_version":"bedrock-2023-05-31","max_tokens":64,'
        b'"messages":[{"role":"user","content":"Say hello."}],'
        b'"anthropic_beta":["interleaved-thinking-2025-05-14"]}'
    )
    reported = names(rendered)
    assert reported.pop("user-agent").startswith("jackline/")
    assert reported == {
        "content-type": "application/json",
        "accept": "application/json",
        "authorization": f"Bearer {KEY}",
    }
    streamed = provider_for(settings(), {}).render(call(STREAMED), MODEL)
    assert streamed.target == b"/model/us.anthropic.claude-opus-4-8/invoke-with-response-stream"
    assert "stream" not in decoded(streamed.body)


def test_a_model_of_the_users_own_map_is_requested_as_configured() -> None:
    arn = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-v1:0"
    rendered = provider_for(settings(), {}).render(call(), arn)
    assert rendered.target == (
        b"/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2F"
        b"us.anthropic.claude-v1%3A0/invoke"
    )


def test_other_calls_than_messages_are_refused() -> None:
    provider = provider_for(settings(), {})
    for message, model in (
        (call(target=b"/v1/messages/count_tokens"), ""),
        (call(), ""),
        (call(b"no json"), MODEL),
    ):
        with pytest.raises(UnsupportedRequestError):
            provider.render(message, model)


@pytest.mark.parametrize("model", [".", "..", "..."])
def test_a_model_named_by_dots_alone_is_refused(model: str) -> None:
    """It would be another path, once whoever reads it resolves it."""
    with pytest.raises(UnsupportedRequestError, match="model"):
        provider_for(settings(), {}).render(call(), model)


@pytest.mark.parametrize("size", [1, 13, 100_000])
def test_a_stream_is_passed_on_as_anthropics_however_it_is_cut(size: int) -> None:
    async def main() -> None:
        got: list[bytes] = []
        pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
        async with replying(HEAD, chunked(*pieces), b"0\r\n\r\n", got=got) as server:
            provider = provider_for(settings(url=server.url), {})
            reported = await exchange(provider, call(STREAMED), MODEL, got)
        assert reported.request_line.startswith(
            b"POST /model/us.anthropic.claude-opus-4-8/invoke-with"
        )
        assert b"of-the-client" not in reported.request
        check_whole(reported.handler.body)
        assert reported.headers == {"content-type": "text/event-stream", "x-amzn-requestid": "r1"}

    run(main())


def test_a_whole_answer_and_an_error_are_passed_on_as_they_came() -> None:
    async def main() -> None:
        got: list[bytes] = []
        async with replying(answer(WHOLE, b"content-type: application/json"), got=got) as server:
            reported = await exchange(
                provider_for(settings(url=server.url), {}), call(), MODEL, got
            )
        assert reported.handler.body == WHOLE
        error = b'{"message":"Too many tokens, please wait before trying again."}'
        said = answer(
            error, b"x-amzn-ErrorType: ThrottlingException", status=b"429 Too Many Requests"
        )
        async with replying(said, got=got) as server:
            provider = provider_for(settings(url=server.url), {})
            reported = await exchange(provider, call(STREAMED), MODEL, got)
        assert (reported.handler.status, reported.handler.body) == (429, error)
        assert reported.headers["x-amzn-errortype"] == "ThrottlingException"
        seen = Observation.of_response(429, reported.headers, reported.handler.body)
        assert classify(seen, now=NOW).kind is Kind.RATE_LIMIT
        native = decoded(provider.native_error(429, error))
        assert native["error"] == {
            "type": "rate_limit_error",
            "message": "Too many tokens, please wait before trying again.",
        }
        async with replying(answer(b"{}", b"content-type: application/json"), got=got) as server:
            reported = await exchange(
                provider_for(settings(url=server.url), {}), call(), MODEL, got
            )
        assert isinstance(reported.handler.error, GarbledError), "a success that holds no message"

    run(main())


@pytest.mark.parametrize("cut", [False, True])
def test_a_stream_that_is_cut_off_never_gets_an_end(cut: bool) -> None:
    async def main() -> None:
        got: list[bytes] = []
        end = b"" if cut else b"0\r\n\r\n"
        async with replying(HEAD, chunked(STREAM[:-9]), end, got=got, cut=True) as server:
            provider = provider_for(settings(url=server.url), {})
            reported = await exchange(provider, call(STREAMED), MODEL, got)
        assert b"message_delta" in reported.handler.body
        assert b"message_stop" not in reported.handler.body
        assert reported.handler.words[-1] == ("broke" if cut else "ended")
        if cut:
            assert isinstance(reported.handler.error, CutShortError)

    run(main())


def test_a_bedrock_key_of_the_environment_is_used_before_any_login() -> None:
    given = settings(Credential.VENDOR)
    provider = provider_for(given, {"AWS_BEARER_TOKEN_BEDROCK": "ABSK-environment"})
    assert provider.is_ready
    reported = names(provider.render(call(), MODEL))
    assert reported["authorization"] == "Bearer ABSK-environment"


def test_without_a_credential_nothing_is_signed() -> None:
    reported = names(provider_for(settings(Credential.NONE), {}).render(call(), MODEL))
    assert "authorization" not in reported


@pytest.mark.parametrize(
    ("url", "region", "environ", "expected"),
    [
        ("https://bedrock-runtime.eu-west-1.amazonaws.com", None, {}, "eu.anthropic"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com", "global", {}, "global.anthropic"),
        ("http://127.0.0.1:1", "eu-central-1", {}, "eu.anthropic"),
        ("http://127.0.0.1:1", None, {"AWS_REGION": "us-west-2"}, "us.anthropic"),
        ("http://127.0.0.1:1", None, {"AWS_DEFAULT_REGION": "us-west-2"}, "us.anthropic"),
    ],
)
def test_the_region_is_found_in_the_settings_the_address_or_the_environment(
    url: str, region: str | None, environ: dict[str, str], expected: str
) -> None:
    rendered = provider_for(settings(url=url, region=region), environ).render(call(), MODEL)
    assert re.match(rb"/model/([a-z]+\.anthropic)", rendered.target)
    assert rendered.target.startswith(f"/model/{expected}.".encode())


@pytest.mark.parametrize("region", [None, "global", "no region"])
def test_an_upstream_without_a_region_cannot_be_made(region: str | None) -> None:
    with pytest.raises(UsageError) as reported:
        provider_for(settings(url="http://127.0.0.1:1", region=region), {})
    assert reported.value.hint


def test_the_clients_credentials_never_go_to_a_cloud() -> None:
    with pytest.raises(UsageError):
        provider_for(settings(Credential.PASS_THROUGH), {})


def test_a_recorded_chunk_is_decoded_unchanged() -> None:
    """What the tests write is what AWS documents: base64 inside of JSON inside of a frame."""
    assert base64.b64encode(EVENTS[0]) in STREAM
    handler = Recorder()
    listening = provider_for(settings(), {}).wrap_handler(handler, call(STREAMED), MODEL)
    listening.began(200, [(b"Content-Type", b"application/vnd.amazon.eventstream")])
    listening.received(STREAM)
    listening.ended()
    check_whole(handler.body)
    assert decoded(BODY_OF_CLIENT)["model"] == MODEL
