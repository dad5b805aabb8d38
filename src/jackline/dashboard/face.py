"""Answer the page's requests on the service's port: files, stream, details, orders.

Rules: (1) browsers get the page at `/`, all others what they got before; (2) only the files of the
page are served, by their exact names; nothing is loaded from another address, no script but ours
runs, and no other site may frame the page; (3) reading is open to everybody who was let in, orders
need the control token; a read-only service takes no order from a page; (4) details are bounded and
hold no prompt, answer, key or token; (5) files are read off the event loop.
Not here: orders to lanes (gateway/control_plane.py), carrying out an order
(flows/run_processes.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs

from jackline.agents.outcome import TokenUsage
from jackline.agents.prices import cache_prices, dollars
from jackline.autopsy.lapsed_caches import lapsed_waits, waits_sentence
from jackline.clock import Clock
from jackline.control.http_handler import ServiceRequest
from jackline.control.text import lane_label
from jackline.dashboard.feed import Feed
from jackline.dashboard.runs import (
    StoredRuns,
    call_document,
    note_document,
    resource_document,
    run_document,
)
from jackline.errors import BadArgumentError, JacklineError, UnreadableError
from jackline.events import AttemptFailed, CallEnded
from jackline.flows.records import CallRecord
from jackline.flows.store.run_store import RunStore
from jackline.journal import JournalReader

PREFIX = b"/_jackline/page/"
FIRST = "index.html"
_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
POLICY = (
    b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"object-src 'none'; require-trusted-types-for 'script'"
)


class PageFiles:
    """Every file of the page, by name."""

    def __init__(self) -> None:
        self._files = {each.name: each for each in _folder().iterdir() if _type(each.name)}
        self._read: dict[str, bytes] = {}

    @property
    def size(self) -> int:
        """What a browser loads in all, in bytes."""
        return sum(len(each.read_bytes()) for each in self._files.values())

    def answer(self, asked: ServiceRequest, name: str) -> None:
        """Send one file."""
        file = self._files.get(name)
        if file is None:
            asked.respond(404, [(b"content-type", b"text/plain")], b"there is no such file\n")
            return
        body = self._read.get(name)
        if body is None:
            body = self._read[name] = file.read_bytes()
        headers = [
            (b"content-type", _type(name)),
            # A newer service has a newer page: ask each time, it is near.
            (b"cache-control", b"no-cache"),
            (b"content-security-policy", POLICY),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]
        asked.respond(200, headers, body)


def _folder() -> Traversable:
    return files("jackline.dashboard") / "page"


def _type(name: str) -> bytes:
    return _TYPES.get(name.rpartition(".")[2], b"")


_MOST_NOTES = 400
_MOST_CALLS = 200
_MOST_SEARCHED = 5000
_MOST_TROUBLED = 60
_DAY = 86_400.0


class Details:
    """Looks into the store of runs and the journal."""

    def __init__(self, flows: StoredRuns, journal: Path, clock: Clock) -> None:
        self._flows = flows
        self._journal = journal
        self._clock = clock

    async def run(self, run_id: str) -> dict[str, object]:
        """Everything about one run; UnreadableError when there is none."""
        engine = self._flows.engine()
        record = None if engine is None or not run_id else await engine.run(run_id)
        if engine is None or record is None:
            raise UnreadableError(f"There is no run {run_id}.", next="`jackline ls` lists them.")
        now = self._clock.wall()
        calls = await engine.calls(record.run_id)
        notes = await engine.notes(record.run_id)
        held = [each for each in await engine.resources() if each.run_id == record.run_id]
        return {
            **run_document(record, calls, now),
            "calls": [call_document(call, record, now) for call in calls],
            "notes": [note_document(note) for note in notes[-_MOST_NOTES:]],
            "resources": [resource_document(each, record, now) for each in held],
            "more_notes": max(0, len(notes) - _MOST_NOTES),
        }

    async def agent(self, session: str, agent: str) -> dict[str, object]:
        """Everything about one agent: its calls, the attempts that failed, and its flow's word."""
        calls, failed = await asyncio.to_thread(self._read, session, agent)
        engine = self._flows.engine()
        told = None if engine is None else await self._told_of(engine, session, agent)
        return {
            "session": session,
            "agent": agent,
            "calls": [_call(each) for each in calls[:_MOST_CALLS]],
            "attempts": [_attempt(each) for each in failed],
            "sums": _sums(calls),
            "lapsed": waits_sentence(lapsed_waits(calls, cache_prices)),
            "flow": told,
        }

    async def _told_of(
        self, engine: RunStore, session: str, agent: str
    ) -> dict[str, object] | None:
        """What the agent's flow says of it; None where it has none."""
        call = await _flow_call(engine, session, agent)
        run = None if call is None else await engine.run(call.run_id)
        if call is None or run is None:
            return None
        return call_document(call, run, self._clock.wall()) | {"run": call.run_id}

    def _read(self, session: str, agent: str) -> tuple[list[CallEnded], list[AttemptFailed]]:
        now = self._clock.wall()
        with JournalReader(self._journal) as reader:
            found = reader.calls(now - _DAY, now + 60, _MOST_SEARCHED, session)
            calls = [call for call in found if (call.agent or "") == agent]
            troubled = [call for call in calls if call.attempts > 1 or call.outcome != "answered"]
            told = [reader.attempts(call.call) for call in troubled[:_MOST_TROUBLED]]
        failed = [attempt for attempts in told for attempt in attempts]
        return calls, sorted(failed, key=lambda each: -each.at)


async def _flow_call(engine: RunStore, session: str, agent: str) -> CallRecord | None:
    """The flow's call behind this agent: messages agents go by their task, others by session."""
    found = await engine.find_task(agent) if agent else None
    return found if found is not None or not session else await engine.find_session(session)


def _call(call: CallEnded) -> dict[str, object]:
    return {
        "at": call.at,
        "call": call.call,
        "outcome": call.outcome,
        "lane": lane_label(call.lane),
        "model": call.model,
        "status": call.status,
        "attempts": call.attempts,
        "waited": round(call.waited, 2),
        "took": round(call.took, 2),
        "tokens": _usage(call).total,
        "cost": dollars(call.model, _usage(call)),
        "request_id": call.request_id,
    }


def _attempt(attempt: AttemptFailed) -> dict[str, object]:
    return {
        "at": attempt.at,
        "call": attempt.call,
        "lane": lane_label(attempt.lane),
        "kind": attempt.kind,
        "sub": attempt.sub,
        "status": attempt.status,
        "request_id": attempt.request_id,
        "took": round(attempt.took, 2),
        "resets_at": attempt.resets_at,
        "why": attempt.why.replace(attempt.lane, lane_label(attempt.lane)),
    }


def _sums(calls: list[CallEnded]) -> dict[str, object]:
    costs = [dollars(call.model, _usage(call)) for call in calls if _usage(call).total]
    return {
        "calls": len(calls),
        "lost": sum(call.outcome in ("refused", "broken") for call in calls),
        "attempts": sum(call.attempts for call in calls),
        "waited": round(sum(call.waited for call in calls), 1),
        "tokens": sum(_usage(call).total for call in calls),
        "cost": round(sum(cost or 0.0 for cost in costs), 4),
        "unpriced": sum(cost is None for cost in costs),
    }


def _usage(call: CallEnded) -> TokenUsage:
    return TokenUsage(
        call.input_tokens,
        call.output_tokens,
        call.cache_read_tokens,
        call.cache_write_tokens,
        call.cache_write_1h_tokens,
    )


CarryOut: TypeAlias = Callable[
    [str, Mapping[str, object], RunStore | None], Awaitable[dict[str, object]]
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
class OrderAccess:
    """Who may give orders, and who carries them out."""

    trusts: Callable[[ServiceRequest], bool]
    read_only: Callable[[], bool]
    carry_out: CarryOut


class DashboardFace:
    """The page and all that it asks."""

    def __init__(self, feed: Feed, flows: StoredRuns, details: Details, doors: OrderAccess) -> None:
        self._feed = feed
        self._flows = flows
        self._details = details
        self._doors = doors
        self._files = PageFiles()
        self._answers: set[asyncio.Task[None]] = set()

    def knows(self, asked: ServiceRequest) -> bool:
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

    def answer(self, asked: ServiceRequest) -> None:
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

    def _is_refused(self, asked: ServiceRequest) -> bool:
        """An order from a browser, which names itself, while none are taken."""
        from_page = asked.header(b"sec-fetch-site") or asked.header(b"origin")
        to_us = asked.path.startswith(_CONTROL) and asked.path != _VIEW
        return (
            asked.method == b"POST" and to_us and from_page is not None and self._doors.read_only()
        )

    def _order(self, asked: ServiceRequest, verb: str) -> None:
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

    def _soon(self, asked: ServiceRequest, work: Awaitable[dict[str, object]]) -> None:
        task = asyncio.get_running_loop().create_task(_tell_result(asked, work))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)


async def _tell_result(asked: ServiceRequest, work: Awaitable[dict[str, object]]) -> None:
    try:
        _tell(asked, 200, await work)
    except JacklineError as error:
        _tell(asked, error.http_status, {"error": error.to_json()})
    finally:
        # Whatever went wrong, the page is not left waiting.
        asked.respond(500, [(b"content-type", b"text/plain")], b"Jackline: no answer was made.\n")


def _error(words: str, next_step: str = "") -> dict[str, object]:
    return {"error": BadArgumentError(words, next=next_step).to_json()}


def _tell(asked: ServiceRequest, status: int, told: Mapping[str, object]) -> None:
    body = json.dumps(told, ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    asked.respond(status, headers, body)
