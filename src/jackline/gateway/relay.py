"""Pass any other request on as it is, and its answer back as it comes.

Rules: (1) one attempt, no waiting, no judging: what the vendor says is what the client gets; (2) an
answer that breaks off is broken off for the client too; (3) how it is packed stays between client
and vendor: nothing here reads it; (4) it is sent to upstreams that get the client's own credential
alone, so a redirect sends that nowhere where its own vendor would not.
Not here: model calls (messages.py).
"""

from __future__ import annotations

from collections.abc import Callable

from jackline.gateway.answer_notes import new_call_id, noted, without_ours
from jackline.gateway.exchange import Exchange
from jackline.gateway.vendor_words import in_our_words
from jackline.upstream.port import Attempt, Headers, Message, Upstream

_OURS = b"x-jackline-"


class Relay:
    """One request on its way; an `Ear` for the upstream."""

    __slots__ = ("_attempt", "_call", "_exchange", "_lane", "_release")

    def __init__(self, exchange: Exchange, lane: str, release: Callable[[], None]) -> None:
        """`release` is called once, when its body is held no longer."""
        self._exchange = exchange
        self._release: Callable[[], None] | None = release
        self._attempt: Attempt | None = None
        self._lane = lane
        self._call = new_call_id()

    def start(self, upstream: Upstream, target: bytes) -> None:
        """Send it."""
        exchange = self._exchange
        headers = [pair for pair in exchange.headers if not pair[0].lower().startswith(_OURS)]
        message = Message(exchange.method, target, headers, exchange.body)
        try:
            self._attempt = attempt = upstream.start(message, self._lane, self)
        except Exception:
            self._let_go()
            raise
        self._exchange.on_gone = self._gone
        self._exchange.on_pause = attempt.pause
        self._exchange.on_resume = attempt.resume

    def _gone(self) -> None:
        if self._attempt is not None:
            self._attempt.hang_up()
        self._let_go()

    def _let_go(self) -> None:
        release, self._release = self._release, None
        self._attempt = None
        if release is not None:
            release()

    def began(self, status: int, headers: Headers) -> None:
        """The head of the answer."""
        self._exchange.begin(status, self._noted(without_ours(headers)))

    def heard(self, data: bytes) -> None:
        """Bytes of the answer."""
        self._exchange.send(data)

    def ended(self) -> None:
        """The answer is complete."""
        self._let_go()
        self._exchange.finish()

    def broke(self, error: OSError) -> None:
        """There is no answer, or no more of it."""
        self._let_go()
        if self._exchange.begun:
            self._exchange.reset()
            return
        self._refuse(f"the upstream could not be asked ({type(error).__name__})")

    def _refuse(self, why: str) -> None:
        no = in_our_words(502, f"Jackline: {why}.")
        self._exchange.respond(no.status, self._noted(no.headers), no.body)

    def _noted(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        return noted(headers, self._call, self._lane, attempts=1)
