"""Answer the paths that are about the gateway itself.

Laws: (1) reading is open to whoever passed the door; orders need the control token, which lies in
a file that only the user can read; (2) every answer is JSON.
Not here: the door (doors.py), what is told (control/).
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping
from typing import TypeAlias

from jackline.control.face import Asked
from jackline.errors import JacklineError
from jackline.gateway.vendor_words import in_our_words

PREFIX = b"/_jackline/"
TOKEN_HEADER = b"x-jackline-control"
Json: TypeAlias = Mapping[str, object]
Reading: TypeAlias = Callable[[], Json]
Order: TypeAlias = Callable[[Json], Json]

_HERE = (b"/", b"/healthz", b"/readyz")


class ControlPaths:
    """`GET` for readings, `POST` with the token for orders."""

    def __init__(
        self, readings: Mapping[bytes, Reading], orders: Mapping[bytes, Order], token: str
    ) -> None:
        self._readings = readings
        self._orders = orders
        self._token = token.encode()

    def knows(self, exchange: Asked) -> bool:
        """Whether the path is ours to answer."""
        path = exchange.path
        return path.startswith(PREFIX) or (path in _HERE and exchange.method in (b"GET", b"HEAD"))

    def trusts(self, exchange: Asked) -> bool:
        """Whether the request carries the control token, and so comes from the user's commands."""
        return hmac.compare_digest(exchange.header(TOKEN_HEADER) or b"", self._token)

    def answer(self, exchange: Asked) -> None:
        """Answer it."""
        path, method = exchange.path, exchange.method
        reading = self._readings.get(path)
        if reading is not None and method in (b"GET", b"HEAD"):
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
        except ValueError:
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
