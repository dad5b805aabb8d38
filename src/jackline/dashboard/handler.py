"""Answer the page's requests on the service's port: files, stream, details, orders.

Rules: (1) browsers get the page at `/`, other clients do not; (2) only the files of the
page are served, by their exact names; nothing is loaded from another address, no script but ours
runs, and no other site may frame the page; (3) every client that passed the access check may read,
orders need the control token; a read-only service takes no order from a page; (4) details are
bounded and hold no prompt, answer, key or token; (5) the journal is read, and the documents of a
run and an agent are made, off the event loop (control/open_documents.py asks for them).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

from jackline.agents.prices import Price, cache_prices, dollars
from jackline.autopsy.lapsed_caches import lapsed_waits, waits_sentence
from jackline.clock import Clock
from jackline.control.costs import PERIODS, Costs, day_bounds
from jackline.control.http_handler import ServiceRequest
from jackline.control.open_documents import IsWanted, NotWantedError, OpenDocument, Parameters
from jackline.control.stored_runs import StoredRuns, call_document, resource_document, run_document
from jackline.dashboard.feed import Feed
from jackline.dialects import TokenUsage
from jackline.errors import BadArgumentError, JacklineError, UnreadableError
from jackline.events import AttemptFailed, CallEnded
from jackline.flows.records import CallRecord, NoteRecord, ResourceRecord, RunRecord
from jackline.flows.run_totals import RunTotals, fold, used_by_run
from jackline.flows.store.run_store import RunStore
from jackline.journal import JournalReader

PREFIX = b"/_jackline/page/"
FIRST = "index.html"
FEED = b"/_jackline/feed"
RUN = b"/_jackline/run"
AGENT = b"/_jackline/agent"
COSTS = b"/_jackline/costs"
POLICY = (
    b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"object-src 'none'; require-trusted-types-for 'script'"
)
_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_ORDERS = {
    b"/_jackline/run/resume": "resume",
    b"/_jackline/run/retry": "retry",
    b"/_jackline/run/cancel": "cancel",
    b"/_jackline/run/release": "release",
}
_CONTROL = b"/_jackline/"
# With this the page asks for access, and orders nothing.
_VIEW = b"/_jackline/view"
_MAX_NOTES = 400
_MAX_CALLS = 200
_MAX_CALLS_READ = 5000
_MAX_CALLS_WITH_ATTEMPTS = 60
_DAY = 86_400.0

CarryOut: TypeAlias = Callable[
    [str, Mapping[str, object], RunStore | None], Awaitable[dict[str, object]]
]


class PageFiles:
    """Every file of the page, by name."""

    def __init__(self) -> None:
        folder = files("jackline.dashboard") / "page"
        found = {each.name: each for each in folder.iterdir()}
        self._files = {n: each for n, each in found.items() if n.rpartition(".")[2] in _TYPES}
        self._read: dict[str, bytes] = {}

    @property
    def size(self) -> int:
        """What a browser loads in all, in bytes."""
        return sum(len(each.read_bytes()) for each in self._files.values())

    def answer(self, request: ServiceRequest, name: str) -> None:
        """Send one file."""
        file = self._files.get(name)
        if file is None:
            request.respond(404, [(b"content-type", b"text/plain")], b"there is no such file\n")
            return
        body = self._read.get(name)
        if body is None:
            body = self._read[name] = file.read_bytes()
        headers = [
            (b"content-type", _TYPES[name.rpartition(".")[2]]),
            # A newer service has a newer page: browsers ask each time.
            (b"cache-control", b"no-cache"),
            (b"content-security-policy", POLICY),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]
        request.respond(200, headers, body)


class Details:
    """Reads one run or one agent from the store of runs and the journal."""

    def __init__(
        self,
        flows: StoredRuns,
        journal: Path,
        clock: Clock,
        client_report: Callable[[str, str], Mapping[str, object] | None],
        prices: Callable[[], Mapping[str, Price]] = dict,
    ) -> None:
        """`client_report` returns what the client reported of an agent, by session and id.

        `prices` returns the user's own.
        """
        self._client_report = client_report
        self._prices = prices
        self._flows = flows
        self._journal = journal
        self._clock = clock

    @property
    def documents(self) -> dict[bytes, OpenDocument]:
        """What is read on which path."""
        return {
            RUN: OpenDocument(self.run, ("id",)),
            AGENT: OpenDocument(self.agent, ("session", "agent")),
            COSTS: OpenDocument(self.costs, ("days",)),
        }

    async def run(self, names: Parameters, is_wanted: IsWanted) -> bytes:
        """Everything about one run, by its id; UnreadableError when there is none."""
        (run_id,) = names
        engine = self._flows.engine()
        record = None if engine is None or not run_id else await engine.run(run_id)
        if engine is None or record is None:
            raise UnreadableError(f"There is no run {run_id}.", hint="`jackline ls` lists them.")
        now = self._clock.wall()
        _check(is_wanted)
        calls = await engine.calls(record.run_id)
        totals = fold(record, calls, await used_by_run(engine, record.run_id, calls))
        _check(is_wanted)
        notes = await engine.notes(record.run_id)
        _check(is_wanted)
        held = [each for each in await engine.resources() if each.run_id == record.run_id]
        _check(is_wanted)
        return await asyncio.to_thread(whole_run_document, record, totals, calls, notes, held, now)

    async def agent(self, names: Parameters, is_wanted: IsWanted) -> bytes:
        """Everything about one agent, by session and id: calls, failed attempts, its run."""
        session, agent = names
        read = await asyncio.to_thread(self._read, session, agent, is_wanted)
        engine = self._flows.engine()
        flow = None
        if engine is not None and is_wanted():
            # Agents of the messages runner are found by their task, others by their session.
            call = await engine.find_task(agent) if agent else None
            if call is None and session:
                call = await engine.find_session(session)
            run = None if call is None else await engine.run(call.run_id)
            if call is not None and run is not None:
                flow = call_document(call, run, self._clock.wall()) | {"run": call.run_id}
        _check(is_wanted)
        client = self._client_report(session, agent)
        prices = self._prices()
        return await asyncio.to_thread(agent_document, names, *read, flow, client, prices)

    async def costs(self, names: Parameters, is_wanted: IsWanted) -> bytes:
        """What was used today, or within some days, by agent, session, model, run and day."""
        days = int(names[0]) if names[0] in map(str, PERIODS) else PERIODS[0]
        return await asyncio.to_thread(self._costs, days, is_wanted)

    def _costs(self, days: int, is_wanted: IsWanted) -> bytes:
        prices, now = self._prices(), self._clock.now()
        found = Costs(lambda model, usage: dollars(model, usage, prices))
        with JournalReader(self._journal) as reader:
            for begins, ends in day_bounds(now, days):
                _check(is_wanted)
                rows = reader.used(begins.timestamp(), ends.timestamp())
                found.add(f"{begins:%Y-%m-%d}", rows)
        document = {"at": now.timestamp(), "days": days, **found.to_json()}
        return json.dumps(document, ensure_ascii=False).encode()

    def _read(
        self, session: str, agent: str, is_wanted: IsWanted
    ) -> tuple[list[CallEnded], list[AttemptFailed]]:
        now = self._clock.wall()
        _check(is_wanted)
        with JournalReader(self._journal) as reader:
            found = reader.calls(now - _DAY, now + 60, _MAX_CALLS_READ, session)
            calls = [call for call in found if (call.agent or "") == agent]
            troubled = [call for call in calls if call.attempts > 1 or call.outcome != "answered"]
            failed: list[AttemptFailed] = []
            for call in troubled[:_MAX_CALLS_WITH_ATTEMPTS]:
                _check(is_wanted)
                failed += reader.attempts(call.call)
        return calls, sorted(failed, key=lambda each: -each.at)


def _check(is_wanted: IsWanted) -> None:
    if not is_wanted():
        raise NotWantedError


def whole_run_document(
    record: RunRecord,
    totals: RunTotals,
    calls: Sequence[CallRecord],
    notes: Sequence[NoteRecord],
    held: Sequence[ResourceRecord],
    now: float,
) -> bytes:
    """The document of one run; takes long where there are many calls."""
    document = {
        **run_document(record, totals, now),
        "calls": [call_document(call, record, now) for call in calls],
        "notes": [
            {"at": note.at, "what": note.what, "label": note.label, **note.detail}
            for note in notes[-_MAX_NOTES:]
        ],
        "resources": [resource_document(each, record, now) for each in held],
        "more_notes": max(0, len(notes) - _MAX_NOTES),
    }
    return json.dumps(document, ensure_ascii=False).encode()


def agent_document(
    names: Parameters,
    calls: Sequence[CallEnded],
    failed: Sequence[AttemptFailed],
    flow: Mapping[str, object] | None,
    client: Mapping[str, object] | None,
    prices: Mapping[str, Price],
) -> bytes:
    """The document of one agent; takes long where there are many calls."""
    usages = [
        TokenUsage(
            call.input_tokens,
            call.output_tokens,
            call.cache_read_tokens,
            call.cache_write_tokens,
            call.cache_write_1h_tokens,
        )
        for call in calls
    ]
    costs = [dollars(call.model, usage, prices) for call, usage in zip(calls, usages, strict=True)]
    used = [cost for cost, usage in zip(costs, usages, strict=True) if usage.total]
    document = {
        "session": names[0],
        "agent": names[1],
        "calls": [
            {
                "at": each.at,
                "call": each.call,
                "outcome": each.outcome,
                "lane": str(each.lane or ""),
                "model": each.model,
                "status": each.status,
                "attempts": each.attempts,
                "waited": round(each.waited, 2),
                "took": round(each.took, 2),
                "tokens": usage.total,
                "cost": cost,
                "request_id": each.request_id,
            }
            for each, usage, cost in list(zip(calls, usages, costs, strict=True))[:_MAX_CALLS]
        ],
        "attempts": [
            {
                "at": each.at,
                "call": each.call,
                "lane": each.lane.label,
                "kind": each.kind,
                "sub": each.sub,
                "status": each.status,
                "request_id": each.request_id,
                "took": round(each.took, 2),
                "resets_at": each.resets_at,
                "why": each.why,
            }
            for each in failed
        ],
        "sums": {
            "calls": len(calls),
            "lost": sum(each.outcome in ("refused", "broken") for each in calls),
            "attempts": sum(each.attempts for each in calls),
            "waited": round(sum(each.waited for each in calls), 1),
            "tokens": sum(usage.total for usage in usages),
            "cost": round(sum(cost or 0.0 for cost in used), 4),
            "unpriced": sum(cost is None for cost in used),
        },
        "lapsed": waits_sentence(lapsed_waits(calls, cache_prices)),
        "flow": flow,
        "client": client,
    }
    return json.dumps(document, ensure_ascii=False).encode()


class DashboardHandler:
    """The page, and everything that it requests."""

    def __init__(
        self,
        feed: Feed,
        flows: StoredRuns,
        *,
        trusts: Callable[[ServiceRequest], bool],
        read_only: Callable[[], bool],
        carry_out: CarryOut,
    ) -> None:
        """`trusts` says whose orders are accepted, `carry_out` executes them."""
        self._feed = feed
        self._flows = flows
        self._trusts = trusts
        self._read_only = read_only
        self._carry_out = carry_out
        self._files = PageFiles()
        self._answers: set[asyncio.Task[None]] = set()

    def knows(self, request: ServiceRequest) -> bool:
        """Whether this comes from the page, or from a browser that wants it."""
        path = request.path
        if path == b"/":
            wanted = request.header(b"accept") or b""
            return request.method in (b"GET", b"HEAD") and b"text/html" in wanted
        return (
            path == FEED or path in _ORDERS or path.startswith(PREFIX) or self._is_refused(request)
        )

    def answer(self, request: ServiceRequest) -> None:
        """Answer it; what is read from files comes a little later."""
        path = request.path
        if self._is_refused(request):
            _refuse(request, 403, "this service takes no orders from the page (--read-only)")
        elif path in _ORDERS:
            self._order(request, _ORDERS[path])
        elif request.method not in (b"GET", b"HEAD"):
            _refuse(request, 405, "this is only read")
        elif path == b"/":
            self._files.answer(request, FIRST)
        elif path == FEED:
            self._feed.open(request)
        else:
            self._files.answer(request, path.removeprefix(PREFIX).decode("latin-1"))

    async def serve(self) -> None:
        """Update open pages until the service ends."""
        try:
            await self._feed.serve()
        finally:
            for task in self._answers:
                task.cancel()
            await asyncio.gather(*self._answers, return_exceptions=True)

    def _is_refused(self, request: ServiceRequest) -> bool:
        """Whether this is an order from a browser to a read-only service."""
        from_page = request.header(b"sec-fetch-site") or request.header(b"origin")
        is_order = request.path.startswith(_CONTROL) and request.path != _VIEW
        return (
            request.method == b"POST" and is_order and from_page is not None and self._read_only()
        )

    def _order(self, request: ServiceRequest, verb: str) -> None:
        if request.method != b"POST":
            _refuse(request, 405, "orders are given with POST")
            return
        if not self._trusts(request):
            hint = "open the page with: jackline open"
            _refuse(request, 401, "orders need the control token", hint)
            return
        try:
            order = json.loads(bytes(request.body) or b"{}")
        except (ValueError, RecursionError):
            order = None
        if isinstance(order, dict):
            self._answer_later(request, self._carry_out(verb, order, self._flows.engine()))
        else:
            _refuse(request, 400, "an order is a JSON object")

    def _answer_later(self, request: ServiceRequest, work: Awaitable[dict[str, object]]) -> None:
        async def answer() -> None:
            try:
                _send(request, 200, await work)
            except JacklineError as error:
                _send(request, error.http_status, {"error": error.to_json()})
            finally:
                # After any other error the page still gets an answer.
                text = b"Jackline: no answer was made.\n"
                request.respond(500, [(b"content-type", b"text/plain")], text)

        task = asyncio.get_running_loop().create_task(answer())
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)


def _refuse(request: ServiceRequest, status: int, text: str, hint: str = "") -> None:
    _send(request, status, {"error": BadArgumentError(text, hint=hint).to_json()})


def _send(request: ServiceRequest, status: int, document: Mapping[str, object]) -> None:
    body = json.dumps(document, ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    request.respond(status, headers, body)
