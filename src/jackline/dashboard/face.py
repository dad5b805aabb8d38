"""Answer the page's requests on the service's port: its files, its stream, its questions, orders.

Laws: (1) browsers get the page at `/`, all others what they got before; (2) reading is open to
whoever passed the door, orders need the control token; (3) a service that is read-only takes no
order from a page, with or without the token; (4) files are read off the event loop.
Not here: the orders to lanes (gateway/hand_orders.py), what an order does (assembly/run_orders.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import parse_qs

from jackline.control.face import Asked
from jackline.dashboard.details import Details
from jackline.dashboard.feed import Feed
from jackline.dashboard.flow_book import FlowBook
from jackline.dashboard.page_files import FIRST, PREFIX, PageFiles
from jackline.errors import BadArgumentError, JacklineError
from jackline.flows.engine import Engine

CarryOut: TypeAlias = Callable[
    [str, Mapping[str, object], Engine | None], Awaitable[dict[str, object]]
]
FEED = b"/_jackline/feed"
RUN = b"/_jackline/run"
AGENT = b"/_jackline/agent"
_ORDERS = {
    b"/_jackline/run/resume": "resume",
    b"/_jackline/run/retry": "retry",
    b"/_jackline/run/cancel": "cancel",
    b"/_jackline/run/release": "release",
}
_CONTROL = b"/_jackline/"
# By this the page asks to be let in, and orders nothing.
_VIEW = b"/_jackline/view"


@dataclass(frozen=True, slots=True)
class Doors:
    """Who may give orders, and who carries them out."""

    trusts: Callable[[Asked], bool]
    read_only: Callable[[], bool]
    carry_out: CarryOut


class DashboardFace:
    """The page and all that it asks."""

    def __init__(self, feed: Feed, flows: FlowBook, details: Details, doors: Doors) -> None:
        self._feed = feed
        self._flows = flows
        self._details = details
        self._doors = doors
        self._files = PageFiles()
        self._answers: set[asyncio.Task[None]] = set()

    def knows(self, asked: Asked) -> bool:
        """Whether this comes from the page, or from a browser that wants it."""
        path = asked.path
        if path == b"/":
            wanted = asked.header(b"accept") or b""
            return asked.method in (b"GET", b"HEAD") and b"text/html" in wanted
        return (
            path in (FEED, RUN, AGENT)
            or path in _ORDERS
            or path.startswith(PREFIX)
            or self._is_refused(asked)
        )

    def answer(self, asked: Asked) -> None:
        """Answer it; what is read from files comes a little later."""
        path = asked.path
        if self._is_refused(asked):
            _tell(asked, 403, _error("this service takes no orders from the page (--read-only)"))
        elif path in _ORDERS:
            self._order(asked, _ORDERS[path])
        elif asked.method not in (b"GET", b"HEAD"):
            _tell(asked, 405, _error("this is only read"))
        elif path == b"/":
            self._files.answer(asked, FIRST)
        elif path == FEED:
            self._feed.open(asked)
        elif path.startswith(PREFIX):
            self._files.answer(asked, path.removeprefix(PREFIX).decode("latin-1"))
        else:
            query = {name: values[0] for name, values in parse_qs(asked.query.decode()).items()}
            if path == RUN:
                self._soon(asked, self._details.run(query.get("id", "")))
            else:
                wanted = self._details.agent(query.get("session", ""), query.get("agent", ""))
                self._soon(asked, wanted)

    async def serve(self) -> None:
        """Keep open pages up to date."""
        try:
            await self._feed.serve()
        finally:
            for task in self._answers:
                task.cancel()
            await asyncio.gather(*self._answers, return_exceptions=True)

    def _is_refused(self, asked: Asked) -> bool:
        """An order from a browser, which names itself, while none are taken."""
        from_page = asked.header(b"sec-fetch-site") or asked.header(b"origin")
        to_us = asked.path.startswith(_CONTROL) and asked.path != _VIEW
        return (
            asked.method == b"POST" and to_us and from_page is not None and self._doors.read_only()
        )

    def _order(self, asked: Asked, verb: str) -> None:
        if asked.method != b"POST":
            _tell(asked, 405, _error("orders are given with POST"))
        elif not self._doors.trusts(asked):
            _tell(
                asked,
                401,
                _error("orders need the control token", "open the page with: jackline open"),
            )
        else:
            try:
                told = json.loads(bytes(asked.body) or b"{}")
            except (ValueError, RecursionError):
                told = None
            if not isinstance(told, dict):
                _tell(asked, 400, _error("an order is a JSON object"))
                return
            self._soon(asked, self._doors.carry_out(verb, told, self._flows.engine()))

    def _soon(self, asked: Asked, work: Awaitable[dict[str, object]]) -> None:
        task = asyncio.get_running_loop().create_task(_tell_result(asked, work))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)


async def _tell_result(asked: Asked, work: Awaitable[dict[str, object]]) -> None:
    try:
        _tell(asked, 200, await work)
    except JacklineError as error:
        _tell(asked, error.http_status, {"error": error.to_json()})
    finally:
        # Whatever went wrong, the page is not left waiting.
        asked.respond(500, [(b"content-type", b"text/plain")], b"Jackline: no answer was made.\n")


def _error(words: str, next_step: str = "") -> dict[str, object]:
    return {"error": BadArgumentError(words, next=next_step).to_json()}


def _tell(asked: Asked, status: int, told: Mapping[str, object]) -> None:
    body = json.dumps(told, ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    asked.respond(status, headers, body)
