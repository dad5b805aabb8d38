"""Upstreams of OpenAI's dialects, called by a client of Anthropic's over real connections."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import pytest

from jackline.dialects import AnthropicStreamReader, EventSplitter, name_and_data, read_answer
from jackline.dialects.neutral.fields import TranslatedDocument
from jackline.errors import UsageError
from jackline.event_loop import run
from jackline.failures import Kind, Observation, classify
from jackline.http1.compression import DecompressionError
from jackline.http1.responses import CutShortError, GarbledError
from jackline.providers.bedrock import BedrockStream
from jackline.providers.credential_forms import WrongVendorError
from jackline.providers.provided_upstream import provider_for
from jackline.providers.sent_request import UnsupportedRequestError
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.providers.translated_answer import NOTES, TranslatingHandler, as_stream
from jackline.upstream import UpstreamRequest
from tests.providers.exchanges import (
    BODY_OF_CLIENT,
    CLIENT,
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
from tests.upstream.loopback import Recorder

KEY = "sk-of-the-upstream"
CHAT, RESPONSES = UpstreamKind.OPENAI_CHAT, UpstreamKind.OPENAI_RESPONSES
SSE = b"content-type: Text/Event-Stream; charset=utf-8\r\nx-request-id: r1\r\n"
LIMITS = b"x-ratelimit-remaining-requests: 7\r\nset-cookie: __cf_bm=x\r\n"

CHAT_STREAM = (
    b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
    b'\n\ndata: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
    b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\n'
    b"data: [DONE]\n\n"
)
CHAT_WHOLE = (
    b'{"id":"chatcmpl-1","object":"chat.completion","model":"gpt-5","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":1}}'
)
RESPONSES_STREAM = (
    b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_1"}}\n\n'
    b'event: response.output_item.added\ndata: {"type":"response.output_item.added",'
    b'"output_index":0,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}\n\n'
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta",'
    b'"output_index":0,"content_index":0,"item_id":"msg_1","delta":"Hello"}\n\n'
    b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"resp_1",'
    b'"status":"completed","output":[{"id":"msg_1","type":"message","role":"assistant",'
    b'"content":[{"type":"output_text","text":"Hello"}]}],'
    b'"usage":{"input_tokens":9,"output_tokens":1}}}\n\n'
)
RESPONSES_WHOLE = (
    b'{"id":"resp_1","object":"response","status":"completed","output":[{"id":"msg_1",'
    b'"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello"}]}],'
    b'"usage":{"input_tokens":9,"output_tokens":1}}'
)
BOTH = [(CHAT, CHAT_STREAM, CHAT_WHOLE), (RESPONSES, RESPONSES_STREAM, RESPONSES_WHOLE)]


def settings(
    kind: UpstreamKind = CHAT,
    url: str = "https://api.openai.com/v1",
    credential: Credential = Credential.BEARER,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> UpstreamSettings:
    return UpstreamSettings(
        name="far", kind=kind, url=url, credential=credential, secret=KEY, headers=headers
    )


def text_of(events: bytes) -> str:
    """The text of a whole Anthropic stream; anything that is not whole fails the test."""
    reader = AnthropicStreamReader()
    text = ""
    for event in EventSplitter().feed(events):
        name, data = event.split(b"\n")[:2]
        payload = data.removeprefix(b"data: ")
        reader.read(name.removeprefix(b"event: "), payload)
        reported = msgspec.json.decode(payload)
        if reported["type"] == "content_block_delta" and reported["delta"]["type"] == "text_delta":
            text += reported["delta"]["text"]
    assert reader.whole
    assert (reader.usage.input_tokens, reader.usage.output_tokens) == (9, 1)
    return text


@pytest.mark.parametrize(("kind", "stream", "_whole"), BOTH)
def test_a_stream_is_passed_on_as_anthropics_however_it_is_cut(
    kind: UpstreamKind, stream: bytes, _whole: bytes
) -> None:
    async def main() -> None:
        for size in (1, 7, 10_000):
            got: list[bytes] = []
            pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
            head = STREAM_HEAD + SSE + LIMITS + b"\r\n"
            async with replying(head, chunked(*pieces), b"0\r\n\r\n", got=got) as server:
                provider = provider_for(settings(kind, f"{server.url}/v1"), {})
                reported = await exchange(provider, call(STREAMED), "gpt-5", got)
            endpoint = b"chat/completions" if kind is CHAT else b"responses"
            assert reported.request_line == b"POST /v1/" + endpoint + b" HTTP/1.1"
            requested = decoded(reported.request_body)
            assert (requested["model"], requested["stream"]) == ("gpt-5", True)
            assert b"of-the-client" not in reported.request
            assert b"Authorization: Bearer " + KEY.encode() in reported.request
            assert reported.handler.words == ["began", "heard", "ended"]
            assert text_of(reported.handler.body) == "Hello"
            assert b'"model":"claude-opus-4-8"' in reported.handler.body
            assert reported.headers["content-type"] == "text/event-stream"
            assert reported.headers["x-ratelimit-remaining-requests"] == "7"
            assert reported.headers["x-request-id"] == "r1"
            assert "set-cookie" not in reported.headers
            assert "content-length" not in reported.headers

    run(main())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "_stream", "whole"), BOTH)
def test_a_whole_answer_becomes_a_message(
    kind: UpstreamKind, _stream: bytes, whole: bytes, packed: bool
) -> None:
    async def main() -> None:
        got: list[bytes] = []
        wrapped = gzip.compress(whole) if packed else whole
        coding = (b"content-encoding: gzip",) if packed else ()
        said = answer(wrapped, b"content-type: application/json", *coding)
        async with replying(said, got=got) as server:
            provider = provider_for(settings(kind, server.url), {})
            reported = await exchange(provider, call(), "gpt-5", got)
        assert reported.request_line.startswith(b"POST /v1/")
        message = decoded(reported.handler.body)
        assert message["content"] == [{"type": "text", "text": "Hello"}]
        assert message["model"] == "claude-opus-4-8"
        assert read_answer(reported.handler.body) is not None
        assert reported.headers == {"content-type": "application/json"}
        assert reported.handler.words == ["began", "heard", "ended"]

    run(main())


def test_an_answer_of_a_server_that_cannot_stream_becomes_a_stream() -> None:
    async def main() -> None:
        got: list[bytes] = []
        async with replying(
            answer(CHAT_WHOLE, b"content-type: application/json"), got=got
        ) as server:
            provider = provider_for(settings(url=server.url), {})
            reported = await exchange(provider, call(STREAMED), "gpt-5", got)
        assert reported.headers["content-type"] == "text/event-stream"
        assert text_of(reported.handler.body) == "Hello"

    run(main())


def test_tools_of_a_whole_answer_become_events() -> None:
    message = (
        b'{"id":"msg_1","type":"message","role":"assistant","model":"m","content":'
        b'[{"type":"text","text":"I look."},'
        b'{"type":"tool_use","id":"t1","name":"look","input":{"at": "\\u00fc"}}],'
        b'"stop_reason":"tool_use","stop_sequence":null,'
        b'"usage":{"input_tokens":9,"output_tokens":1}}'
    )
    events = as_stream(message)
    assert text_of(events) == "I look."
    assert b'"partial_json":"{\\"at\\": \\"\\\\u00fc\\"}"' in events
    assert [name_and_data(event)[0] for event in EventSplitter().feed(events)] == [
        b"message_start",
        b"content_block_start",
        b"content_block_delta",
        b"content_block_stop",
        b"content_block_start",
        b"content_block_delta",
        b"content_block_stop",
        b"message_delta",
        b"message_stop",
    ]


def test_an_error_is_passed_on_as_it_came_and_shown_to_clients_in_their_form() -> None:
    async def main() -> None:
        got: list[bytes] = []
        body = (
            b'{"error":{"message":"Rate limit reached for gpt-5","type":"requests",'
            b'"code":"rate_limit_exceeded"}}'
        )
        said = answer(body, b"retry-after: 3", b"x-request-id: r1", status=b"429 Too Many")
        async with replying(said, got=got) as server:
            provider = provider_for(settings(url=server.url), {})
            reported = await exchange(provider, call(STREAMED), "gpt-5", got)
        assert (reported.handler.status, reported.handler.body) == (429, body)
        assert reported.headers["retry-after"] == "3"
        native = decoded(provider.native_error(429, body))
        assert native == {
            "type": "error",
            "error": {"type": "rate_limit_error", "message": "Rate limit reached for gpt-5"},
        }

    run(main())


@pytest.mark.parametrize(("kind", "stream", "_whole"), BOTH)
@pytest.mark.parametrize("cut", [False, True])
def test_a_stream_that_is_cut_off_never_gets_an_end(
    kind: UpstreamKind, stream: bytes, _whole: bytes, cut: bool
) -> None:
    async def main() -> None:
        got: list[bytes] = []
        half = stream[: stream.index(b"Hello") + 20]
        half = half[: half.rindex(b"\n\n") + 2] if b"\n\n" in half[-20:] else half
        end = b"" if cut else b"0\r\n\r\n"
        said = (STREAM_HEAD + SSE + b"\r\n", chunked(half), end)
        async with replying(*said, got=got, cut=True) as server:
            provider = provider_for(settings(kind, server.url), {})
            reported = await exchange(provider, call(STREAMED), "gpt-5", got)
        assert b"message_stop" not in reported.handler.body
        assert reported.handler.words[-1] == ("broke" if cut else "ended")
        if cut:
            assert isinstance(reported.handler.error, CutShortError)

    run(main())


def test_an_error_inside_of_a_stream_becomes_an_error_event() -> None:
    async def main() -> None:
        got: list[bytes] = []
        error = b'data: {"error":{"message":"The server is overloaded","code":"overloaded"}}\n\n'
        said = (STREAM_HEAD + SSE + b"\r\n", chunked(error), b"0\r\n\r\n")
        async with replying(*said, got=got) as server:
            provider = provider_for(settings(url=server.url), {})
            reported = await exchange(provider, call(STREAMED), "gpt-5", got)
        failure = classify(Observation.of_stream(reported.handler.body), now=NOW)
        assert failure.kind is Kind.OVERLOADED

    run(main())


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (answer(b"<html>Log in</html>", b"content-type: text/html"), call()),
        (answer(b'{"choices":[]}', b"content-type: application/json"), call(STREAMED)),
        (answer(CHAT_STREAM, b"content-type: text/event-stream"), call()),
        (answer(CHAT_WHOLE, b"content-encoding: zstd"), call()),
        (answer(b"not packed", b"content-encoding: gzip"), call()),
    ],
)
def test_an_answer_that_cannot_be_parsed_breaks(said: bytes, message: UpstreamRequest) -> None:
    async def main() -> None:
        got: list[bytes] = []
        async with replying(said, got=got) as server:
            provider = provider_for(settings(url=server.url), {})
            reported = await exchange(provider, message, "gpt-5", got)
        assert reported.handler.words[-1] == "broke"
        assert reported.handler.body == b""
        assert isinstance(reported.handler.error, GarbledError | DecompressionError)

    run(main())


def test_a_success_with_an_error_is_passed_on_as_it_came() -> None:
    async def main() -> None:
        got: list[bytes] = []
        body = b'{"error":{"message":"Insufficient credits","code":402}}'
        async with replying(answer(body, b"content-type: application/json"), got=got) as server:
            provider = provider_for(settings(url=server.url), {})
            reported = await exchange(provider, call(STREAMED), "gpt-5", got)
        assert (reported.handler.status, reported.handler.body) == (200, body)

    run(main())


def test_bytes_without_a_complete_event_are_a_sign_of_life() -> None:
    provider = provider_for(settings(RESPONSES), {})
    idle = b": OPENROUTER PROCESSING\n\n"

    async def main() -> None:
        for body, kind in ((STREAMED, b"text/event-stream"), (BODY_OF_CLIENT, b"application/json")):
            handler = Recorder()
            listening = provider.wrap_handler(handler, call(body), "gpt-5")
            listening.began(200, [(b"content-type", kind)])
            listening.received(idle)
            assert (handler.words, handler.body) == (["began", "heard"], b"")

    run(main())


def test_a_header_lists_what_was_left_out() -> None:
    async def main() -> None:
        got: list[bytes] = []
        body = BODY_OF_CLIENT[:-1] + b',"top_k":5}'
        async with replying(answer(CHAT_WHOLE), got=got) as server:
            provider = provider_for(settings(url=server.url), {})
            reported = await exchange(provider, call(body), "gpt-5", got)
        assert "top_k" in reported.headers[NOTES.decode()]

    run(main())


def test_what_the_dialect_cannot_express_is_refused_by_name() -> None:
    provider = provider_for(settings(), {})
    body = BODY_OF_CLIENT[:-1] + b',"something_new":1}'
    with pytest.raises(UnsupportedRequestError, match="something_new"):
        provider.render(call(body), "gpt-5")
    for message, model in (
        (call(target=b"/v1/messages/count_tokens"), ""),
        (UpstreamRequest(b"GET", b"/v1/models", CLIENT), ""),
        (call(), ""),
    ):
        with pytest.raises(UnsupportedRequestError):
            provider.render(message, model)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://api.openai.com/v1", b"/chat/completions"),
        ("https://api.openai.com", b"/v1/chat/completions"),
        ("https://openrouter.ai/api/v1", b"/chat/completions"),
        ("https://gateway.example/llm", b"/v1/chat/completions"),
        ("https://us.openai.azure.com/openai/v1", b"/chat/completions"),
        (
            "https://us.openai.azure.com/openai/deployments/mine",
            b"/chat/completions?api-version=2024-10-21",
        ),
    ],
)
def test_addresses_may_have_the_version_or_not(url: str, target: bytes) -> None:
    provider = provider_for(settings(url=url), {})
    assert provider.render(call(), "gpt-5").target == target
    native = UpstreamRequest(b"POST", b"/v1/chat/completions", (), b'{"model":"a"}')
    assert provider.render(native, "b").target == target


@pytest.mark.parametrize(
    ("credential", "url", "expected"),
    [
        (Credential.BEARER, "https://a.example", ("authorization", f"Bearer {KEY}")),
        (Credential.API_KEY, "https://a.example", ("authorization", f"Bearer {KEY}")),
        (Credential.API_KEY, "https://us.openai.azure.com/openai/v1", ("api-key", KEY)),
        (Credential.PASS_THROUGH, "https://a.example", ("authorization", "Bearer of-the-client")),
        (Credential.NONE, "https://a.example", None),
    ],
)
def test_nothing_but_the_chosen_credential_goes_along(
    credential: Credential, url: str, expected: tuple[str, str] | None
) -> None:
    given = settings(url=url, credential=credential, headers={"x-team": "ours"})
    requested = call()
    if credential is Credential.PASS_THROUGH:
        # Nothing of it says that it is Anthropic's; else it would not be let through.
        unmarked = (b"content-type", b"authorization", b"cookie")
        requested = requested._replace(
            headers=[h for h in requested.headers if h[0].lower() in unmarked]
        )
    reported = names(provider_for(given, {}).render(requested, "gpt-5"))
    fixed = {"content-type", "user-agent", "x-team"}
    assert {name: reported[name] for name in set(reported) - fixed} == (
        {} if expected is None else dict([expected])
    )


def test_a_key_that_passes_through_is_sent_as_a_bearer() -> None:
    provider = provider_for(settings(credential=Credential.PASS_THROUGH), {})
    keyed = call()._replace(headers=((b"X-Api-Key", b"of-the-client"),))
    assert names(provider.render(keyed, "gpt-5"))["authorization"] == "Bearer of-the-client"
    nobody = call()._replace(headers=())
    assert "authorization" not in names(provider.render(nobody, "gpt-5"))


@pytest.mark.parametrize("left_out", [b"x-api-key", b"authorization"])
def test_a_credential_of_anthropics_does_not_pass_through(left_out: bytes) -> None:
    provider = provider_for(settings(credential=Credential.PASS_THROUGH), {})
    headers = [pair for pair in call().headers if pair[0].lower() != left_out]
    for target in (b"/v1/messages", b"/v1/chat/completions", b"/v1/files"):
        message = UpstreamRequest(b"POST", target, headers, call().body)
        with pytest.raises(WrongVendorError) as caught:
            provider.render(message, "gpt-5")
        assert "of-the-client" not in str(caught.value)


def test_there_is_no_vendors_credential_for_openai() -> None:
    with pytest.raises(UsageError):
        provider_for(settings(credential=Credential.VENDOR), {})


def test_the_limit_and_sampling_are_named_as_the_server_knows_them() -> None:
    body = BODY_OF_CLIENT[:-1] + b',"temperature":0.5}'
    vendor = decoded(provider_for(settings(), {}).render(call(body), "gpt-5").body)
    assert (vendor["max_completion_tokens"], "temperature" in vendor) == (64, False)
    older = decoded(provider_for(settings(), {}).render(call(body), "gpt-4.1").body)
    assert older["temperature"] == 0.5
    local = settings(url="http://127.0.0.1:11434/v1", credential=Credential.NONE)
    reported = decoded(provider_for(local, {}).render(call(body), "qwen3").body)
    assert (reported["max_tokens"], reported["temperature"]) == (64, 0.5)


def test_a_request_of_the_upstreams_own_dialect_passes() -> None:
    headers = ((b"Authorization", b"Bearer of-the-client"), (b"session_id", b"s1"))
    message = UpstreamRequest(b"POST", b"/v1/responses", headers, b'{"model":"gpt-5","input":"hi"}')
    own = provider_for(settings(RESPONSES), {})
    rendered = own.render(message, "gpt-5-mini")
    assert rendered.body == b'{"model":"gpt-5-mini","input":"hi"}'
    assert names(rendered) == {"session_id": "s1", "authorization": f"Bearer {KEY}"}
    handler = Recorder()
    assert own.wrap_handler(handler, message, "gpt-5-mini") is handler
    passing = provider_for(
        settings(RESPONSES, "https://chatgpt.com/backend-api/codex", Credential.PASS_THROUGH), {}
    )
    rendered = passing.render(message._replace(lines=b"\r\nas: written"), "gpt-5")
    assert (rendered.target, rendered.body) == (b"/responses", message.body)
    assert rendered.lines == b"\r\nas: written"


def test_wrapping_a_handler_without_rendering_translates_again() -> None:
    async def main() -> None:
        provider = provider_for(settings(), {})
        first, second = call(), call(bytes(bytearray(STREAMED)))
        provider.render(first, "gpt-5")
        handler = Recorder()
        listening = provider.wrap_handler(handler, second, "gpt-5")
        listening.began(200, [(b"content-type", b"text/event-stream")])
        listening.received(CHAT_STREAM)
        listening.ended()
        assert text_of(handler.body) == "Hello"

    run(main())


@pytest.mark.parametrize(
    "content",
    [
        b"[" + b",".join([b'{"type":"text","text":"a"}'] * 10_001) + b"]",
        b'[{"type":"text","text":[' + b",".join([b"1"] * 510_000) + b"]}]",
        b'[{"text":"a"}]',
        b'[{"type":"text"}]',
        b'"words"',
    ],
    ids=["blocks", "values", "no type", "no text", "no list"],
)
def test_a_whole_message_that_no_stream_can_have_breaks(content: bytes) -> None:
    """Each block takes three events: a million of them would stop the gateway for half a minute."""
    message = b'{"type":"message","content":' + content + b',"usage":{},"stop_reason":"end_turn"}'
    handler = Recorder()
    translating = TranslatingHandler(
        handler, wants_stream=True, translate=TranslatedDocument, stream=BedrockStream
    )
    translating.began(200, [(b"content-type", b"application/json")])
    translating.received(message)
    translating.ended()
    assert handler.words == ["broke"]
    assert isinstance(handler.error, GarbledError)


def test_an_answer_without_its_usage_breaks() -> None:
    with pytest.raises(KeyError):
        as_stream(b'{"type":"message","content":[]}')
