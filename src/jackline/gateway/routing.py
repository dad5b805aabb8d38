"""Send each request to where it is answered: the desk, the relay, or a face of the service.

Laws: (1) faces are kept from strangers (Host, Origin, token) before anything is read; (2)
while the gateway stops, new calls are told to come back; (3) a path that is not ours is the
vendor's, and relayed.
Not here: answering (desk.py, relay.py, control_paths.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from jackline.control.face import Face
from jackline.gateway.answer_notes import new_call_id, noted
from jackline.gateway.control_paths import PROOF, ControlPaths
from jackline.gateway.desk import Desk
from jackline.gateway.doors import foreign, token_missing
from jackline.gateway.exchange import Exchange
from jackline.gateway.identity import without_tag
from jackline.gateway.placing import upstream_for
from jackline.gateway.relay import Relay
from jackline.gateway.vendor_words import No, in_our_words
from jackline.upstream.port import Upstream

_log = logging.getLogger(__name__)
_CALLED = (b"/v1/", b"/t/")
_MESSAGES = b"/v1/messages"
_COUNT_TOKENS = b"/v1/messages/count_tokens"
_MODELS = b"/v1/models"
_CHAT = b"/chat/completions"
_RESPONSES = b"/responses"
_MEMO = "turn"


class Stopping(Protocol):
    """Who knows whether the gateway stops."""

    @property
    def draining(self) -> bool:
        """Whether no new call is taken."""
        ...


class _Turn(NamedTuple):
    """A model call: what its path means is remembered with its head, as most heads come again."""

    target: bytes
    tag: str | None


class Router:
    """The gateway's front door."""

    def __init__(
        self, desk: Desk, upstream: Upstream, control: ControlPaths, faces: Sequence[Face] = ()
    ) -> None:
        self._desk = desk
        self._upstream = upstream
        self._control = control
        # The control paths come last: other faces may answer a part of theirs.
        self._faces = (*faces, control)
        self.stopping: Stopping | None = None

    def handle(self, exchange: Exchange) -> None:
        """Answer one request; the answer may come much later."""
        try:
            self._handle(exchange)
        except Exception as error:  # noqa: BLE001 -- the border of one request: others go on
            _log.error("a bug in Jackline while taking a request", exc_info=error)
            _say(exchange, in_our_words(500, f"A bug in Jackline: {type(error).__name__}."))

    def _handle(self, exchange: Exchange) -> None:
        listen = self._desk.settings.listen
        stops = self.stopping is not None and self.stopping.draining
        turn = exchange.memo.get(_MEMO)
        if isinstance(turn, _Turn) and listen.token is None and not stops:
            self._desk.take(exchange, turn.target, turn.tag)
            return
        path = exchange.path
        if path == PROOF:
            reason = foreign(exchange.headers, listen)
            if reason is not None:
                _say(exchange, in_our_words(403, reason))
            else:
                self._control.prove(exchange)
            return
        # No face has paths that models are called by: most requests need not ask each of them.
        called = path.startswith(_CALLED)
        face = None if called else next((f for f in self._faces if f.knows(exchange)), None)
        if listen.token is not None and not (face and self._control.is_known(exchange)):
            reason = token_missing(exchange.headers, listen)
            if reason is not None:
                _say(exchange, in_our_words(401, reason))
                return
        if face is not None:
            reason = foreign(exchange.headers, listen)
            if reason is not None:
                _say(exchange, in_our_words(403, reason))
            else:
                face.answer(exchange)
            return
        if stops:
            come_back = [(b"retry-after", b"5")]
            _say(exchange, in_our_words(503, "Jackline is being stopped.", come_back))
            return
        self._forward(exchange, path)

    def _forward(self, exchange: Exchange, path: bytes) -> None:
        tag, path = without_tag(path)
        target = path if not exchange.query else path + b"?" + exchange.query
        # Only the end is looked at: a prefix in the client's base URL is the upstream's business.
        if path.endswith(_MESSAGES) and exchange.method == b"POST":
            exchange.memo[_MEMO] = _Turn(target, tag)
            self._desk.take(exchange, target, tag)
        elif path.endswith(_COUNT_TOKENS) and exchange.method == b"POST":
            self._desk.take_side_call(exchange, target, tag, "count_tokens")
        elif path.endswith(_MODELS) and exchange.method == b"GET":
            self._desk.take_side_call(exchange, target, tag, "models")
        elif path.endswith(_CHAT) and exchange.method == b"POST":
            self._desk.take_foreign(exchange, target, tag, "openai-chat")
        elif path.endswith(_RESPONSES) and exchange.method == b"POST":
            self._desk.take_foreign(exchange, target, tag, "openai-responses")
        else:
            upstream = upstream_for(exchange, self._desk.settings.upstreams)
            Relay(exchange, f"{upstream.name}/relay").start(self._upstream, target)


def _say(exchange: Exchange, no: No) -> None:
    exchange.respond(no.status, noted(no.headers, new_call_id()), no.body)
