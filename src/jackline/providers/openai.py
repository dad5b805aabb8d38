"""Speak to an upstream in one of OpenAI's dialects: the vendor, Azure, a router, a local server.

Laws: (1) Anthropic's requests are translated, and their answers back; (2) requests that are in this
upstream's own dialect are passed on, and so are their answers; (3) of the client's headers, nothing
goes along with a translated request.
Not here: the translations (dialects/), hearing answers (translating.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from jackline import __version__
from jackline.dialects import read_request
from jackline.dialects.neutral.account import CannotSayError, Translated
from jackline.dialects.neutral.following import StreamTranslator
from jackline.dialects.neutral.foreign_error import to_anthropic_error
from jackline.dialects.neutral.ids import digest
from jackline.dialects.neutral.options import AnswerAs, Target
from jackline.dialects.openai_chat.answer import from_chat
from jackline.dialects.openai_chat.request import to_chat
from jackline.dialects.openai_chat.stream import ChatStreamTranslator
from jackline.dialects.openai_responses.answer import from_responses
from jackline.dialects.openai_responses.request import to_responses
from jackline.dialects.openai_responses.stream import ResponsesStreamTranslator
from jackline.providers.credential_forms import PassThroughGuard, without_secrets
from jackline.providers.kept_reasoning import KeptReasoning
from jackline.providers.openai_models import is_vendor, reasons, target_of
from jackline.providers.provider import CannotCarryError
from jackline.providers.sent_body import plain, stop_sequences_of, with_model
from jackline.providers.sent_headers import (
    allowed,
    bearer_of,
    given_headers,
    own_secret,
    with_own,
    without,
)
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.providers.translating import TranslatingEar
from jackline.upstream.origin import Origin
from jackline.upstream.port import Ear, Message

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
    ask: Callable[[bytes | bytearray, str, Target], Translated]
    whole: Callable[[bytes, AnswerAs], Translated]
    stream: Callable[[AnswerAs], StreamTranslator]


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
        self._kept = KeptReasoning()
        # What `render` has just translated; `listen` is called next, for the same message.
        self._translated: tuple[bytes | bytearray, str, Translated] | None = None

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

    def render(self, message: Message, model: str) -> Message:
        """The message in this upstream's dialect; CannotCarryError names what it cannot say."""
        if self._passes_through:
            self._guard.check(message)
        if self._is_native(message):
            return self._render_native(message, model)
        if message.method != b"POST" or message.target.partition(b"?")[0] != _MESSAGES or not model:
            raise CannotCarryError("upstreams of this kind take nothing but messages")
        translated = self._translate(message, model)
        self._translated = message.body, model, translated
        headers: list[tuple[bytes, bytes]] = [
            (b"Content-Type", b"application/json"),
            (b"User-Agent", f"jackline/{__version__}".encode()),
        ]
        if self._passes_through:
            headers += bearer_of(message.headers)
        target = self._target(b"/v1" + self._dialect.endpoint)
        return Message(b"POST", target, with_own(headers, self._own), translated.body)

    def listen(self, ear: Ear, message: Message, model: str) -> Ear:
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
        face = AnswerAs(
            asked.model or model,
            translated.tool_names,
            stop_sequences_of(body),
            remember=remember,
        )
        return TranslatingEar(
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

    def _is_native(self, message: Message) -> bool:
        """Whether no client of Anthropic's has written this."""
        path = message.target.partition(b"?")[0]
        if path.endswith(self._dialect.endpoint):
            return True
        return not path.startswith(_MESSAGES) and not any(
            name.lower() == b"anthropic-version" for name, _ in message.headers
        )

    def _render_native(self, message: Message, model: str) -> Message:
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
        return Message(message.method, target, headers, body)

    # --- requests of Anthropic's dialect ---------------------------------------------------------

    def _translate(self, message: Message, model: str) -> Translated:
        target = target_of(model, self._host, message.headers, self._longest)
        if self._keeps_reasoning(model):
            whose = self._whose(message, model)
            target = replace(target, recall=partial(self._kept.recall, whose))
        try:
            return self._dialect.ask(plain(message), model, target)
        except CannotSayError as error:
            raise CannotCarryError(str(error)) from error

    def _keeps_reasoning(self, model: str) -> bool:
        # Other servers may not know how to ask for it.
        is_responses = self._dialect is _DIALECTS[UpstreamKind.OPENAI_RESPONSES]
        return is_responses and is_vendor(self._host) and reasons(model)

    def _whose(self, message: Message, model: str) -> str:
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
