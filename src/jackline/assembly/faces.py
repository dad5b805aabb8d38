"""Make the faces beside the gateway, page, models, hooks, metrics, and the sender of notifications.

Rules: (1) faces get functions to read and order with, never the service itself; each brings the
work that must go on while the service runs; (2) metrics are collected when somebody reads them,
and a store of runs that cannot be read leaves out its own metrics only; (3) while no way to
notify is set, nothing is looked at; sending happens in a thread, and a failed message is logged
and tried a few times.
Not here: the faces (mcp_server/, dashboard/, hooks/, telemetry/), what is worth a message
(notifications/).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jackline.assembly.agent_ends import AgentEndTracker, EndTrackingHooks
from jackline.assembly.traces import JoinedDetails
from jackline.clock import Clock, SystemClock
from jackline.control.board import NO_FLOW_FACTS, Facts, FlowFacts, fleet_document
from jackline.control.http_handler import HttpHandler, ServiceRequest
from jackline.dashboard.feed import Feed
from jackline.dashboard.handler import CarryOut, DashboardHandler, OrderAccess
from jackline.dashboard.runs import StoredRuns
from jackline.errors import JacklineError
from jackline.flows.records import RunState
from jackline.flows.settings import parse_hours
from jackline.hooks.agent_deaths import LatestCalls
from jackline.hooks.endpoint import HooksEndpoint, SessionStopped
from jackline.journal import Journal
from jackline.journal.journal import BOUNDS
from jackline.mcp_server.agent_manager import AgentManager
from jackline.mcp_server.agent_orders import OrderIntake
from jackline.mcp_server.endpoint import McpEndpoint
from jackline.mcp_server.model_tool import ModelTool, ToolCaller
from jackline.mcp_server.permissions import AgentSettings, ToolSettings
from jackline.mcp_server.tools.agents import agent_control_tools, agent_start_tools
from jackline.mcp_server.tools.batch import CallListener, batch_tools, nobody
from jackline.mcp_server.tools.status import status_tools
from jackline.notifications.delivery import DeliveryResult, send
from jackline.notifications.incidents import ConditionFinder, IncidentMessage, Incidents
from jackline.notifications.settings import NotifySettings
from jackline.telemetry.client_telemetry import ClientReports
from jackline.telemetry.metrics import Histogram
from jackline.telemetry.observatory import Observatory
from jackline.telemetry.scrape import (
    JournalFigures,
    OwnProcess,
    RunFigures,
    ScrapeFacts,
    ScrapeHandler,
)

_log = logging.getLogger(__name__)


class ServiceMetrics:
    """What programs may read of one service: the face, and the work that must go on for it."""

    def __init__(
        self,
        facts: Callable[[FlowFacts], Facts],
        observatory: Observatory,
        journal: Journal,
        book: StoredRuns,
        clock: Clock,
    ) -> None:
        self._facts = facts
        self._observatory = observatory
        self._journal = journal
        self._book = book
        self._flows = NO_FLOW_FACTS
        self._runs: RunFigures | None = None
        self._process = OwnProcess(clock)
        self.face = ScrapeHandler(self._look, self._fleet, self._refresh, clock)
        self.work: tuple[Callable[[], Coroutine[object, object, None]], ...] = (
            self.face.serve,
            self._process.watch,
        )

    def _fleet(self) -> dict[str, object]:
        return fleet_document(self._facts(self._flows))

    def _look(self) -> ScrapeFacts:
        # First the facts: looking at the fleet counts what was put aside.
        facts = self._facts(self._flows)
        health, times = self._journal.health, self._journal.commit_times
        commits = Histogram.of(BOUNDS, times.counts, times.seconds)
        journal = JournalFigures(health.ok, health.dropped, health.waiting, commits)
        watched, process = self._observatory, self._process.figures()
        return ScrapeFacts(facts, watched.tally, journal, process, self._runs, watched.spent_before)

    async def _refresh(self) -> None:
        self._flows = await self._book.look()
        self._runs = await self._count_runs()

    async def _count_runs(self) -> RunFigures | None:
        try:
            found = await self._book.count()
        except JacklineError as error:
            _log.warning("metrics do not have the states of runs: %s", error.message)
            return None
        _, need_you = found.get(RunState.PARKED, (0, 0))
        return RunFigures({state: count for state, (count, _) in found.items()}, need_you)


_EVERY = 5.0
_TRIES = 3
_BETWEEN_TRIES = 30.0


class Notifier:
    """The messages of one service; `watch` must run for as long as it does."""

    def __init__(
        self,
        settings: Callable[[], NotifySettings],
        facts: Callable[[FlowFacts], Facts],
        observatory: Observatory,
        book: StoredRuns,
        clock: Clock,
        send: Callable[[IncidentMessage, NotifySettings], Sequence[DeliveryResult]] = send,
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._observatory = observatory
        self._book = book
        self._clock = clock
        self._send = send
        self._noticing = ConditionFinder()
        self._incidents = Incidents()
        self._sending: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        """Look, and have told what is due, until cancelled."""
        try:
            while True:
                await self.look()
                await self._clock.sleep(_EVERY)
        finally:
            for task in self._sending:
                task.cancel()
            await asyncio.gather(*self._sending, return_exceptions=True)

    async def look(self) -> list[IncidentMessage]:
        """The messages that are due now; they are being sent."""
        settings = self._settings()
        if not settings.has_ways:
            return []
        self._noticing.budget_share = settings.budget_share
        facts = self._facts(await self._book.look())
        now = self._clock.now()
        holding = self._noticing.look(facts, self._observatory.tally.lanes, now)
        wanted = [each for each in holding if each.about in settings.on]
        quiet = settings.quiet is not None and parse_hours(settings.quiet).next_from(now) == now
        told = self._incidents.look(self._clock.steady(), wanted, quiet=quiet)
        # How long something holds is a duration; when somebody is told of it, a date.
        due = [replace(message, at=now.timestamp()) for message in told]
        for message in due:
            task = asyncio.get_running_loop().create_task(self._tell(message, settings))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return due

    async def _tell(self, message: IncidentMessage, settings: NotifySettings) -> None:
        for tries_left in range(_TRIES - 1, -1, -1):
            sent = await asyncio.to_thread(self._send, message, settings)
            failed = [each for each in sent if each.trouble]
            if not failed:
                return
            for each in failed:
                _log.warning("a message was not sent by %s: %s", each.way, each.trouble)
            # What went is not sent again.
            settings = settings.only([each.way for each in failed])
            if tries_left:
                await self._clock.sleep(_BETWEEN_TRIES)


@dataclass(frozen=True, slots=True)
class Faces:
    """All faces, and what keeps them going."""

    shown: tuple[HttpHandler, ...]
    work: tuple[Callable[[], Coroutine[object, object, None]], ...]


@dataclass(frozen=True, slots=True)
class StatusSources:
    """How the service can be asked how it stands."""

    status: Callable[[], Mapping[str, object]]
    line: Callable[[str], str]
    """For a client's status line, given its session."""
    session_stopped: SessionStopped
    """A client's session died of an API error."""
    fates: LatestCalls
    """What became of each agent's latest call."""
    hook_token: str
    """What HTTP hooks of the plugin show."""
    ends: AgentEndTracker
    """Hears what hooks tell of agents that have ended."""


@dataclass(frozen=True, slots=True)
class PageSources:
    """What the page in the browser shows, and who carries out what it orders."""

    facts: Callable[[FlowFacts], Facts]
    flows: StoredRuns
    """The one that all faces look into, so that they tell of runs in the same moment."""
    journal: Path
    carry_out: CarryOut
    read_only: Callable[[], bool]
    stopping: Callable[[], bool]
    clients: ClientReports
    """What clients tell of their agents."""


@dataclass(frozen=True, slots=True)
class ModelWork:
    """What models may have done for them."""

    desk: AgentManager
    settings: Callable[[], ToolSettings]
    ran: CallListener = nobody
    """Hears of each call of a batch."""

    def tools(self, clock: Clock) -> list[ModelTool]:
        """The tools that start work."""

        def agents() -> AgentSettings:
            return self.settings().agents

        orders = OrderIntake(self.desk, self.settings, os.environ, clock)
        return [
            *agent_start_tools(self.desk, orders, agents, clock),
            *agent_control_tools(self.desk, agents, clock),
            *batch_tools(self.settings, self.ran),
        ]

    def news(self, caller: ToolCaller) -> list[str]:
        """What finished since for this client."""
        return self.desk.news_for("" if caller.folder is None else str(caller.folder))


def make_faces(
    standing: StatusSources,
    watched: PageSources,
    working: ModelWork,
    trusts: Callable[[ServiceRequest], bool],
    clock: Clock,
) -> Faces:
    """The faces of one service."""
    flows = watched.flows
    page = DashboardHandler(
        # By the clock of who looks at it: in a drill the service's own may run much faster.
        Feed(watched.facts, flows, SystemClock(), watched.stopping),
        flows,
        JoinedDetails(flows, watched.journal, clock, watched.clients),
        OrderAccess(trusts, watched.read_only, watched.carry_out),
    )
    models = McpEndpoint(
        lambda: [
            *status_tools(standing.status, lambda: working.settings().agents, clock),
            *working.tools(clock),
        ],
        trusts,
        working.news,
        lambda: not watched.read_only(),
    )
    hooks = HooksEndpoint(
        clock,
        trusts,
        standing.line,
        standing.session_stopped,
        standing.fates,
        standing.hook_token,
    )
    heard = EndTrackingHooks(hooks, trusts, standing.ends)
    return Faces((models, heard, page), (models.serve, page.serve, standing.ends.watch))
