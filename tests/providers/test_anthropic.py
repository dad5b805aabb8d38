"""Upstreams of Anthropic's own dialect: passed through, or under another credential and model."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.errors import UsageError
from jackline.event_loop import run
from jackline.providers.provided_upstream import provider_for
from jackline.providers.sent_request import with_model
from jackline.providers.settings import Credential, UpstreamSettings
from jackline.upstream import UpstreamRequest
from tests.providers.exchanges import (
    BODY_OF_CLIENT,
    CLIENT,
    answer,
    call,
    decoded,
    exchange,
    names,
    replying,
)
from tests.upstream.loopback import Recorder

KEY = "sk-of-the-upstream"
MODEL = "claude-opus-4-8"
TWO_LINES = "two\r\nlines"


def settings(
    credential: Credential = Credential.API_KEY,
    *,
    url: str = "http://127.0.0.1:1",
    secret: str | None = KEY,
    headers: Mapping[str, str] = MappingProxyType({}),
    proxy: str | None = None,
) -> UpstreamSettings:
    return UpstreamSettings(
        url=url, credential=credential, secret=secret, headers=headers, proxy=proxy
    )


def test_a_message_that_passes_through_is_the_same_object() -> None:
    provider = provider_for(settings(Credential.PASS_THROUGH), {})
    message = call()._replace(lines=b"\r\nas: written")
    assert provider.render(message, MODEL) is message
    assert provider.render(message, "") is message


def test_passed_through_to_another_model_the_lines_of_the_headers_stay() -> None:
    provider = provider_for(settings(Credential.PASS_THROUGH), {})
    message = call()._replace(lines=b"\r\nas: written")
    rendered = provider.render(message, "claude-sonnet-4-6")
    assert rendered.body == BODY_OF_CLIENT.replace(b"opus-4-8", b"sonnet-4-6")
    assert rendered.lines == b"\r\nas: written"


@pytest.mark.parametrize(
    ("credential", "header", "value"),
    [
        (Credential.API_KEY, "x-api-key", KEY),
        (Credential.BEARER, "authorization", f"Bearer {KEY}"),
        (Credential.NONE, None, None),
    ],
)
def test_of_the_clients_credentials_nothing_goes_to_an_upstream_with_its_own(
    credential: Credential, header: str | None, value: str | None
) -> None:
    provider = provider_for(settings(credential), {})
    rendered = provider.render(call()._replace(lines=b"\r\nx-api-key: old"), MODEL)
    reported = names(rendered)
    assert {
        name: reported[name] for name in ("content-type", "anthropic-version", "anthropic-beta")
    } == {
        "content-type": "application/json",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "interleaved-thinking-2025-05-14",
    }
    assert set(reported) - {"content-type", "anthropic-version", "anthropic-beta"} == (
        {header} if header else set()
    )
    assert header is None or reported[header] == value
    assert rendered.lines is None
    assert rendered.body is BODY_OF_CLIENT


def test_a_beta_header_that_named_logins_alone_is_left_out() -> None:
    provider = provider_for(settings(), {})
    message = UpstreamRequest(
        b"POST", b"/v1/messages", ((b"Anthropic-Beta", b"oauth-2025-04-20"),), BODY_OF_CLIENT
    )
    assert "anthropic-beta" not in names(provider.render(message, MODEL))
    message = message._replace(
        headers=((b"Anthropic-Beta", b"one,  two"), (b"x", b"oauth-2025-04-20"))
    )
    assert names(provider.render(message, MODEL)) == {
        "anthropic-beta": "one,  two",
        "x-api-key": KEY,
    }


def test_headers_of_the_settings_win_over_the_clients() -> None:
    given = settings(Credential.NONE, headers={"X-Team": "ours", "Anthropic-Version": "2099-01-01"})
    reported = names(provider_for(given, {}).render(call(), MODEL))
    assert (reported["x-team"], reported["anthropic-version"]) == ("ours", "2099-01-01")


def test_a_compressed_body_is_sent_plain_only_for_another_model() -> None:
    provider = provider_for(settings(), {})
    headers = (*CLIENT, (b"Content-Encoding", b"gzip"))
    packed = gzip.compress(BODY_OF_CLIENT)
    message = UpstreamRequest(b"POST", b"/v1/messages", headers, packed, plain=BODY_OF_CLIENT)
    same = provider.render(message, MODEL)
    assert (same.body, names(same)["content-encoding"]) == (message.body, "gzip")
    other = provider.render(message, "claude-sonnet-4-6")
    assert decoded(other.body)["model"] == "claude-sonnet-4-6"
    assert "content-encoding" not in names(other)
    odd = message._replace(headers=((b"Content-Encoding", b"br"),), plain=None)
    assert provider.render(odd, "unknown-model").body is odd.body


def test_a_message_without_a_body_only_changes_its_credential() -> None:
    message = UpstreamRequest(b"GET", b"/v1/models", CLIENT)
    rendered = provider_for(settings(), {}).render(message, "")
    assert (rendered.method, rendered.target, rendered.body) == (b"GET", b"/v1/models", b"")
    assert names(rendered)["x-api-key"] == KEY


@pytest.mark.parametrize(
    "given",
    [
        settings(Credential.VENDOR),
        settings(Credential.API_KEY, secret=None),
        settings(Credential.BEARER, secret=TWO_LINES),
        settings(Credential.NONE, headers={"bad name": "x"}),
        settings(Credential.NONE, headers={"name": "line\nend"}),
    ],
)
def test_settings_that_cannot_work_are_reported_when_the_provider_is_made(
    given: UpstreamSettings,
) -> None:
    with pytest.raises(UsageError) as reported:
        provider_for(given, {})
    assert reported.value.hint
    assert "lines" not in str(reported.value)


def test_the_proxy_of_the_environment_is_used_unless_the_settings_name_one() -> None:
    far = settings(Credential.NONE, url="https://models.example")
    environ = {"HTTPS_PROXY": "http://a.example:1"}
    found = provider_for(far, environ).origin.proxy_address
    assert found is not None
    assert found.host == "a.example"
    own = settings(Credential.NONE, url="https://models.example", proxy="http://b.example:2")
    found = provider_for(own, environ).origin.proxy_address
    assert found is not None
    assert found.host == "b.example"


MEMBERS = st.dictionaries(
    st.sampled_from(["model", "stream", "max_tokens", 'odd \\ " key', "messages", "ünter"]),
    st.one_of(
        st.text(), st.integers(), st.lists(st.booleans()), st.dictionaries(st.text(), st.text())
    ),
)


@given(members=MEMBERS, model=st.text(min_size=1), spaced=st.booleans())
def test_only_the_model_changes(members: dict[str, object], model: str, spaced: bool) -> None:
    body = msgspec.json.encode(members)
    body = msgspec.json.format(body, indent=1) if spaced else body
    changed = with_model(body, model)
    named = isinstance(members.get("model"), str)
    expected = {**members, "model": model} if named else members
    assert list(decoded(changed).items()) == list(expected.items())
    assert with_model(changed, model) is changed


@pytest.mark.parametrize(
    "body", [b"", b"[1]", b"not json", b'{"model":', b'"model"', b"{}", b'{"model":5}']
)
def test_a_body_without_a_model_is_unchanged(body: bytes) -> None:
    assert with_model(body, "other") is body


def test_numbers_and_spaces_of_other_members_stay_as_they_are_written() -> None:
    body = b'{ "temperature" : 1.50e0, "model":"a" , "x": [ 1 ,2 ]}'
    assert with_model(body, "b") == b'{"temperature":1.50e0,"model":"b","x":[ 1 ,2 ]}'


def test_the_answer_is_passed_on_as_it_came() -> None:
    async def main() -> None:
        got: list[bytes] = []
        body = b'{"type":"message"}'
        async with replying(answer(body, b"request-id: r1"), got=got) as server:
            provider = provider_for(settings(url=f"{server.url}/prefix"), {})
            handler = Recorder()
            assert provider.wrap_handler(handler, call(), MODEL) is handler
            reported = await exchange(provider, call(), "claude-sonnet-4-6", got)
        assert reported.request_line == b"POST /prefix/v1/messages?beta=true HTTP/1.1"
        assert b"of-the-client" not in reported.request
        assert b"x-api-key: " + KEY.encode() in reported.request
        assert reported.request_body == BODY_OF_CLIENT.replace(b"opus-4-8", b"sonnet-4-6")
        assert (reported.handler.body, reported.headers["request-id"]) == (body, "r1")
        error = b'{"type":"error"}'
        assert provider.native_error(500, error) is error

    run(main())
