"""All upstreams of a gateway: make the provider of each, and send attempts through it.

Rules: (1) those of upstream/interface.py; (2) settings that cannot work are reported when the
provider is made, with what to change, and not with the first call; (3) only the kind that needs a
vendor's library looks for it; (4) a request that an upstream cannot carry ends as a rejection of
its own, so that the call is rerouted and classified like any other; (5) an upstream that has to
fetch credentials first delays only its own attempts.
Not here: how each kind renders (the file of each kind), HTTP (upstream/).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping

from jackline.errors import InternalError, JacklineError, UsageError
from jackline.providers.anthropic import AnthropicProvider
from jackline.providers.bedrock import BedrockProvider
from jackline.providers.openai import OpenAiProvider
from jackline.providers.provider import Provider, UnsupportedRequestError, WrongVendorError
from jackline.providers.reasoning import (
    FOR_CLAUDE,
    FOR_RESPONSES,
    ReasoningFix,
    ReasoningRetry,
    RefusedSignatures,
)
from jackline.providers.sent_request import with_hours
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.providers.vertex import VertexProvider
from jackline.upstream.bounded_answers import AnswerLimits, BoundedAnswer, UnpackingTurns
from jackline.upstream.dialler import proxy_from_environment
from jackline.upstream.http_upstream import HttpUpstream
from jackline.upstream.interface import ResponseHandler, UpstreamAttempt, UpstreamRequest
from jackline.upstream.origin import Origin


def provider_for(settings: UpstreamSettings, environ: Mapping[str, str]) -> Provider:
    """The provider of an upstream; UsageError when it cannot be made as described."""
    origin = origin_of(settings, environ)
    if settings.kind is UpstreamKind.ANTHROPIC:
        _refuse(settings, Credential.VENDOR, "name the key it shall use, or pass-through")
        return AnthropicProvider(settings, origin)
    if settings.kind in (UpstreamKind.OPENAI_CHAT, UpstreamKind.OPENAI_RESPONSES):
        _refuse(settings, Credential.VENDOR, "name the key it shall use, or none")
        return OpenAiProvider(settings, origin)
    _refuse(settings, Credential.PASS_THROUGH, "name its key, or leave it to the vendor's tools")
    if settings.kind is UpstreamKind.BEDROCK:
        return BedrockProvider(settings, origin, environ)
    return VertexProvider(settings, origin, environ)


def origin_of(settings: UpstreamSettings, environ: Mapping[str, str]) -> Origin:
    """Where an upstream is, through the proxy that its settings or the environment name."""
    proxy = settings.proxy or proxy_from_environment(settings.url, environ)
    return Origin(settings.url, proxy=proxy, ca_file=settings.ca_file)


def _refuse(settings: UpstreamSettings, credential: Credential, instead: str) -> None:
    if settings.credential is credential:
        raise UsageError(
            f"Upstream {settings.name} of kind {settings.kind} has no credential of the sort"
            f" “{credential}”.",
            next=f"In its credential, {instead}.",
        )


# Lanes that are no models: their bodies stay as they are.
SIDE_LANES = frozenset(("count_tokens", "models", "relay", "unknown-model"))
_log = logging.getLogger(__name__)
_RELAYED = "/relay"
_LIMITS = AnswerLimits(64 * 1024 * 1024, 2 * 3600.0)
_ASKED_AGAIN = "earlier thoughts were refused as not its own; it was asked again without them"
# No upstream is called so.
_CLAUDE = ""
_ENCRYPTED = b'"encrypted_content"'
_JSON = ((b"content-type", b"application/json"),)


def _to_nobody(_lane: str, _words: str) -> None:
    """Tell nobody: the default audience."""


class ProvidedUpstream:
    """All upstreams of a gateway."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        foreign: Collection[str] = (),
        tell: Callable[[str, str], None] = _to_nobody,
        limits: AnswerLimits = _LIMITS,
    ) -> None:
        self._providers = dict(providers)
        # Of answers that are read here; what is only relayed has no limit.
        self.limits = limits
        self._turns = UnpackingTurns()
        self._tell = tell
        # By upstream, and once for all that serve Claude: they sign alike.
        self._refused: dict[str, RefusedSignatures] = {}
        # Upstreams of another family: a conversation may come back from them with turns that
        # Claude would refuse.
        self.foreign = frozenset(foreign)
        self.http = HttpUpstream({name: each.origin for name, each in providers.items()})

    def use(self, name: str, provider: Provider) -> None:
        """Speak to this upstream from now on under that name; what is under way goes on."""
        self._providers[name] = provider
        self.http.use(name, provider.origin)

    def provider(self, lane: str) -> Provider | None:
        """Who speaks for a lane's upstream."""
        return self._providers.get(lane.partition("/")[0])

    def native_error(self, lane: str, status: int, body: bytes) -> bytes:
        """An error that came on a lane, in Anthropic's shape."""
        provider = self.provider(lane)
        return body if provider is None else provider.native_error(status, body)

    async def close(self) -> None:
        """Break off whatever goes on."""
        await self.http.close()

    def start(self, message: UpstreamRequest, lane: str, ear: ResponseHandler) -> UpstreamAttempt:
        """Begin one attempt on the upstream that the lane's name begins with."""
        name, _, rest = lane.partition("/")
        provider = self._providers.get(name)
        if provider is None:
            raise InternalError(f"Lane {lane} belongs to no configured upstream.")
        model = rest.rpartition("#")[0] or rest
        if model in SIDE_LANES:
            model = ""
        if message.hour_marks:
            # Before anything else reads it, and before a cloud's request is signed.
            message = with_hours(message)
        if provider.is_ready:
            return self.send_rendered(provider, message, lane, model, ear)
        return _Preparing(self, provider, message, lane, model, ear)

    def send_rendered(
        self,
        provider: Provider,
        message: UpstreamRequest,
        lane: str,
        model: str,
        ear: ResponseHandler,
    ) -> UpstreamAttempt:
        """Render for a provider that is ready, and send."""
        mend = self._mend_for(message, lane, model)
        if mend is None:
            return self._send(provider, message, lane, model, ear)
        place = _CLAUDE if mend is FOR_CLAUDE else lane.partition("/")[0]
        known = self._refused.get(place)
        notes: tuple[str, ...] = ()
        if known is not None or (mend is FOR_CLAUDE and self.foreign):
            fitted = mend.fit_known(message.body, known or ())
            if fitted.notes:
                message, notes = message._replace(body=fitted.body), fitted.notes

        def again(mended: UpstreamRequest, listening: ResponseHandler) -> UpstreamAttempt:
            return self._send(provider, mended, lane, model, listening)

        def refused(sent: UpstreamRequest) -> None:
            self._refused.setdefault(place, RefusedSignatures()).remember(sent.body)
            self._tell(lane, _ASKED_AGAIN)

        mending = ReasoningRetry(ear, message, mend, again, refused, notes)
        mending.handle = self._send(provider, message, lane, model, mending)
        return mending

    def _mend_for(self, message: UpstreamRequest, lane: str, model: str) -> ReasoningFix | None:
        """What may have to be mended: nothing, where conversations have no other place to be."""
        if not model or len(self._providers) == 1:
            return None
        if lane.partition("/")[0] not in self.foreign:
            return FOR_CLAUDE
        return FOR_RESPONSES if _ENCRYPTED in message.body else None

    def _send(
        self,
        provider: Provider,
        message: UpstreamRequest,
        lane: str,
        model: str,
        ear: ResponseHandler,
    ) -> UpstreamAttempt:
        try:
            rendered = provider.render(message, model)
        except UnsupportedRequestError as error:
            words = f"model: {lane.partition('#')[0]} cannot be asked for this: {error}"
            return _Told(404, "not_found_error", words, ear)
        except WrongVendorError as error:
            return _Told(401, "authentication_error", f"Jackline: {error}.", ear)
        if message.fresh:
            rendered = rendered._replace(fresh=True)
        listening = provider.listen(ear, message, model)
        if lane.endswith(_RELAYED):
            return self.http.start(rendered, lane, listening)
        bounded = BoundedAnswer(listening, self.limits, self._turns, rendered.headers)
        bounded.attempt = attempt = self.http.start(rendered, lane, bounded)
        return attempt


class _Told:
    """An attempt that ends before it begins: the upstream cannot carry the request."""

    def __init__(self, status: int, kind: str, words: str, ear: ResponseHandler) -> None:
        self._ear: ResponseHandler | None = ear
        self._status = status
        error = {"type": "error", "error": {"type": kind, "message": words}}
        asyncio.get_running_loop().call_soon(self._tell, json.dumps(error).encode())

    def _tell(self, body: bytes) -> None:
        # After each word the ear may have hung up.
        if self._ear is not None:
            self._ear.began(self._status, _JSON)
        if self._ear is not None:
            self._ear.heard(body)
        if self._ear is not None:
            self._ear.ended()

    def hang_up(self) -> None:
        """Nothing more is heard."""
        self._ear = None

    def pause(self) -> None:
        """There is nothing to read."""

    def resume(self) -> None:
        """There is nothing to read."""


class _Preparing:
    """An attempt whose upstream fetches its credentials first."""

    def __init__(
        self,
        upstream: ProvidedUpstream,
        provider: Provider,
        message: UpstreamRequest,
        lane: str,
        model: str,
        ear: ResponseHandler,
    ) -> None:
        self._attempt: UpstreamAttempt | None = None
        self._ear: ResponseHandler | None = ear
        self._paused = False
        self._task = asyncio.get_running_loop().create_task(
            self._prepare(upstream, provider, message, lane, model)
        )

    async def _prepare(
        self,
        upstream: ProvidedUpstream,
        provider: Provider,
        message: UpstreamRequest,
        lane: str,
        model: str,
    ) -> None:
        try:
            await provider.prepare()
        except OSError as error:
            if self._ear is not None:
                self._ear.broke(error)
            return
        except JacklineError as error:
            if self._ear is not None:
                words = f"{error.message} {error.next}".strip()
                self._attempt = _Told(401, "authentication_error", words, self._ear)
            return
        if self._ear is None:
            return
        try:
            self._attempt = upstream.send_rendered(provider, message, lane, model, self._ear)
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            # Nobody awaits this: whoever waits for the answer has to hear it.
            if not isinstance(error, ValueError):
                _log.error("a bug in Jackline while sending a request", exc_info=error)
            words = f"the request cannot be sent: {type(error).__name__}"
            self._attempt = _Told(400, "invalid_request_error", words, self._ear)
        if self._paused:
            self._attempt.pause()

    def hang_up(self) -> None:
        """Drop it."""
        self._ear = None
        self._task.cancel()
        if self._attempt is not None:
            self._attempt.hang_up()

    def pause(self) -> None:
        """Stop reading."""
        self._paused = True
        if self._attempt is not None:
            self._attempt.pause()

    def resume(self) -> None:
        """Go on reading."""
        self._paused = False
        if self._attempt is not None:
            self._attempt.resume()
