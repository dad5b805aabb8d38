"""Answer the paths that are about the gateway itself.

Laws: (1) reading is open to whoever passed the door; orders need the control token, which lies in
a file that only the user can read; (2) the cookie of a page shows and orders nothing, and is no
token; (3) every answer is JSON, but for the proof, which is one line; (4) a proof is given without
any token: a client asks for it before it shows its own.
Not here: the door (doors.py), what is told (control/), what a proof is (gateway_proof.py).
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping
from typing import TypeAlias

from jackline.control.face import Asked
from jackline.errors import JacklineError
from jackline.gateway.doors import TOKEN_HEADER as VIEWER_HEADER
from jackline.gateway.exchange import Exchange
from jackline.gateway.vendor_words import in_our_words
from jackline.gateway_proof import PATH as PROOF_PATH
from jackline.gateway_proof import nonce_in, socket_address

PREFIX = b"/_jackline/"
TOKEN_HEADER = b"x-jackline-control"
Json: TypeAlias = Mapping[str, object]
Reading: TypeAlias = Callable[[], Json]
Order: TypeAlias = Callable[[Json], Json]
Prove: TypeAlias = Callable[[str, str], str]
"""The proof for this nonce, asked at this socket address; OSError when there is no key."""

_HERE = (b"/", b"/healthz", b"/readyz")
_PAGE = b"/_jackline/page/"
PROOF = PROOF_PATH.encode()
VIEW = b"/_jackline/view"
_READS = (b"GET", b"HEAD")


class ControlPaths:
    """`GET` for readings, `POST` with the token for orders."""

    def __init__(
        self,
        readings: Mapping[bytes, Reading],
        orders: Mapping[bytes, Order],
        token: str,
        prove: Prove,
    ) -> None:
        self._prove = prove
        self._readings = readings
        self._orders = orders
        self._token = token.encode()
        # Shows, and orders nothing: it lies in a browser, which sends it to every port of a host.
        self._view = hmac.new(self._token, b"view", "sha256").hexdigest().encode()

    def knows(self, exchange: Asked) -> bool:
        """Whether the path is ours to answer."""
        path = exchange.path
        return path.startswith(PREFIX) or (path in _HERE and exchange.method in _READS)

    def trusts(self, exchange: Asked) -> bool:
        """Whether the request carries the control token, and so comes from the user's commands."""
        return hmac.compare_digest(exchange.header(TOKEN_HEADER) or b"", self._token)

    def is_known(self, exchange: Asked) -> bool:
        """Whether this need not show the gateway's own token.

        That is what comes with the control token or, to be read, with the page's cookie; and the
        page itself, which tells nothing.
        """
        if self.trusts(exchange):
            return True
        if exchange.method not in _READS:
            return False
        wanted = exchange.header(b"accept") or b""
        if exchange.path.startswith(_PAGE) or (exchange.path == b"/" and b"text/html" in wanted):
            return True
        given = (exchange.header(b"cookie") or b"").split(b";")
        cookie = self._cookie(exchange)
        return any(hmac.compare_digest(each.strip(), cookie) for each in given)

    def _cookie(self, exchange: Asked) -> bytes:
        """Named by the port: browsers keep one jar for all ports of a host."""
        port = (exchange.header(b"host") or b"").rpartition(b":")[2]
        return b"jackline-" + (port if port.isdigit() else b"80") + b"=" + self._view

    def _let_look(self, exchange: Asked) -> None:
        """Give the page its cookie, since an event stream carries no header of ours."""
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        if self.trusts(exchange) or exchange.header(VIEWER_HEADER) is not None:
            cookie = self._cookie(exchange) + b"; Path=/_jackline/; HttpOnly; SameSite=Strict"
            headers.append((b"set-cookie", cookie))
        exchange.respond(200, headers, b"{}")

    def prove(self, exchange: Exchange) -> None:
        """Prove that this is the user's gateway to a client that has not shown who it is."""
        nonce = nonce_in(exchange.query)
        if exchange.method != b"GET" or nonce is None:
            self._refuse(exchange, 400, "ask with GET and ?nonce= of 32 to 128 hexadecimal digits")
            return
        try:
            told = self._prove(nonce, socket_address(exchange.local_address()))
        except OSError:
            words = "this gateway cannot prove itself; its log and `jackline doctor` say why"
            self._refuse(exchange, 503, words)
            return
        exchange.expect_another()
        headers = [(b"content-type", b"text/plain"), (b"cache-control", b"no-store")]
        exchange.respond(200, headers, told.encode())

    def answer(self, exchange: Asked) -> None:
        """Answer it."""
        path, method = exchange.path, exchange.method
        if path == VIEW and method == b"POST":
            self._let_look(exchange)
            return
        reading = self._readings.get(path)
        if reading is not None and method in _READS:
            self._tell(exchange, reading())
            return
        order = self._orders.get(path)
        if order is None:
            self._refuse(exchange, 404, "there is no such control path")
        elif method != b"POST":
            self._refuse(exchange, 405, "orders are given with POST")
        elif not self.trusts(exchange):
            self._refuse(exchange, 401, "orders need the control token; use the jackline command")
        else:
            self._carry_out(exchange, order)

    def _carry_out(self, exchange: Asked, order: Order) -> None:
        try:
            asked = json.loads(exchange.body or b"{}")
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            self._refuse(exchange, 400, "an order is a JSON object")
            return
        try:
            self._tell(exchange, order(asked))
        except JacklineError as error:
            body = json.dumps({"error": error.to_json()}, ensure_ascii=False).encode()
            exchange.respond(error.http_status, [(b"content-type", b"application/json")], body)

    def _tell(self, exchange: Asked, told: Json) -> None:
        status = 503 if told.get("ok") is False else 200
        body = json.dumps(told, ensure_ascii=False).encode()
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        exchange.respond(status, headers, body)

    def _refuse(self, exchange: Asked, status: int, words: str) -> None:
        no = in_our_words(status, f"Jackline: {words}.")
        exchange.respond(no.status, no.headers, no.body)
