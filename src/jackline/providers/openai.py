"""The provider for OpenAI's dialects: the vendor, Azure, a router, a local server.

Rules: (1) Anthropic's requests are translated, and their answers back; (2) requests in this
upstream's own dialect are passed on, and so are their answers; (3) no header of the client goes
with a translated request; (4) what a model supports is known by its name and host; unknown ones get
the most careful request: a field that is left out costs a little, one that is refused costs the
call; (5) the user's configuration wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import msgspec

from jackline.dialects import read_request
from jackline.dialects.json_bounds import UNREADABLE
from jackline.dialects.neutral.conversation import digest
from jackline.dialects.neutral.fields import TranslatedDocument, UntranslatableError
from jackline.dialects.neutral.options import AnswerOptions, TargetOptions
from jackline.dialects.neutral.stream import StreamTranslator
from jackline.dialects.openai_chat import ChatStreamTranslator, from_chat, to_chat
from jackline.dialects.openai_responses import (
    ResponsesStreamTranslator,
    from_responses,
    to_responses,
)
from jackline.http1.headers import Headers
from jackline.providers.credential_forms import PassThroughGuard, without_secrets
from jackline.providers.provider import Provider
from jackline.providers.reasoning import ReasoningStore
from jackline.providers.sent_request import (
    COMPRESSION,
    JSON_HEADERS,
    UnsupportedRequestError,
    allowed,
    bearer_of,
    own_headers,
    plain_body,
    with_model,
    with_own,
    without,
)
from jackline.providers.settings import OPENAI_HOST, Credential, UpstreamKind, UpstreamSettings
from jackline.providers.translated_answer import TranslatingHandler
from jackline.upstream.interface import ResponseHandler, UpstreamRequest
from jackline.upstream.origin import Origin


class _ModelFacts(NamedTuple):
    """What models with these names take; models that reason refuse temperature and top_p."""

    names: str
    efforts: tuple[str, ...] = ()
    longest: int | None = None


_LEVELS = ("low", "medium", "high")
# In this order: the first that fits counts.
_MODELS: Sequence[_ModelFacts] = (
    _ModelFacts(r"gpt-5(?:\.\d)?-chat", longest=16_384),
    _ModelFacts(r"gpt-5\.[2-9]", ("none", *_LEVELS, "xhigh")),
    _ModelFacts(r"gpt-5\.1", ("none", *_LEVELS)),
    _ModelFacts("gpt-5", ("minimal", *_LEVELS)),
    _ModelFacts(r"o\d", _LEVELS),
    _ModelFacts("(?:chat)?gpt-4o", longest=16_384),
    _ModelFacts(r"gpt-4\.1", longest=32_768),
    _ModelFacts(""),
)


class _Dialect(NamedTuple):
    endpoint: bytes
    request: Callable[[bytes | bytearray, str, TargetOptions], TranslatedDocument]
    answer: Callable[[bytes, AnswerOptions], TranslatedDocument]
    stream: Callable[[AnswerOptions], StreamTranslator]


_RESPONSES = _Dialect(b"/responses", to_responses, from_responses, ResponsesStreamTranslator)
_CHAT = _Dialect(b"/chat/completions", to_chat, from_chat, ChatStreamTranslator)


class _StopSequences(msgspec.Struct):
    stop_sequences: list[str] | None = None


_stop_sequences = msgspec.json.Decoder(_StopSequences)
_SESSION, _AGENT = b"x-claude-code-session-id", b"x-claude-code-agent-id"
_MESSAGES = b"/v1/messages"
# Addresses that end in a version have the whole path of the endpoints already; so do Azure's
# deployments, which need the version of the protocol in the query, and Codex's backend.
_HAS_VERSION = re.compile(r"/(?:v\d[\w.]*|codex)$")


def is_vendor(host: str) -> bool:
    """Whether OpenAI's models are served there as OpenAI serves them."""
    return host == OPENAI_HOST or host.endswith((f".{OPENAI_HOST}", ".openai.azure.com"))


def target_of(model: str, host: str, headers: Headers, longest: int | None = None) -> TargetOptions:
    """What a model takes there; `longest` is the longest answer that the user allows."""
    if not is_vendor(host):
        # Other servers know the older name of the limit, their templates often want all system
        # messages first, and some refuse a level of effort for models that do not reason.
        efforts = _LEVELS if host == "openrouter.ai" else ()
        return TargetOptions(
            max_tokens_field="max_tokens",
            mid_system="user",
            longest_answer=longest,
            efforts=efforts,
        )
    facts = _facts_of(model)
    limits = [limit for limit in (longest, facts.longest) if limit is not None]
    cache_key = None
    if not host.endswith(".azure.com"):
        # OpenAI caches by a name of the conversation; this one reveals nothing about it.
        sent = {name.lower(): value.decode("latin-1") for name, value in headers}
        names = [value for name, value in sent.items() if name in (_SESSION, _AGENT)]
        cache_key = digest(*names) if _SESSION in sent else None
    return TargetOptions(
        sampling=not facts.efforts,
        efforts=facts.efforts,
        longest_answer=min(limits, default=None),
        prompt_cache_key=cache_key,
    )


def _facts_of(model: str) -> _ModelFacts:
    name = model.rpartition("/")[2]
    return next(each for each in _MODELS if re.match(each.names, name))


class OpenAiProvider(Provider):
    """One upstream that takes chat completions or responses."""

    is_ready = True

    def __init__(self, settings: UpstreamSettings, origin: Origin) -> None:
        super().__init__(origin)
        self._host = origin.address.host
        self._dialect = _CHAT if settings.kind is UpstreamKind.OPENAI_CHAT else _RESPONSES
        self._passes_through = settings.credential is Credential.PASS_THROUGH
        self._guard = PassThroughGuard(settings, origin)
        is_azure = self._host.endswith(".azure.com")
        self._own = own_headers(settings, key_header=b"api-key" if is_azure else None)
        self._at_deployment = "/deployments/" in origin.path
        self._has_version = bool(_HAS_VERSION.search(origin.path)) or self._at_deployment
        self._longest = settings.longest_answer
        self._reasoning = ReasoningStore()
        # What `render` has just translated; `wrap_handler` is called next, for the same request.
        self._translated: tuple[bytes | bytearray, str, TranslatedDocument] | None = None

    def render(self, request: UpstreamRequest, model: str) -> UpstreamRequest:
        """The request in this upstream's dialect; UnsupportedRequestError if that cannot be."""
        if self._passes_through:
            self._guard.check(request)
        if self._is_native(request):
            return self._render_native(request, model)
        if request.method != b"POST" or request.target.partition(b"?")[0] != _MESSAGES or not model:
            raise UnsupportedRequestError("upstreams of this kind take nothing but messages")
        translated = self._translate(request, model)
        self._translated = request.body, model, translated
        headers = list(JSON_HEADERS)
        if self._passes_through:
            headers += bearer_of(request.headers)
        target = self._target(b"/v1" + self._dialect.endpoint)
        return UpstreamRequest(b"POST", target, with_own(headers, self._own), translated.body)

    def wrap_handler(
        self, handler: ResponseHandler, request: UpstreamRequest, model: str
    ) -> ResponseHandler:
        """A handler that translates, unless the request was in this upstream's own dialect."""
        if self._is_native(request):
            return handler
        last, self._translated = self._translated, None
        if last is not None and last[0] is request.body and last[1] == model:
            translated = last[2]
        else:
            translated = self._translate(request, model)
        body = plain_body(request)
        requested = read_request(body)
        try:
            stop_sequences = tuple(_stop_sequences.decode(body).stop_sequences or ())
        except UNREADABLE:
            stop_sequences = ()
        remember = None
        if self._stores_reasoning(model):
            remember = partial(self._reasoning.remember, self._owner(request, model))
        options = AnswerOptions(
            requested.model or model, translated.tool_names, stop_sequences, remember=remember
        )
        return TranslatingHandler(
            handler,
            wants_stream=requested.stream,
            translate=lambda body: self._dialect.answer(body, options),
            stream=partial(self._dialect.stream, options),
            notes=translated.notes,
        )

    def _is_native(self, request: UpstreamRequest) -> bool:
        """Whether the request is in this upstream's own dialect."""
        path = request.target.partition(b"?")[0]
        if path.endswith(self._dialect.endpoint):
            return True
        return not path.startswith(_MESSAGES) and not any(
            name.lower() == b"anthropic-version" for name, _ in request.headers
        )

    def _render_native(self, request: UpstreamRequest, model: str) -> UpstreamRequest:
        headers, target = request.headers, request.target
        if not self._passes_through:
            headers, target = allowed(headers), without_secrets(target)
        if self._own:
            headers = with_own(headers, self._own)
        body = request.body
        if body and model:
            readable = plain_body(request)
            changed = with_model(readable, model)
            if changed is not readable:
                headers, body = without(headers, COMPRESSION), changed
        target = self._target(target)
        if headers is request.headers:
            return request._replace(target=target, body=body)
        return UpstreamRequest(request.method, target, headers, body)

    def _translate(self, request: UpstreamRequest, model: str) -> TranslatedDocument:
        target = target_of(model, self._host, request.headers, self._longest)
        if self._stores_reasoning(model):
            owner = self._owner(request, model)
            target = replace(target, recall=partial(self._reasoning.recall, owner))
        try:
            return self._dialect.request(plain_body(request), model, target)
        except UntranslatableError as error:
            raise UnsupportedRequestError(str(error)) from error

    def _stores_reasoning(self, model: str) -> bool:
        # Other servers may not know how to return it.
        is_known = self._dialect is _RESPONSES and is_vendor(self._host)
        return is_known and bool(_facts_of(model).efforts)

    def _owner(self, request: UpstreamRequest, model: str) -> str:
        """Who alone can have the reasoning read again: an account, by the client's key or ours."""
        shown = bearer_of(request.headers) if self._passes_through else []
        return digest(model, b"".join(value for _, value in shown).decode("latin-1"))

    def _target(self, target: bytes) -> bytes:
        if self._has_version:
            target = target.removeprefix(b"/v1")
        if self._at_deployment and b"?" not in target:
            target += b"?api-version=2024-10-21"
        return target
