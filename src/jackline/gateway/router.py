"""Route each request to where it is answered: call intake, the relay, or a handler of the service.

Rules: (1) strangers are refused on every path (Host, Origin, Sec-Fetch-Site, token) before anything
else is read, and no preflight is answered or relayed; (2) a verdict is remembered with its head,
for the settings that it was made with; (3) while the gateway stops, new calls get a 503 with a time
to retry; (4) a path that is not ours is the vendor's, and relayed with the client's own credential
only, so a redirect sends it nowhere where its own vendor would not; (5) a relayed request is one
attempt, no waiting, no classifying; an answer that breaks off is broken off for the client too, and
its compression is not touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from jackline.calls import Dialect
from jackline.control.http_handler import HttpHandler
from jackline.gateway.access import foreign, reads_as_browser, sends_form, token_missing
from jackline.gateway.call_intake import CallIntake, new_call_id
from jackline.gateway.caller import without_tag
from jackline.gateway.compressed_body import CompressedBodies, is_compressed
from jackline.gateway.connection import Exchange
from jackline.gateway.control_plane import PROOF, ControlPaths
from jackline.gateway.lane_registry import TooManyLanesError
from jackline.gateway.listener import Listener
from jackline.gateway.own_answers import (
    RefusalAnswer,
    gateway_refusal,
    note_lines,
    request_id,
    without_note_headers,
)
from jackline.gateway.placement import relay_upstream
from jackline.gateway.settings import ListenSettings
from jackline.http1.headers import Headers
from jackline.http1.requests import RequestRefusal
from jackline.lane_id import LaneId
from jackline.upstream.interface import Upstream, UpstreamAttempt, UpstreamRequest

_OURS = b"x-jackline-"


class _Relay:
    """One request on its way to the upstream; handles its response."""

    __slots__ = ("_attempt", "_call", "_exchange", "_lane", "_release")

    def __init__(self, exchange: Exchange, lane: LaneId, release: Callable[[], None]) -> None:
        """`release` is called once, when its body is no longer needed."""
        self._exchange = exchange
        self._release: Callable[[], None] | None = release
        self._attempt: UpstreamAttempt | None = None
        self._lane = lane
        self._call = new_call_id()

    def start(self, upstream: Upstream, target: bytes) -> None:
        """Send it."""
        exchange = self._exchange
        headers = [pair for pair in exchange.headers if not pair[0].lower().startswith(_OURS)]
        message = UpstreamRequest(exchange.method, target, headers, exchange.body)
        try:
            self._attempt = attempt = upstream.start(message, self._lane, self)
        except Exception:
            self._finish()
            raise
        self._exchange.on_gone = self._gone
        self._exchange.on_pause = attempt.pause
        self._exchange.on_resume = attempt.resume

    def _gone(self) -> None:
        if self._attempt is not None:
            self._attempt.hang_up()
        self._finish()

    def _finish(self) -> None:
        release, self._release = self._release, None
        self._attempt = None
        if release is not None:
            release()

    # What is relayed is passed on as it comes.
    held = 0

    def began(self, status: int, headers: Headers) -> None:
        self._exchange.begin(status, without_note_headers(headers), self._notes(headers))

    def received(self, data: bytes) -> None:
        self._exchange.send(data)

    def ended(self) -> None:
        self._finish()
        self._exchange.finish()

    def broke(self, error: OSError) -> None:
        self._finish()
        if self._exchange.begun:
            self._exchange.reset()
            return
        name = type(error).__name__
        no = gateway_refusal(502, f"Jackline: the upstream could not be asked ({name}).")
        self._exchange.respond(no.status, no.headers, no.body, self._notes(no.headers))

    def _notes(self, headers: Headers) -> bytes:
        return note_lines(self._call, self._lane.label, 1, names_it=request_id(headers) is None)


_log = logging.getLogger(__name__)
_CALLED = (b"/v1/", b"/t/")
_MESSAGES = b"/v1/messages"
_COUNT_TOKENS = b"/v1/messages/count_tokens"
_MODELS = b"/v1/models"
_CHAT = b"/chat/completions"
_RESPONSES = b"/responses"
_MODEL_CALLS = (_MESSAGES, _COUNT_TOKENS, _CHAT, _RESPONSES)
_MEMO = "turn"
_ADMITTED = "admitted"
_MODEL_CALLS_ONLY = (
    "Jackline: an upstream that is not sent your own credential serves only model calls, token"
    " counting and GET /v1/models. For anything else call the vendor itself with your own key, or"
    ' add an upstream with credential = "pass-through".'
)
_NO_PREFLIGHT = "Web pages of other sites may not call this gateway, so OPTIONS is not answered."
# What is not a model call is read as JSON in one go: hooks' inputs, orders, telemetry.
_LARGEST_FOR_HANDLERS = 16 * 1024 * 1024


class _Turn(NamedTuple):
    """A model call: its parsed path is remembered with its head, as most heads come again.

    `listen` are the settings by which that head was admitted.
    """

    target: bytes
    tag: str | None
    listen: ListenSettings


class Router:
    """Answers every request of the gateway's port."""

    def __init__(
        self,
        desk: CallIntake,
        upstream: Upstream,
        control: ControlPaths,
        handlers: Sequence[HttpHandler] = (),
    ) -> None:
        self._desk = desk
        self._upstream = upstream
        self._control = control
        # The control paths come last: other handlers may answer a part of theirs.
        self._handlers = (*handlers, control)
        self._compressed = CompressedBodies(desk)
        # Knows whether the gateway stops.
        self.listener: Listener | None = None

    def handle(self, exchange: Exchange) -> None:
        """Answer one request; the answer may come much later."""
        try:
            self._handle(exchange)
        except Exception as error:  # noqa: BLE001 -- the border of one request: others go on
            _answer_bug(exchange, error)

    def refusal(self, exchange: Exchange, length: int) -> RequestRefusal | None:
        """Why a request is refused by its head alone, before its body is read."""
        handler = next((each for each in self._handlers if each.knows(exchange)), None)
        refused = self._refused(exchange, self._desk.settings.listen, handler)
        if refused is None and handler is not None and length > _LARGEST_FOR_HANDLERS:
            return _too_large_for_handlers()
        return refused

    def _handle(self, exchange: Exchange) -> None:
        listen = self._desk.settings.listen
        stops = self.listener is not None and self.listener.draining
        turn = exchange.memo.get(_MEMO)
        if isinstance(turn, _Turn) and turn.listen is listen and not stops:
            self._take(exchange, turn.target, turn.tag)
            return
        path = exchange.path
        if path == PROOF:
            reason = foreign(exchange.headers, listen)
            if reason is not None:
                _refuse(exchange, gateway_refusal(403, reason))
            else:
                self._control.prove(exchange)
            return
        # No handler has paths of model calls: most requests need not try each of them.
        called = path.startswith(_CALLED)
        handler = None if called else next((f for f in self._handlers if f.knows(exchange)), None)
        if exchange.memo.get(_ADMITTED) is not listen:
            refused = self._refused(exchange, listen, handler)
            if refused is not None:
                _refuse(exchange, gateway_refusal(refused.status, refused.message))
                return
            if handler is None:
                exchange.memo[_ADMITTED] = listen
        if handler is not None:
            if len(exchange.body) > _LARGEST_FOR_HANDLERS:
                _refuse(exchange, gateway_refusal(413, _too_large_for_handlers().message))
            else:
                handler.answer(exchange)
            return
        if stops:
            retry_later = [(b"retry-after", b"5")]
            _refuse(exchange, gateway_refusal(503, "Jackline is being stopped.", retry_later))
            return
        self._forward(exchange, path)

    def _refused(
        self, exchange: Exchange, listen: ListenSettings, handler: HttpHandler | None
    ) -> RequestRefusal | None:
        """Why the sender of this head is refused, or None; the body is not read."""
        headers = exchange.headers
        reason = foreign(headers, listen)
        if reason is None and handler is None:
            reason = reads_as_browser(exchange.method, headers)
        if reason is not None:
            return RequestRefusal(403, reason)
        if exchange.method == b"OPTIONS":
            return RequestRefusal(405, _NO_PREFLIGHT)
        if handler is None or not self._control.is_known(exchange):
            reason = token_missing(headers, listen)
        if reason is not None:
            return RequestRefusal(401, reason)
        if handler is None and exchange.method == b"POST" and exchange.path.endswith(_MODEL_CALLS):
            reason = sends_form(headers)
        return None if reason is None else RequestRefusal(415, reason)

    def _forward(self, exchange: Exchange, path: bytes) -> None:
        tag, path = without_tag(path)
        target = path if not exchange.query else path + b"?" + exchange.query
        # Only the end is compared: a prefix in the client's base URL is for the upstream.
        desk = self._desk
        if path.endswith(_MESSAGES) and exchange.method == b"POST":
            exchange.memo[_MEMO] = _Turn(target, tag, desk.settings.listen)
            self._take(exchange, target, tag)
        elif path.endswith(_COUNT_TOKENS) and exchange.method == b"POST":
            self._read(
                exchange, partial(desk.take_side_call, exchange, target, tag, "count_tokens")
            )
        elif path.endswith(_MODELS) and exchange.method == b"GET":
            desk.take_side_call(exchange, target, tag, "models", exchange.body)
        elif path.endswith(_CHAT) and exchange.method == b"POST":
            self._read(exchange, partial(desk.take_foreign, exchange, target, tag, "openai-chat"))
        elif path.endswith(_RESPONSES) and exchange.method == b"POST":
            dialect: Dialect = "openai-responses"
            self._read(exchange, partial(desk.take_foreign, exchange, target, tag, dialect))
        else:
            upstream = relay_upstream(exchange, self._desk.settings.upstreams)
            if upstream is None:
                _refuse(exchange, gateway_refusal(403, _MODEL_CALLS_ONLY))
                return
            # Its body is held beside those of all that is under way.
            size = len(exchange.body)
            if not self._desk.take_room(size):
                _refuse(exchange, self._desk.no_room())
                return
            release = partial(self._desk.hold_more, -size)
            relay = _Relay(exchange, LaneId(upstream.name, "relay"), release)
            relay.start(self._upstream, target)

    def _take(self, exchange: Exchange, target: bytes, tag: str | None) -> None:
        if exchange.header(b"content-encoding") is None:
            self._desk.take(exchange, target, tag, exchange.body)
        else:
            self._read(exchange, partial(self._desk.take, exchange, target, tag))

    def _read(self, exchange: Exchange, take: Callable[[bytes | bytearray | None], None]) -> None:
        """Submit a call once its body can be read; one that has no place is not decompressed."""
        if not is_compressed(exchange):
            take(exchange.body)
            return
        no = self._desk.busy(exchange.body)
        if no is not None:
            _refuse(exchange, no)
            return

        def submit(plain: bytearray | None) -> None:
            try:
                take(plain)
            except Exception as error:  # noqa: BLE001 -- the border of one request: others go on
                _answer_bug(exchange, error)

        self._compressed.decompress(
            exchange,
            self._desk.settings.limits.body,
            submit,
            lambda: _refuse(exchange, self._desk.no_room()),
        )


def _too_large_for_handlers() -> RequestRefusal:
    most = _LARGEST_FOR_HANDLERS >> 20
    return RequestRefusal(
        413, f"Only a model call may have a body of more than {most} MB. Send less."
    )


def _answer_bug(exchange: Exchange, error: Exception) -> None:
    if isinstance(error, TooManyLanesError):
        words = "Jackline: calls for too many models or accounts are under way."
        _refuse(exchange, gateway_refusal(503, words, [(b"retry-after", b"5")]))
        return
    _log.error("a bug in Jackline while taking a request", exc_info=error)
    _refuse(exchange, gateway_refusal(500, f"A bug in Jackline: {type(error).__name__}."))


def _refuse(exchange: Exchange, no: RefusalAnswer) -> None:
    exchange.respond(no.status, no.headers, no.body, note_lines(new_call_id(), names_it=True))
