"""All upstreams of a gateway: make the provider of each, and send attempts through it.

Rules: (1) those of upstream/interface.py; (2) settings that cannot work are reported when the
provider is made, with what to change, and not with the first call; (3) only the kind that needs a
vendor's library looks for it; (4) a request that an upstream cannot serve ends as a rejection of
its own, so that the call is rerouted and classified like any other; (5) an upstream that has to
fetch credentials first delays only its own attempts.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial

from jackline.errors import InternalError, JacklineError, UsageError
from jackline.lane_id import LaneId
from jackline.providers.bedrock import BedrockProvider
from jackline.providers.credential_forms import WrongVendorError
from jackline.providers.openai import OpenAiProvider
from jackline.providers.provider import AnthropicProvider, Provider
from jackline.providers.reasoning import (
    FOR_CLAUDE,
    FOR_RESPONSES,
    ReasoningRetry,
    RefusedSignatures,
)
from jackline.providers.sent_request import UnsupportedRequestError, with_hours
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.providers.vertex import VertexProvider
from jackline.upstream.bounded_answers import (
    AnswerLimits,
    BoundedAnswer,
    DecompressionTurns,
    HeldAnswers,
)
from jackline.upstream.http_upstream import HttpUpstream
from jackline.upstream.interface import ResponseHandler, UpstreamAttempt, UpstreamRequest
from jackline.upstream.origin import Origin, proxy_from_environment

_log = logging.getLogger(__name__)
# Lanes that are no models: their bodies are not changed.
_LANES_WITHOUT_MODEL = frozenset(("count_tokens", "models", "relay", "unknown-model"))
_LIMITS = AnswerLimits(64 * 1024 * 1024, 2 * 3600.0)
# The key of the signatures that all upstreams with Claude refuse; no upstream has an empty name.
_CLAUDE = ""


def provider_for(settings: UpstreamSettings, environ: Mapping[str, str]) -> Provider:
    """The provider of an upstream; UsageError when its settings do not fit its kind."""
    is_cloud = settings.kind.facts.cloud is not None
    if settings.credential is (Credential.PASS_THROUGH if is_cloud else Credential.VENDOR):
        instead = "leave it to the vendor's tools" if is_cloud else "use pass-through or none"
        raise UsageError(
            f"Upstream {settings.name} of kind {settings.kind} has no credential of the sort"
            f" “{settings.credential}”.",
            hint=f"In its credential, name its key, or {instead}.",
        )
    origin = origin_of(settings, environ)
    match settings.kind:
        case UpstreamKind.ANTHROPIC:
            return AnthropicProvider(settings, origin)
        case UpstreamKind.BEDROCK:
            return BedrockProvider(settings, origin, environ)
        case UpstreamKind.VERTEX:
            return VertexProvider(settings, origin, environ)
        case UpstreamKind.OPENAI_CHAT | UpstreamKind.OPENAI_RESPONSES:
            return OpenAiProvider(settings, origin)


def origin_of(settings: UpstreamSettings, environ: Mapping[str, str]) -> Origin:
    """Where an upstream is, through the proxy that its settings or the environment name."""
    proxy = settings.proxy or proxy_from_environment(settings.url, environ)
    return Origin(settings.url, proxy=proxy, ca_file=settings.ca_file)


class ProvidedUpstream:
    """All upstreams of a gateway.

    `foreign` upstreams do not serve Claude: conversations may come back from them with turns that
    Claude would refuse. `report` gets a lane and a note. `limits` are for answers that are parsed
    here; relayed ones have no limit.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        foreign: Collection[str] = (),
        report: Callable[[LaneId, str], None] | None = None,
        limits: AnswerLimits = _LIMITS,
    ) -> None:
        self._providers = dict(providers)
        self.limits = limits
        self._turns = DecompressionTurns()
        self.held = HeldAnswers()
        self._report = report
        # By upstream, and once for all that serve Claude: they sign alike.
        self._refused: dict[str, RefusedSignatures] = {}
        self.foreign = frozenset(foreign)
        self.http = HttpUpstream({name: each.origin for name, each in providers.items()})

    def use(self, name: str, provider: Provider) -> None:
        """Use this provider under that name from now on; running attempts go on."""
        self._providers[name] = provider
        self.http.use(name, provider.origin)

    def provider(self, upstream: str) -> Provider | None:
        """The provider of that upstream."""
        return self._providers.get(upstream)

    def native_error(self, lane: LaneId, status: int, body: bytes) -> bytes:
        """An error that came on a lane, in Anthropic's form."""
        provider = self.provider(lane.upstream)
        return body if provider is None else provider.native_error(status, body)

    async def close(self) -> None:
        """Break off all attempts."""
        await self.http.close()

    def start(
        self, message: UpstreamRequest, lane: LaneId, handler: ResponseHandler
    ) -> UpstreamAttempt:
        """Begin one attempt on the upstream of the lane."""
        provider = self._providers.get(lane.upstream)
        if provider is None:
            raise InternalError(f"Lane {lane} belongs to no configured upstream.")
        model = "" if lane.model in _LANES_WITHOUT_MODEL else lane.model
        if message.hour_marks:
            # Before anything else reads it, and before a cloud's request is signed.
            message = with_hours(message)
        if provider.is_ready:
            return self._retry_reasoning(provider, message, lane, model, handler)
        send = partial(self._retry_reasoning, provider, message, lane, model)
        return _PreparingAttempt(provider, send, handler)

    def _retry_reasoning(
        self,
        provider: Provider,
        request: UpstreamRequest,
        lane: LaneId,
        model: str,
        handler: ResponseHandler,
    ) -> UpstreamAttempt:
        """Send, and once more without the reasoning of other models if that is refused."""
        upstream = lane.upstream
        is_foreign = upstream in self.foreign
        # A single upstream gets no reasoning of others. Lanes without a model get none at all.
        if (
            not model
            or len(self._providers) == 1
            or (is_foreign and b'"encrypted_content"' not in request.body)
        ):
            return self._send(provider, request, lane, model, handler)
        fix, key = (FOR_RESPONSES, upstream) if is_foreign else (FOR_CLAUDE, _CLAUDE)
        known = self._refused.get(key)
        notes: tuple[str, ...] = ()
        if known is not None or (not is_foreign and self.foreign):
            fitted = fix.fit_known(request.body, known or ())
            if fitted.notes:
                request, notes = request._replace(body=fitted.body), fitted.notes

        def send(fitted: UpstreamRequest, receiver: ResponseHandler) -> UpstreamAttempt:
            return self._send(provider, fitted, lane, model, receiver)

        def refused(sent: UpstreamRequest) -> None:
            self._refused.setdefault(key, RefusedSignatures()).remember(sent.body)
            if self._report is not None:
                self._report(
                    lane, "earlier reasoning was refused as not its own; retried without it"
                )

        retry = ReasoningRetry(handler, request, fix, send, refused, notes)
        retry.attempt = send(request, retry)
        return retry

    def _send(
        self,
        provider: Provider,
        request: UpstreamRequest,
        lane: LaneId,
        model: str,
        handler: ResponseHandler,
    ) -> UpstreamAttempt:
        try:
            rendered = provider.render(request, model)
        except UnsupportedRequestError as error:
            text = f"model: {lane} does not support this request: {error}"
            return _RejectedAttempt(404, "not_found_error", text, handler)
        except WrongVendorError as error:
            return _RejectedAttempt(401, "authentication_error", f"Jackline: {error}.", handler)
        if request.fresh:
            rendered = rendered._replace(fresh=True)
        receiver = provider.wrap_handler(handler, request, model)
        if lane.model == "relay":
            return self.http.start(rendered, lane, receiver)
        bounded = BoundedAnswer(
            receiver, self.limits, self._turns, rendered.headers, request.headers, self.held
        )
        bounded.attempt = self.http.start(rendered, lane, bounded)
        return bounded


class _RejectedAttempt:
    """An attempt that Jackline itself answers with an error: nothing is sent."""

    def __init__(self, status: int, kind: str, text: str, handler: ResponseHandler) -> None:
        self._handler: ResponseHandler | None = handler
        self._status = status
        error = {"type": "error", "error": {"type": kind, "message": text}}
        asyncio.get_running_loop().call_soon(self._answer, json.dumps(error).encode())

    def _answer(self, body: bytes) -> None:
        # The handler may hang up in each of these calls.
        if self._handler is not None:
            self._handler.began(self._status, ((b"content-type", b"application/json"),))
        if self._handler is not None:
            self._handler.received(body)
        if self._handler is not None:
            self._handler.ended()

    def hang_up(self) -> None:
        self._handler = None

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class _PreparingAttempt:
    """An attempt whose upstream fetches its credentials first; then `send` sends it."""

    def __init__(
        self,
        provider: Provider,
        send: Callable[[ResponseHandler], UpstreamAttempt],
        handler: ResponseHandler,
    ) -> None:
        self._send = send
        self._attempt: UpstreamAttempt | None = None
        self._handler: ResponseHandler | None = handler
        self._paused = False
        self._task = asyncio.get_running_loop().create_task(self._prepare(provider))

    async def _prepare(self, provider: Provider) -> None:
        try:
            await provider.prepare()
        except OSError as error:
            if self._handler is not None:
                self._handler.broke(error)
            return
        except JacklineError as error:
            if self._handler is not None:
                text = f"{error.message} {error.hint}".strip()
                self._attempt = _RejectedAttempt(401, "authentication_error", text, self._handler)
            return
        if self._handler is None:
            return
        try:
            self._attempt = self._send(self._handler)
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            # Nobody awaits this task: the handler has to get the error.
            if not isinstance(error, ValueError):
                _log.error("a bug in Jackline while sending a request", exc_info=error)
            text = f"the request cannot be sent: {type(error).__name__}"
            self._attempt = _RejectedAttempt(400, "invalid_request_error", text, self._handler)
        if self._paused:
            self._attempt.pause()

    def hang_up(self) -> None:
        self._handler = None
        self._task.cancel()
        if self._attempt is not None:
            self._attempt.hang_up()

    def pause(self) -> None:
        self._paused = True
        if self._attempt is not None:
            self._attempt.pause()

    def resume(self) -> None:
        self._paused = False
        if self._attempt is not None:
            self._attempt.resume()
