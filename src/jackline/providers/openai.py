"""The provider for OpenAI's dialects: the vendor, Azure, a router, a local server.

Rules: (1) Anthropic's requests are translated, and their answers back; (2) requests in this
upstream's own dialect are passed on, and so are their answers; (3) no header of the client goes
with a translated request; (4) what a model supports is known by its name and host; unknown ones get
the most careful request: a field that is left out costs a little, one that is refused costs the
call; (5) the user's configuration wins.
Not here: the translations (dialects/), receiving answers (translated_answer.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from jackline import __version__
from jackline.dialects import read_request
from jackline.dialects.neutral.answer import to_anthropic_error
from jackline.dialects.neutral.conversation import digest
from jackline.dialects.neutral.fields import TranslatedDocument, UntranslatableError
from jackline.dialects.neutral.options import AnswerOptions, TargetOptions
from jackline.dialects.neutral.stream import StreamTranslator
from jackline.dialects.openai_chat.answer import ChatStreamTranslator, from_chat
from jackline.dialects.openai_chat.request import to_chat
from jackline.dialects.openai_responses.answer import ResponsesStreamTranslator, from_responses
from jackline.dialects.openai_responses.request import to_responses
from jackline.providers.credential_forms import PassThroughGuard, without_secrets
from jackline.providers.provider import UnsupportedRequestError
from jackline.providers.reasoning import ReasoningStore
from jackline.providers.sent_request import (
    allowed,
    bearer_of,
    given_headers,
    own_secret,
    plain,
    stop_sequences_of,
    with_model,
    with_own,
    without,
)
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.providers.translated_answer import TranslatingHandler
from jackline.upstream.interface import Headers, ResponseHandler, UpstreamRequest
from jackline.upstream.origin import Origin

_SESSION, _AGENT = b"x-claude-code-session-id", b"x-claude-code-agent-id"


class _Known(NamedTuple):
    """What the models of a pattern take: levels of effort, and the longest answer."""

    names: re.Pattern[str]
    efforts: tuple[str, ...] = ()
    longest: int | None = None

    @property
    def reasons(self) -> bool:
        """Models that reason refuse temperature and top_p."""
        return bool(self.efforts)


_LEVELS = ("low", "medium", "high")
# In this order: the first that fits counts.
_MODELS: Sequence[_Known] = (
    _Known(re.compile(r"gpt-5(?:\.\d)?-chat"), longest=16_384),
    _Known(re.compile(r"gpt-5\.[2-9]"), ("none", *_LEVELS, "xhigh")),
    _Known(re.compile(r"gpt-5\.1"), ("none", *_LEVELS)),
    _Known(re.compile(r"gpt-5"), ("minimal", *_LEVELS)),
    _Known(re.compile(r"o\d"), _LEVELS),
    _Known(re.compile(r"(?:chat)?gpt-4o"), longest=16_384),
    _Known(re.compile(r"gpt-4\.1"), longest=32_768),
)
_UNKNOWN = _Known(re.compile(""))


def is_openai(host: str) -> bool:
    """Whether OpenAI's own API answers there."""
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def is_vendor(host: str) -> bool:
    """Whether OpenAI's models are served there as OpenAI serves them."""
    return is_openai(host) or host.endswith(".openai.azure.com")


def reasons(model: str) -> bool:
    """Whether this is one of OpenAI's models that reason."""
    return _known(model).reasons


def target_of(model: str, host: str, headers: Headers, longest: int | None = None) -> TargetOptions:
    """What a model takes there; `longest` is the longest answer that the user allows."""
    if not is_vendor(host):
        # Other servers know the older name of the limit, their templates often want all system
        # messages in front, and some refuse a level of effort for models that do not reason.
        efforts = _LEVELS if host == "openrouter.ai" else ()
        return TargetOptions(
            max_tokens_field="max_tokens",
            mid_system="user",
            longest_answer=longest,
            efforts=efforts,
        )
    known = _known(model)
    limits = [limit for limit in (longest, known.longest) if limit is not None]
    return TargetOptions(
        sampling=not known.reasons,
        efforts=known.efforts,
        longest_answer=min(limits, default=None),
        prompt_cache_key=_conversation(headers) if is_openai(host) else None,
    )


def _known(model: str) -> _Known:
    name = model.rpartition("/")[2]
    return next((each for each in _MODELS if each.names.match(name)), _UNKNOWN)


def _conversation(headers: Headers) -> str | None:
    """A name for the conversation that says nothing about it: the vendor caches by it."""
    found = {name.lower(): value for name, value in headers if name.lower() in (_SESSION, _AGENT)}
    if _SESSION not in found:
        return None
    return digest(*(value.decode("latin-1") for value in found.values()))


_MESSAGES = b"/v1/messages"
_PACKED = frozenset({b"content-encoding"})
# Addresses that end in a version hold the whole way to the endpoints already; so do Azure's
# deployments, which want to be told the version of the protocol in the query, and Codex's backend.
_HOLDS_VERSION = re.compile(r"/(?:v\d[\w.]*|codex)$")
_DEPLOYMENT = "/deployments/"
_AZURE_VERSION = b"?api-version=2024-10-21"


@dataclass(frozen=True, slots=True)
class _Dialect:
    endpoint: bytes
    ask: Callable[[bytes | bytearray, str, TargetOptions], TranslatedDocument]
    whole: Callable[[bytes, AnswerOptions], TranslatedDocument]
    stream: Callable[[AnswerOptions], StreamTranslator]


_DIALECTS = {
    UpstreamKind.OPENAI_CHAT: _Dialect(
        b"/chat/completions", to_chat, from_chat, ChatStreamTranslator
    ),
    UpstreamKind.OPENAI_RESPONSES: _Dialect(
        b"/responses", to_responses, from_responses, ResponsesStreamTranslator
    ),
}


class OpenAiProvider:
    """One upstream that takes chat completions or responses."""

    def __init__(self, settings: UpstreamSettings, origin: Origin) -> None:
        self._origin = origin
        self._dialect = _DIALECTS[settings.kind]
        self._passes_through = settings.credential is Credential.PASS_THROUGH
        self._guard = PassThroughGuard(settings, origin)
        self._own = _own_headers(settings, origin)
        self._at_deployment = _DEPLOYMENT in origin.path
        self._holds_version = bool(_HOLDS_VERSION.search(origin.path)) or self._at_deployment
        self._host = origin.address.host
        self._longest = settings.longest_answer
        self._kept = ReasoningStore()
        # What `render` has just translated; `listen` is called next, for the same message.
        self._translated: tuple[bytes | bytearray, str, TranslatedDocument] | None = None

    @property
    def origin(self) -> Origin:
        """Where it is."""
        return self._origin

    @property
    def is_ready(self) -> bool:
        """Always: what rendering needs is in the settings."""
        return True

    async def prepare(self) -> None:
        """Nothing is needed."""

    def render(self, message: UpstreamRequest, model: str) -> UpstreamRequest:
        """The message in this upstream's dialect; CannotCarryError names what it cannot say."""
        if self._passes_through:
            self._guard.check(message)
        if self._is_native(message):
            return self._render_native(message, model)
        if message.method != b"POST" or message.target.partition(b"?")[0] != _MESSAGES or not model:
            raise UnsupportedRequestError("upstreams of this kind take nothing but messages")
        translated = self._translate(message, model)
        self._translated = message.body, model, translated
        headers: list[tuple[bytes, bytes]] = [
            (b"Content-Type", b"application/json"),
            (b"User-Agent", f"jackline/{__version__}".encode()),
        ]
        if self._passes_through:
            headers += bearer_of(message.headers)
        target = self._target(b"/v1" + self._dialect.endpoint)
        return UpstreamRequest(b"POST", target, with_own(headers, self._own), translated.body)

    def listen(self, ear: ResponseHandler, message: UpstreamRequest, model: str) -> ResponseHandler:
        """An ear that translates, unless the request was in this upstream's own dialect."""
        if self._is_native(message):
            return ear
        kept, self._translated = self._translated, None
        if kept is not None and kept[0] is message.body and kept[1] == model:
            translated = kept[2]
        else:
            translated = self._translate(message, model)
        body = plain(message)
        asked = read_request(body)
        remember = None
        if self._keeps_reasoning(model):
            remember = partial(self._kept.remember, self._whose(message, model))
        face = AnswerOptions(
            asked.model or model,
            translated.tool_names,
            stop_sequences_of(body),
            remember=remember,
        )
        return TranslatingHandler(
            ear,
            wants_stream=asked.stream,
            whole=lambda body: self._dialect.whole(body, face),
            stream=partial(self._dialect.stream, face),
            notes=translated.notes,
        )

    def native_error(self, status: int, body: bytes) -> bytes:
        """The error in Anthropic's words."""
        return to_anthropic_error(status, body)

    # --- requests of this upstream's own dialect -------------------------------------------------

    def _is_native(self, message: UpstreamRequest) -> bool:
        """Whether no client of Anthropic's has written this."""
        path = message.target.partition(b"?")[0]
        if path.endswith(self._dialect.endpoint):
            return True
        return not path.startswith(_MESSAGES) and not any(
            name.lower() == b"anthropic-version" for name, _ in message.headers
        )

    def _render_native(self, message: UpstreamRequest, model: str) -> UpstreamRequest:
        headers, target = message.headers, message.target
        if not self._passes_through:
            headers, target = allowed(headers), without_secrets(target)
        if self._own:
            headers = with_own(headers, self._own)
        body = message.body
        if body and model:
            readable = plain(message)
            asked = with_model(readable, model)
            if asked is not readable:
                headers, body = without(headers, _PACKED), asked
        target = self._target(target)
        if headers is message.headers:
            return message._replace(target=target, body=body)
        return UpstreamRequest(message.method, target, headers, body)

    # --- requests of Anthropic's dialect ---------------------------------------------------------

    def _translate(self, message: UpstreamRequest, model: str) -> TranslatedDocument:
        target = target_of(model, self._host, message.headers, self._longest)
        if self._keeps_reasoning(model):
            whose = self._whose(message, model)
            target = replace(target, recall=partial(self._kept.recall, whose))
        try:
            return self._dialect.ask(plain(message), model, target)
        except UntranslatableError as error:
            raise UnsupportedRequestError(str(error)) from error

    def _keeps_reasoning(self, model: str) -> bool:
        # Other servers may not know how to ask for it.
        is_responses = self._dialect is _DIALECTS[UpstreamKind.OPENAI_RESPONSES]
        return is_responses and is_vendor(self._host) and reasons(model)

    def _whose(self, message: UpstreamRequest, model: str) -> str:
        """Who alone can have thoughts read again: an account, by its own key or the client's."""
        key = (
            b"".join(value for _, value in bearer_of(message.headers))
            if self._passes_through
            else b""
        )
        return digest(model, key.decode("latin-1"))

    def _target(self, target: bytes) -> bytes:
        if self._holds_version:
            target = target.removeprefix(b"/v1")
        if self._at_deployment and b"?" not in target:
            target += _AZURE_VERSION
        return target


def _own_headers(settings: UpstreamSettings, origin: Origin) -> list[tuple[bytes, bytes]]:
    own = []
    secret = own_secret(settings)
    if secret is not None:
        azure = origin.address.host.endswith(".azure.com")
        if azure and settings.credential is Credential.API_KEY:
            own.append((b"api-key", secret))
        else:
            own.append((b"Authorization", b"Bearer " + secret))
    return with_own(own, given_headers(settings))
