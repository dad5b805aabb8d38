"""Run one gateway: open its parts, connect them, close them again.

Rules: (1) nothing is open before all is well: a port in use leaves no journal behind; (2) while it
stops, running calls finish and new ones are refused with a time to retry, then what was learned
is saved; (3) a changed configuration is applied without dropping a call; (4) a state folder that
cannot be written to is reported, and stops no traffic; (5) no request is read before what was
known is restored.
Not here: signals, the background process (cli/gateway_service.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self

from jackline import __version__
from jackline.agents.process.child import remove_left_files
from jackline.assembly.agent_host import BackgroundAgents
from jackline.assembly.config_reload import (
    ConfigReloader,
    ReloadableParts,
    foreign_upstreams,
    limit_lanes,
    status_pages,
)
from jackline.batches.tool import BatchCall, CallResult
from jackline.calls import CallManager
from jackline.clock import Clock, SystemClock
from jackline.config import Config
from jackline.config.references import resolve
from jackline.control.event_lines import clock_notes
from jackline.control.http_handler import HttpHandler
from jackline.control.observatory import Observatory, recall_past
from jackline.control.open_documents import OpenDocument, OpenDocuments
from jackline.control.stored_runs import StoredRuns
from jackline.control.text import whole_second
from jackline.dashboard.feed import Feed
from jackline.dashboard.handler import DashboardHandler, Details
from jackline.documentation.handler import DocumentationHandler
from jackline.events import (
    AttemptFailed,
    ClockMoved,
    Event,
    LaneChanged,
    ServiceNoted,
    WindowsReported,
)
from jackline.failures.sentences import moment_in_words
from jackline.flows.flow_sources import no_user_code
from jackline.flows.run_processes import RunOrders, Waker
from jackline.flows.store import run_store_exists, run_store_url
from jackline.gateway.call_intake import CallIntake, TracedIntake
from jackline.gateway.connection import Exchange
from jackline.gateway.control_plane import TASKS, WAITS, ControlPaths, OperatorOrders, Reading
from jackline.gateway.lane_memory import LaneMemory
from jackline.gateway.lane_registry import LaneRegistry
from jackline.gateway.listener import LACKS_LOCALHOST, Listener
from jackline.gateway.outage_evidence import OutageEvidence
from jackline.gateway.router import Router
from jackline.gateway.status_pages import StatusPages
from jackline.gateway.status_report import (
    STATUS,
    LiveCalls,
    ReportSources,
    StatusReport,
    in_trouble,
)
from jackline.gateway.vendor_limits import VendorLimits
from jackline.hooks.agent_deaths import LatestCalls, StoppedSession
from jackline.hooks.agent_ends import AgentEndTracker
from jackline.hooks.endpoint import HooksEndpoint
from jackline.hooks.hook_input import hook_token
from jackline.journal import Journal
from jackline.lane_id import LaneId
from jackline.lanes import LaneController
from jackline.local_address import local_url
from jackline.mcp_server.agent_orders import OrderIntake
from jackline.mcp_server.agent_tools import agent_tools
from jackline.mcp_server.batch_tools import batch_tools
from jackline.mcp_server.endpoint import McpEndpoint
from jackline.mcp_server.model_tool import ModelTool, ToolCaller
from jackline.mcp_server.permissions import AgentSettings, ToolSettings
from jackline.mcp_server.session_resume import CutOffSession, SessionResumer
from jackline.mcp_server.status_tools import status_tools
from jackline.notifications.delivery import Notifier
from jackline.providers.provided_upstream import ProvidedUpstream, provider_for
from jackline.state_dir import RunningGateway, StateDir, StateKeeper
from jackline.telemetry.client_telemetry import ClientReports, OtlpReceiver
from jackline.telemetry.otlp_export import Forwarder, Tracing
from jackline.telemetry.scrape import FleetFigures
from jackline.upstream.bounded_answers import AnswerLimits

_log = logging.getLogger("jackline")
# How often a gateway that stops looks whether its calls have ended.
_LOOK_EVERY = 0.05


class CannotListenError(Exception):
    """The gateway's address cannot be used; `reason` is the system's error."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Service:
    """A running gateway; `async with` starts and stops it."""

    def __init__(
        self,
        config: Config,
        *,
        reload: Callable[[], Config] | None = None,
        clock: Clock | None = None,
        beside_flows: bool = False,
    ) -> None:
        """`beside_flows`: the process is a flow's own, and has a gateway for itself alone."""
        self._beside_flows = beside_flows
        self.config = config
        self.stop_asked = asyncio.Event()
        self._clock = clock or SystemClock()
        self._reload = reload
        self._state = StateDir(config.state_dir)
        self._run_store_url = run_store_url(config.state_dir)
        self._stack = AsyncExitStack()
        self._notes: dict[str, str] = {}
        self._patient = True
        self.observatory = Observatory(self._clock, lambda: self.config.prices)
        self._fates = LatestCalls(self._clock)
        self._tracing: Tracing | None = None
        self._forwarder: Forwarder | None = None
        # Requests that came before all was well.
        self._early: list[Exchange] = []

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return local_url(self.config.gateway.listen.host, self._listener.port)

    async def __aenter__(self) -> Self:
        self._build()
        try:
            await self._listener.open()
        except OSError as error:
            raise CannotListenError(error) from error
        if self._listener.lacks_localhost:
            self._notes["localhost"] = LACKS_LOCALHOST.format(port=self._listener.port)
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            await self._listener.close(0)
            raise
        self._let_in()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._announce(ServiceNoted(self._clock.wall(), "stopping"))
        # Before their calls are turned away: agents that wait at a turn's end lose nothing.
        self._agents.desk.ask_to_stop()
        left = 0.0 if kind is not None else await self._finish_calls()
        await self._listener.close(left)
        await self._stack.aclose()

    def status(self) -> dict[str, object]:
        """The picture of now, with its verdict and what is to be expected."""
        return self._report.status()

    def cut_short(self) -> None:
        """Do not wait for running calls any longer."""
        self._patient = False
        self._listener.cut()

    async def _finish_calls(self) -> float:
        """Let running calls end while new ones are refused for now; the seconds left."""
        self._listener.draining = True
        self.desk.send_home()
        ticks = asyncio.get_running_loop().time
        until = ticks() + self.config.gateway.limits.drain
        while self._patient and self.desk.calls and ticks() < until:  # noqa: ASYNC110 -- below
            # Once in a gateway's life; an event would be one more thing for every call to do.
            await asyncio.sleep(_LOOK_EVERY)
        return max(0.0, until - ticks()) if self._patient else 0.0

    # --- building -------------------------------------------------------------------------------

    def _build(self) -> None:
        draw = random.Random().random  # noqa: S311 -- jitter, not secrets
        self._keeping = StateKeeper(self._state, self._notes)
        salt = self._keeping.salt()
        self._keeping.look_at_key()
        self._build_gateway(salt, draw)
        self._build_report()
        control = self._build_control()
        interfaces = self._build_interfaces(control, hook_token(salt), draw)
        self._router = Router(self.desk, self._upstream, control, interfaces)
        self._router.listener = self._listener
        self._listener.refusal = self._router.refusal
        self._listener.is_shared = lambda: self.desk.settings.listen.token is not None

    def _build_gateway(self, salt: bytes, draw: Callable[[], float]) -> None:
        """What carries calls."""
        settings = self.config.gateway
        self._journal = Journal(
            self._state.journal, settings=self.config.journal, wall=self._clock.wall
        )
        controller = LaneController([], draw, now=self._clock.steady())
        self._upstream = ProvidedUpstream(
            {each.name: provider_for(each, os.environ) for each in settings.upstreams},
            foreign_upstreams(settings.upstreams),
            self._note_repair,
            AnswerLimits(settings.limits.answer, settings.limits.answer_time),
        )
        self._upstream.held.most = settings.limits.held_answers
        self.carrier = CallManager(controller, self._upstream, self._clock, self._announce)
        self._book = LaneRegistry(controller, settings.upstreams, salt, settings.cache.ttl)
        self._outages = self.carrier.outages = OutageEvidence(
            controller.lanes, self._book, self._upstream, self._clock, self.carrier.review
        )
        ticks = asyncio.get_running_loop().time
        make_desk = CallIntake if self.config.otlp.endpoint is None else TracedIntake
        self.desk = make_desk(
            settings,
            self.carrier,
            self._book,
            self._clock,
            self._announce,
            ticks,
            self._upstream.native_error,
        )
        self.desk.task_in = self._keeping.task_in
        if isinstance(self.desk, TracedIntake):
            self._tracing = Tracing(
                self.config.otlp,
                lambda: self.config.gateway.upstreams,
                self.observatory,
                self._clock,
            )
            self.desk.on_trace = self._tracing.trace_named
            self.desk.on_tools = self._tracing.tools_reported
        self._memory = LaneMemory(
            self.carrier, self._book, self._addresses, self._journal.announce, self._clock
        )
        pages = status_pages(settings.upstreams)
        self._pages = StatusPages(
            pages, lambda name: in_trouble(self.desk, name), self._clock, draw, os.environ
        )
        self._limits = VendorLimits(
            settings.upstreams,
            lambda reference: resolve(reference, os.environ),
            self._notes,
            self._clock,
            draw,
            os.environ,
        )
        self._book.readings = self._limits.readings
        self._limits.changed = lambda: limit_lanes(self._book, self.carrier)
        self._listener = Listener(settings, self._early.append)

    def _build_report(self) -> None:
        """The status of the service."""
        self._flow_book = StoredRuns(self._run_store_url, self._clock)
        self._live = LiveCalls(self.desk)
        sources = ReportSources(
            self.desk,
            self._live,
            self._journal,
            self._listener,
            self._pages,
            self.observatory,
            self._flow_book,
            self._notes,
        )
        self._report = StatusReport(sources, lambda: self.url, self._clock)

    def _build_control(self) -> ControlPaths:
        """The paths that are about the service itself."""
        self._token = secrets.token_urlsafe(24)
        readings: dict[bytes, Reading] = {
            b"/": self._hello,
            b"/healthz": self._report.health,
            b"/readyz": self._report.ready,
            TASKS: self._tasks,
            WAITS: self._report.waits,
        }
        self._hand_orders = OperatorOrders(self.desk, self._keeping.keep_orders)
        orders = {
            b"/_jackline/stop": self._stop,
            b"/_jackline/use": self._hand_orders.use,
            b"/_jackline/back": self._hand_orders.back,
            b"/_jackline/pause": self._hand_orders.pause,
            b"/_jackline/drain": self._hand_orders.drain,
            b"/_jackline/resume": self._hand_orders.resume,
            b"/_jackline/probe": self._hand_orders.probe,
        }
        return ControlPaths(
            readings,
            orders,
            self._token,
            self._keeping.proof,
            lambda: self.desk.settings.listen.token,
        )

    def _tasks(self) -> dict[str, object]:
        return {"tasks": self.desk.task_meters.to_json()}

    def _build_interfaces(
        self, control: ControlPaths, for_hooks: str, draw: Callable[[], float]
    ) -> tuple[HttpHandler, ...]:
        """Who else answers on the port, and what works beside the calls."""
        report, runs, clock = self._report, self._flow_book, self._clock
        facts = report.facts
        ends = AgentEndTracker(lambda: self.observatory.fleet, clock)
        self._agents = BackgroundAgents(
            lambda: self.config, lambda: self.url, self._run_store_url, clock
        )
        self._continuing = SessionResumer(
            lambda: self.config.continue_sessions, self._agents.host, clock, draw
        )
        self._fates.on_answer = self._continuing.answered
        hooks = HooksEndpoint(
            clock,
            control.trusts,
            report.line,
            self._session_stopped,
            self._fates,
            for_hooks,
            ends,
        )
        models = McpEndpoint(
            self._model_tools,
            control.trusts,
            lambda caller: self._agents.desk.news_for(
                "" if caller.folder is None else str(caller.folder)
            ),
            lambda: not self._is_read_only(),
        )
        receiver = self._build_receiver(ends)
        details = Details(
            runs,
            self._state.journal,
            clock,
            self._client_reports.document,
            lambda: self.config.prices,
        )
        figures = FleetFigures(facts, self.observatory, self._journal, runs, clock)
        documents = OpenDocuments(
            {STATUS: OpenDocument.of(report.status)}
            | details.documents
            | figures.documents
            | receiver.documents,
            control.trusts,
            clock,
        )
        self._page = DashboardHandler(
            # By the clock of who looks at it: in a drill the service's own may run much faster.
            Feed(facts, runs, SystemClock(), lambda: self._listener.draining),
            runs,
            trusts=control.trusts,
            read_only=self._is_read_only,
            carry_out=RunOrders(self._state.folder).carry_out,
        )
        self._notifier = Notifier(lambda: self.config.notify, facts, runs, clock)
        documentation = DocumentationHandler()
        self._work = (
            models.serve,
            self._page.serve,
            documentation.serve,
            ends.watch,
            documents.serve,
            figures.watch_delay,
            self._notifier.watch,
        )
        return documents, models, hooks, self._page, documentation, receiver

    def _build_receiver(self, ends: AgentEndTracker) -> OtlpReceiver:
        """What receives the telemetry of clients."""
        self._client_reports = ClientReports(ends.agent_ended)
        if self._tracing is not None:
            self._forwarder = Forwarder(self.config.otlp, self._clock)
        return OtlpReceiver(
            self._client_reports,
            lambda: self.config.otlp,
            lambda session, agent: self.observatory.fleet.member((session, agent)),
            self._tracing,
            self._forwarder,
        )

    def _model_tools(self) -> list[ModelTool]:
        """The tools of models: to look, and to start work."""

        def settings() -> ToolSettings:
            return self.config.tools

        def agent_settings() -> AgentSettings:
            return self.config.tools.agents

        desk, clock, tracing = self._agents.desk, self._clock, self._tracing

        def ran(call: BatchCall, result: CallResult, caller: ToolCaller) -> None:
            if tracing is not None:
                tracing.batch_call_ran(call, result, caller.session)

        orders = OrderIntake(desk, settings, os.environ, clock)
        return [
            *status_tools(self._report.status, agent_settings, clock),
            *agent_tools(desk, orders, agent_settings, clock),
            *batch_tools(settings, ran, desk.project_of),
        ]

    def _is_read_only(self) -> bool:
        return self.config.gateway.listen.read_only

    async def _open(self) -> None:
        # Its record is removed last of all: who waits for its end may then use the folder.
        self._stack.callback(self._state.tell_stopped, os.getpid())
        if not self._beside_flows:
            self._stack.enter_context(no_user_code())
        await asyncio.to_thread(remove_left_files)
        await asyncio.to_thread(self._journal.open)
        self._stack.push_async_callback(asyncio.to_thread, self._journal.close)
        self._stack.callback(self._memory.close)
        self._stack.push_async_callback(self._upstream.close)
        self._stack.push_async_callback(self._outages.close)
        await self._stack.enter_async_context(self.carrier)
        self._memory.recall(self._state.journal)
        await recall_past(self._state.journal, self.observatory.announce, self._clock)
        self.observatory.settle_past()
        self._hand_orders.recall(self._state.orders())
        self._stack.callback(self._memory.remember)
        self._keep(self.desk.look_after())
        self._stack.push_async_callback(self._pages.close)
        self._keep(self._pages.watch())
        self._stack.push_async_callback(self._limits.close)
        self._keep(self._limits.watch())
        if self._tracing is not None:
            self._keep(self._tracing.watch())
        if self._forwarder is not None:
            self._keep(self._forwarder.watch())
        self._stack.push_async_callback(self._flow_book.close)
        self._keep(self._report.watch())
        for work in self._work:
            self._keep(work())
        self._stack.push_async_callback(self._agents.close)
        self._keep(self._agents.serve())
        self._keep(self._continuing.watch(partial(run_store_exists, self._run_store_url)))
        waker = Waker(self._state.folder, self._run_store_url, self._clock, here=self._agents.wakes)
        self._keep(waker.watch())
        self._keep(self.observatory.keep_settling())
        self._keep(self._memory.keep_remembering())
        if self._reload is not None:
            self._keep(self._reconfiguring(self._reload).watch())
        upstream, started = self.config.gateway.upstream.url, self._report.started
        record = RunningGateway(os.getpid(), self.url, upstream, __version__, started, self._token)
        self._keeping.tell_running(record)
        self._announce(ServiceNoted(self._clock.wall(), "started", self.url))

    def _let_in(self) -> None:
        """Take requests, those first that came while the port was open and we were not ready."""
        self._listener.handle = self._router.handle
        for exchange in self._early:
            if not exchange.gone:
                self._router.handle(exchange)
        self._early.clear()

    def _keep(self, work: Coroutine[object, object, None]) -> None:
        """Run a task for as long as the service runs; its failure is logged, not lost."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_log_failure)

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)

    # --- what happens -----------------------------------------------------------------------------

    def _addresses(self) -> str:
        return " ".join(each.url for each in self.config.gateway.upstreams)

    def _announce(self, event: Event) -> None:
        self.observatory.announce(event)
        if isinstance(event, ClockMoved):
            for note in clock_notes(event):
                self._announce(note)
            return
        if isinstance(event, WindowsReported):
            return  # news of the moment, with every answer: not for the records
        self._journal.announce(event)
        self._fates.on_event(event)
        if isinstance(event, LaneChanged):
            until, now = "", self._clock.now()
            if event.until is not None:
                moment = datetime.fromtimestamp(whole_second(event.until), now.tzinfo)
                until = f" until {moment_in_words(moment, now)}"
            _log.info("%s is %s%s. %s", event.lane, event.state, until, event.why)
            self._memory.remember_soon()
        elif isinstance(event, AttemptFailed):
            _log.info("%s: %s on %s", event.call, event.why, event.lane)

    def _reconfiguring(self, reload: Callable[[], Config]) -> ConfigReloader:
        parts = ReloadableParts(
            self.desk,
            self._listener,
            self._upstream,
            self._book,
            self._pages,
            self._limits,
            self.carrier,
        )
        return ConfigReloader(
            self.config, reload, parts, self._adopt, self._notes, self._announce, self._clock
        )

    def _adopt(self, config: Config) -> None:
        self.config = config

    def _note_repair(self, lane: LaneId, text: str) -> None:
        _log.info("%s: %s", lane, text)
        self._announce(ServiceNoted(self._clock.wall(), "repaired", f"{lane}: {text}"))

    def _session_stopped(self, stopped: StoppedSession) -> None:
        session, cause = stopped.session, stopped.cause
        why_not = self._continuing.stopped(
            CutOffSession(
                session.id,
                session.cwd,
                session.transcript,
                session.processes,
                cause.kind,
                cause.name,
                cause.resets_at,
                stopped.model,
                stopped.run,
                session.mode,
            )
        )
        text = f"session {session.id} stopped: {cause.name}{why_not and '; '}{why_not}"
        self._announce(ServiceNoted(self._clock.wall(), "session stopped", text))
        _log.info("%s", text)

    def _hello(self) -> dict[str, object]:
        stopping = self._listener.draining or self.stop_asked.is_set()
        return self._report.hello(self._state.folder, stopping=stopping)

    def _stop(self, _asked: Mapping[str, object]) -> dict[str, object]:
        self.stop_asked.set()
        return {"stopping": True}


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a part of the gateway has stopped", exc_info=error)
