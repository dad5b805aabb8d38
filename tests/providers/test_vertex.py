"""Claude on Vertex, over real connections: requests, streams, refusals, a real token flow."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from jackline.errors import UsageError
from jackline.event_loop import run
from jackline.failures import Kind, Observation, classify
from jackline.http1.responses import CutShortError
from jackline.providers.provided_upstream import provider_for
from jackline.providers.provider import Provider
from jackline.providers.sent_request import UnsupportedRequestError
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from tests.providers.exchanges import (
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

KEY = "ya29.of-the-upstream"
MODEL = "claude-opus-4-5"
PLACE = b"/v1/projects/ours/locations/us-east5/publishers/anthropic/models/"
SSE = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


def settings(
    credential: Credential = Credential.BEARER,
    url: str = "https://us-east5-aiplatform.googleapis.com",
    region: str | None = None,
    project: str | None = "ours",
    headers: Mapping[str, str] = MappingProxyType({}),
) -> UpstreamSettings:
    return UpstreamSettings(
        name="far",
        kind=UpstreamKind.VERTEX,
        url=url,
        credential=credential,
        secret=KEY,
        region=region,
        project=project,
        headers=headers,
    )


def test_a_prediction_names_the_model_in_the_path_and_the_version_in_the_body() -> None:
    provider = provider_for(settings(headers={"x-team": "ours"}), {})
    rendered = provider.render(call(), MODEL)
    assert rendered.target == PLACE + b"claude-opus-4-5@20251101:rawPredict"
    assert rendered.body == (
        b'{"anthropic_version":"vertex-2023-10-16","max_tokens":64,'
        b'"messages":[{"role":"user","content":"Say hello."}]}'
    )
    reported = names(rendered)
    assert reported.pop("user-agent").startswith("jackline/")
    assert reported == {
        "content-type": "application/json",
        "authorization": f"Bearer {KEY}",
        "anthropic-beta": "interleaved-thinking-2025-05-14",
        "x-team": "ours",
    }
    streamed = provider.render(call(STREAMED), "claude-opus-4-8")
    assert streamed.target == PLACE + b"claude-opus-4-8:streamRawPredict"
    assert decoded(streamed.body)["stream"] is True


def test_counting_tokens_keeps_the_model_in_the_body() -> None:
    provider = provider_for(settings(), {})
    rendered = provider.render(call(target=b"/v1/messages/count_tokens?beta=true"), "")
    assert rendered.target == PLACE + b"count-tokens:rawPredict"
    assert decoded(rendered.body)["model"] == "claude-opus-4-8"


def test_other_calls_are_refused() -> None:
    provider = provider_for(settings(), {})
    for message, model in ((call(), ""), (call(target=b"/v1/messages/batches"), MODEL)):
        with pytest.raises(UnsupportedRequestError):
            provider.render(message, model)


@pytest.mark.parametrize("model", [".", "..", "..."])
def test_a_model_named_by_dots_alone_is_refused(model: str) -> None:
    with pytest.raises(UnsupportedRequestError, match="model"):
        provider_for(settings(), {}).render(call(), model)


def test_a_stream_an_error_and_a_break_are_passed_on_as_they_came() -> None:
    async def main() -> None:
        got: list[bytes] = []
        head = STREAM_HEAD + b"content-type: text/event-stream\r\n\r\n"
        async with replying(head, chunked(SSE), b"0\r\n\r\n", got=got) as server:
            provider = provider_for(settings(url=server.url, region="us-east5"), {})
            reported = await exchange(provider, call(STREAMED), MODEL, got)
        expected = PLACE + b"claude-opus-4-5@20251101:streamRawPredict"
        assert reported.request_line == b"POST " + expected + b" HTTP/1.1"
        assert b"of-the-client" not in reported.request
        assert reported.handler.body == SSE
        error = (
            b'[{"error":{"code":429,"message":"Resource exhausted","status":"RESOURCE_EXHAUSTED"}}]'
        )
        async with replying(answer(error, status=b"429 Too Many"), got=got) as server:
            provider = provider_for(settings(url=server.url, region="us-east5"), {})
            reported = await exchange(provider, call(STREAMED), MODEL, got)
        assert (reported.handler.status, reported.handler.body) == (429, error)
        seen = Observation.of_response(429, reported.headers, reported.handler.body)
        assert classify(seen, now=NOW).kind in (Kind.RATE_LIMIT, Kind.SERVER_THROTTLE)
        async with replying(head, chunked(SSE[:9]), got=got, cut=True) as server:
            provider = provider_for(settings(url=server.url, region="us-east5"), {})
            reported = await exchange(provider, call(STREAMED), MODEL, got)
        assert isinstance(reported.handler.error, CutShortError)

    run(main())


def test_errors_get_anthropics_form_unless_they_have_it() -> None:
    provider = provider_for(settings(), {})
    native = b'{"type": "error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    assert provider.native_error(529, native) is native
    google = b'{"error":{"code":403,"message":"Permission denied","status":"PERMISSION_DENIED"}}'
    assert decoded(provider.native_error(403, google)) == {
        "type": "error",
        "error": {"type": "permission_error", "message": "Permission denied"},
    }


@pytest.mark.parametrize(
    ("url", "region", "environ", "expected"),
    [
        ("https://us-east5-aiplatform.googleapis.com", None, {}, "us-east5"),
        ("https://us-east5-aiplatform.googleapis.com/v1", "us-east5", {}, "us-east5"),
        ("https://aiplatform.googleapis.com", None, {}, "global"),
        ("https://aiplatform.eu.rep.googleapis.com", None, {}, "eu"),
        ("http://127.0.0.1:1", "europe-west1", {}, "europe-west1"),
        ("http://127.0.0.1:1", None, {"CLOUD_ML_REGION": "asia-east1"}, "asia-east1"),
    ],
)
def test_the_region_is_found_in_the_settings_the_address_or_the_environment(
    url: str, region: str | None, environ: dict[str, str], expected: str
) -> None:
    provider = provider_for(settings(url=url, region=region), environ)
    prefix = b"" if url.endswith("/v1") else b"/v1"
    target = provider.render(call(), MODEL).target
    assert target.startswith(prefix + b"/projects/ours/locations/" + expected.encode() + b"/")


def test_settings_that_cannot_work_are_reported_when_the_provider_is_made() -> None:
    for given in (
        settings(url="http://127.0.0.1:1"),
        settings(project=None),
        settings(Credential.PASS_THROUGH),
    ):
        with pytest.raises(UsageError) as reported:
            provider_for(given, {})
        assert reported.value.hint
    provider = provider_for(settings(project=None), {"GOOGLE_CLOUD_PROJECT": "theirs"})
    assert b"/projects/theirs/" in provider.render(call(), MODEL).target


# --- Google's own credentials -------------------------------------------------------------------


@pytest.fixture
def no_google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nobody has logged in to Google."""
    for name in [name for name in os.environ if name.startswith(("GOOGLE_", "GCLOUD", "CLOUDSDK"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    return tmp_path


def service_account(folder: Path, token_url: str) -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {
        "type": "service_account",
        "project_id": "of-the-account",
        "private_key_id": "k1",
        "private_key": key.decode(),
        "client_email": "jackline@of-the-account.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_url,
    }
    path = folder / "account.json"
    path.write_text(json.dumps(account))
    return str(path)


def vendor(project: str | None = None) -> Provider:
    return provider_for(settings(Credential.VENDOR, project=project), {})


@pytest.mark.parametrize(("seconds", "fresh"), [(3600, True), (60, False)])
def test_a_token_is_fetched_by_googles_own_flow_and_anew_before_it_expires(
    no_google: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, fresh: bool
) -> None:
    async def main() -> None:
        got: list[bytes] = []
        token = {"access_token": KEY, "expires_in": seconds, "token_type": "Bearer"}
        said = answer(json.dumps(token).encode(), b"content-type: application/json")
        async with replying(said, got=got) as server:
            account = service_account(no_google, f"{server.url}/token")
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", account)
            provider = vendor()
            before = provider.is_ready
            with pytest.raises(UnsupportedRequestError):
                provider.render(call(), MODEL)
            await provider.prepare()
            assert (before, provider.is_ready) == (False, fresh)
            rendered = provider.render(call(), MODEL)
            assert names(rendered)["authorization"] == f"Bearer {KEY}"
            assert b"/projects/of-the-account/" in rendered.target
            assert b"/projects/ours/" in (await prepared("ours")).render(call(), MODEL).target
            requested = len(got)
            await provider.prepare()
            assert (len(got) > requested) is not fresh
        assert got[0].startswith(b"POST /token HTTP/1.1")

    async def prepared(project: str) -> Provider:
        provider = vendor(project)
        await provider.prepare()
        return provider

    run(main())


def test_a_refused_token_is_reported_with_what_to_do_and_without_its_text(
    no_google: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        got: list[bytes] = []
        body = b'{"error":"invalid_grant","error_description":"PRIVATE"}'
        said = answer(body, b"content-type: application/json", status=b"400 Bad Request")
        async with replying(said, got=got) as server:
            account = service_account(no_google, f"{server.url}/token")
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", account)
            with pytest.raises(UsageError, match="RefreshError") as reported:
                await vendor().prepare()
            assert "PRIVATE" not in str(reported.value)
            assert "gcloud auth" in reported.value.hint
        with pytest.raises(ConnectionError, match="TransportError"):
            await vendor().prepare()

    run(main())


@pytest.mark.usefixtures("no_google")
def test_without_a_login_the_error_says_what_to_do() -> None:
    async def main() -> None:
        with pytest.raises(UsageError) as reported:
            await vendor().prepare()
        assert "gcloud auth application-default login" in reported.value.hint

    run(main())


@pytest.mark.parametrize("name", ["google", "google.auth", "requests"])
def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for loaded in [each for each in sys.modules if each.startswith("google")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError) as reported:
        vendor()
    assert reported.value.hint == "Run: pip install 'jackline[vertex]'"
    assert provider_for(settings(), {}).is_ready, "a token of one's own needs no library"
