"""Answer the paths about the gateway itself, and carry out the orders that people send there.

Rules: (1) reading is open to everybody with access, except what names agents; that and orders need
the control token, which is in a file that only the user can read; (2) the cookie of a page allows
reading, but no orders, and is no token; (3) every answer is JSON, except the proof, which is one
line; (4) a proof needs no token: a client requests it before it shows its own; (5) an order (use an
upstream, go back, pause, resume, probe) counts from the next attempt on, also for waiting calls;
(6) it survives a restart (a probe is over with its one call), and ends at its time; (7) an order
that makes no sense changes nothing, and the answer says why.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TypeAlias

from jackline.control.http_handler import ServiceRequest
from jackline.control.text import counted
from jackline.errors import BadArgumentError, JacklineError
from jackline.gateway.access import TOKEN_HEADER as VIEWER_HEADER
from jackline.gateway.call_intake import CallIntake
from jackline.gateway.connection import Exchange
from jackline.gateway.lane_registry import fits_lane
from jackline.gateway.own_answers import gateway_refusal
from jackline.gateway.placement import RouteOverride
from jackline.gateway_proof import PATH as PROOF_PATH
from jackline.gateway_proof import nonce_in, socket_address
from jackline.lanes import LaneId, saved_lane
from jackline.lanes.breaker import FLOWING

PREFIX = b"/_jackline/"
TOKEN_HEADER = b"x-jackline-control"
Json: TypeAlias = Mapping[str, object]
Reading: TypeAlias = Callable[[], Json]
Order: TypeAlias = Callable[[Json], Json]
Prove: TypeAlias = Callable[[str, str], str]
"""The proof for this nonce, requested at this socket address; OSError when there is no key."""

_HERE = (b"/", b"/healthz", b"/readyz")
_PAGE = b"/_jackline/page/"
TASKS = b"/_jackline/tasks"
WAITS = b"/_jackline/waits"
_FOR_OWN_COMMANDS = (TASKS, WAITS)
PROOF = PROOF_PATH.encode()
VIEW = b"/_jackline/view"
_READS = (b"GET", b"HEAD")
_MOST_PAUSED = 200
_JSON_HEADERS = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))


class ControlPaths:
    """`GET` for readings, `POST` with the token for orders."""

    def __init__(
        self,
        readings: Mapping[bytes, Reading],
        orders: Mapping[bytes, Order],
        token: str,
        prove: Prove,
        listen_token: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`listen_token` is the one that callers must show, as it is set now."""
        self._prove = prove
        self._listen_token = listen_token
        self._readings = readings
        self._orders = orders
        self._token = token.encode()

    def knows(self, exchange: ServiceRequest) -> bool:
        """Whether the path is ours to answer."""
        path = exchange.path
        return path.startswith(PREFIX) or (path in _HERE and exchange.method in _READS)

    def trusts(self, exchange: ServiceRequest) -> bool:
        """Whether the request carries the control token, and so comes from the user's commands."""
        return hmac.compare_digest(exchange.header(TOKEN_HEADER) or b"", self._token)

    def is_known(self, exchange: ServiceRequest) -> bool:
        """Whether this need not show the gateway's own token.

        That is what comes with the control token or, to be read, with the page's cookie; and the
        page itself, which contains nothing.
        """
        if self.trusts(exchange):
            return True
        if exchange.method not in _READS:
            return False
        wanted = exchange.header(b"accept") or b""
        if exchange.path.startswith(_PAGE) or (exchange.path == b"/" and b"text/html" in wanted):
            return True
        cookies = (exchange.header(b"cookie") or b"").split(b";")
        cookie = self._cookie(exchange)
        return any(hmac.compare_digest(each.strip(), cookie) for each in cookies)

    def _cookie(self, exchange: ServiceRequest) -> bytes:
        """Named by the port: browsers keep one jar for all ports of a host.

        It allows reading, and no orders: a browser sends it to every port of a host. It ends with
        the token that it was given for.
        """
        port = (exchange.header(b"host") or b"").rpartition(b":")[2]
        shown = f"view {self._listen_token() or ''}".encode()
        view = hmac.new(self._token, shown, "sha256").hexdigest().encode()
        return b"jackline-" + (port if port.isdigit() else b"80") + b"=" + view

    def prove(self, exchange: Exchange) -> None:
        """Prove that this is the user's gateway to a client that has not shown who it is."""
        nonce = nonce_in(exchange.query)
        if exchange.method != b"GET" or nonce is None:
            self._refuse(exchange, 400, "ask with GET and ?nonce= of 32 to 128 hexadecimal digits")
            return
        try:
            proof = self._prove(nonce, socket_address(exchange.local_address()))
        except OSError:
            words = "this gateway cannot prove itself; its log and `jackline doctor` say why"
            self._refuse(exchange, 503, words)
            return
        exchange.expect_another()
        headers = [(b"content-type", b"text/plain"), (b"cache-control", b"no-store")]
        exchange.respond(200, headers, proof.encode())

    def answer(self, exchange: ServiceRequest) -> None:
        """Answer it."""
        path, method = exchange.path, exchange.method
        if path == VIEW and method == b"POST":
            # The page gets its cookie, since an event stream has no header of ours.
            headers = list(_JSON_HEADERS)
            shown = exchange.header(VIEWER_HEADER) is not None and self._listen_token() is not None
            if shown or self.trusts(exchange):
                cookie = self._cookie(exchange) + b"; Path=/_jackline/; HttpOnly; SameSite=Strict"
                headers.append((b"set-cookie", cookie))
            exchange.respond(200, headers, b"{}")
            return
        reading = self._readings.get(path)
        if reading is not None and method in _READS:
            if path in _FOR_OWN_COMMANDS and not self.trusts(exchange):
                self._refuse(exchange, 401, "this needs the control token")
                return
            self._answer_json(exchange, reading())
            return
        order = self._orders.get(path)
        if order is None:
            self._refuse(exchange, 404, "there is no such control path")
        elif method != b"POST":
            self._refuse(exchange, 405, "orders are sent with POST")
        elif not self.trusts(exchange):
            self._refuse(exchange, 401, "orders need the control token; use the jackline command")
        else:
            try:
                document = json.loads(exchange.body or b"{}")
            except (ValueError, RecursionError):
                document = None
            if not isinstance(document, dict):
                self._refuse(exchange, 400, "an order is a JSON object")
                return
            try:
                self._answer_json(exchange, order(document))
            except JacklineError as error:
                body = json.dumps({"error": error.to_json()}, ensure_ascii=False).encode()
                exchange.respond(error.http_status, [(b"content-type", b"application/json")], body)

    def _answer_json(self, exchange: ServiceRequest, document: Json) -> None:
        status = 503 if document.get("ok") is False else 200
        body = json.dumps(document, ensure_ascii=False).encode()
        exchange.respond(status, _JSON_HEADERS, body)

    def _refuse(self, exchange: ServiceRequest, status: int, words: str) -> None:
        no = gateway_refusal(status, f"Jackline: {words}.")
        exchange.respond(no.status, no.headers, no.body)


_log = logging.getLogger("jackline")
Save = Callable[[bytes], None]
_LONGEST = 30 * 86_400.0


class OperatorOrders:
    """The orders in force."""

    def __init__(self, desk: CallIntake, save: Save) -> None:
        self._desk = desk
        self._save = save

    def use(self, order: Mapping[str, object]) -> dict[str, object]:
        """Send matching calls to an upstream, until the next order or for so long."""
        name = order.get("upstream")
        known = [each.name for each in self._desk.settings.upstreams]
        if not isinstance(name, str) or name not in known:
            raise BadArgumentError(
                f"there is no upstream {name!r}", hint=f"use one of: {', '.join(known)}"
            )
        seconds = order.get("seconds")
        if seconds is not None and not (
            isinstance(seconds, int | float) and 0 < seconds <= _LONGEST
        ):
            raise BadArgumentError("an order holds for up to 30 days", hint="for example --for 30m")
        until = None if seconds is None else self._desk.now() + float(seconds)
        override = RouteOverride(
            name, _text(order, "model"), _text(order, "session"), _text(order, "agent"), until
        )
        about = override.model, override.session, override.agent
        others = [o for o in self._living() if (o.model, o.session, o.agent) != about]
        # The newest comes first: it is what somebody wants now.
        self._set([override, *others])
        return {"orders": self.to_json()}

    def back(self, order: Mapping[str, object]) -> dict[str, object]:
        """End the orders about one upstream, or all."""
        name = order.get("upstream")
        self._set([each for each in self._living() if name is not None and each.upstream != name])
        return {"orders": self.to_json()}

    def pause(self, order: Mapping[str, object]) -> dict[str, object]:
        """Send nothing more on matching lanes; calls wait, or go elsewhere."""
        return self._switch(order, paused=True)

    def resume(self, order: Mapping[str, object]) -> dict[str, object]:
        """Let matching lanes take calls again."""
        return self._switch(order, paused=False)

    def drain(self, order: Mapping[str, object]) -> dict[str, object]:
        """Pause matching lanes, until `resume`; the answer counts the calls in flight on each."""
        paused = self._switch(order, paused=True)
        names = paused["lanes"]
        flying = dict.fromkeys(map(str, names), 0) if isinstance(names, list) else {}
        for lane in self._desk.carrier.controller.lanes.values():
            if lane.label in flying:
                flying[lane.label] += len(lane.attempts)
        left = sum(flying.values())
        state = f"{counted(left, 'call')} in flight" if left else "drained: nothing is in flight"
        about = ", ".join(flying) or _text(order, "lane")
        return paused | {"in_flight": flying, "says": f"{about}: {state}."}

    def probe(self, order: Mapping[str, object]) -> dict[str, object]:
        """Forget the reported resets of matching lanes: one call on each finds out."""
        lanes = self._desk.carrier.controller.lanes
        closed = [name for name in self._named(order) if lanes[name].state not in FLOWING]
        for name in closed:
            self._desk.carrier.probe_lane(name)
        return {
            "probed": [
                {"lane": name.label, "sent": lanes[name].probe is not None}
                for name in sorted(closed)
            ]
        }

    def _named(self, order: Mapping[str, object]) -> list[LaneId]:
        """The lanes that an order names; an upstream's name includes all of its lanes.

        There may be none yet where it names an upstream, or a lane of one.
        """
        pattern = _text(order, "lane") or ""
        lanes = self._desk.carrier.controller.lanes
        found = [name for name in lanes if fits_lane(pattern, name)]
        upstreams = [each.name for each in self._desk.settings.upstreams]
        if not found and pattern.partition("/")[0] not in upstreams:
            known = sorted({*upstreams, *(name.label for name in lanes)})
            raise BadArgumentError(
                f"no lane is called {pattern!r}", hint=f"upstreams and lanes: {', '.join(known)}"
            )
        return found

    def _switch(self, order: Mapping[str, object], *, paused: bool) -> dict[str, object]:
        found, pattern = self._named(order), _text(order, "lane") or ""
        for name in found:
            self._desk.carrier.pause_lane(name, paused=paused)
        # Lanes open with their first call: an upstream can be paused before it has any.
        others = [
            each
            for each in self._desk.paused
            if each != pattern and (paused or not _includes(pattern, each))
        ]
        self._desk.paused = tuple([*others, pattern] if paused else others)[-_MOST_PAUSED:]
        self._save_all()
        return {
            "lanes": sorted(name.label for name in found),
            "paused": paused,
            "names": list(self._desk.paused),
        }

    # --- over a restart ---

    def recall(self, memory: bytes) -> None:
        """Restore the orders of an earlier gateway that are still in force."""
        try:
            saved = json.loads(memory)
            orders = [RouteOverride(**each) for each in saved["orders"]]
            paused = [saved_lane(each) for each in saved["paused"]]
        except (ValueError, TypeError, KeyError):
            return  # nothing that we have saved
        ahead = self._desk.wall() - self._desk.now()
        self._desk.chooser.orders = tuple(each.moved(-ahead) for each in orders)
        self._desk.chooser.orders = tuple(self._living())
        if None in paused:
            _log.warning(
                "an older Jackline saved which lanes were paused by hand: pause them again, with"
                " `jackline upstream pause`"
            )
        names = saved.get("names", ())
        self._desk.paused = tuple(each for each in names if isinstance(each, str))[-_MOST_PAUSED:]
        for lane in paused:
            if lane is not None and self._desk.open_lane(lane):
                self._desk.carrier.pause_lane(lane, paused=True)

    def to_json(self) -> list[dict[str, object]]:
        """The orders in force as JSON, their ends as dates: for people, and for a restart."""
        ahead = self._desk.wall() - self._desk.now()
        return [asdict(each.moved(ahead)) for each in self._living()]

    def _living(self) -> list[RouteOverride]:
        now = self._desk.now()
        return [o for o in self._desk.chooser.orders if o.until is None or o.until > now]

    def _set(self, orders: list[RouteOverride]) -> None:
        self._desk.chooser.orders = tuple(orders)
        self._save_all()
        self._desk.choose_again()

    def _save_all(self) -> None:
        lanes = self._desk.carrier.controller.lanes
        document = {
            "orders": self.to_json(),
            "paused": [lane_id._asdict() for lane_id, lane in lanes.items() if lane.paused],
            "names": list(self._desk.paused),
        }
        self._save(json.dumps(document).encode())


def _includes(pattern: str, name: str) -> bool:
    """Whether what one order names includes all that the other does."""
    return name.startswith(f"{pattern}/") or fnmatchcase(name, pattern)


def _text(order: Mapping[str, object], name: str) -> str | None:
    value = order.get(name)
    if value is not None and not isinstance(value, str):
        raise BadArgumentError(f"{name} must be a text")
    return value or None
