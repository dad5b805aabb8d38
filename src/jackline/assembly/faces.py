"""Make the interfaces beside the gateway: page, models, hooks.

Rules: (1) interfaces get functions to read and order with, never the service itself; each brings
the work that must go on while the service runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path

from jackline.clock import Clock, SystemClock
from jackline.control.board import Facts, FlowFacts
from jackline.control.http_handler import HttpHandler, ServiceRequest
from jackline.control.stored_runs import StoredRuns
from jackline.dashboard.feed import Feed
from jackline.dashboard.handler import CarryOut, DashboardHandler, Details, OrderAccess
from jackline.hooks.agent_deaths import LatestCalls
from jackline.hooks.agent_ends import AgentEndTracker
from jackline.hooks.endpoint import HooksEndpoint, SessionStopped
from jackline.mcp_server.agent_manager import AgentManager
from jackline.mcp_server.agent_orders import OrderIntake
from jackline.mcp_server.endpoint import McpEndpoint
from jackline.mcp_server.model_tool import ModelTool, ToolCaller
from jackline.mcp_server.permissions import AgentSettings, ToolSettings
from jackline.mcp_server.tools.agents import agent_control_tools, agent_start_tools
from jackline.mcp_server.tools.batch import CallListener, batch_tools, nobody
from jackline.mcp_server.tools.status import status_tools


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
    client_report: Callable[[str, str], Mapping[str, object] | None]
    """What its client reported of an agent."""


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
        Details(flows, watched.journal, clock, watched.client_report),
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
        standing.ends,
    )
    return Faces((models, hooks, page), (models.serve, page.serve, standing.ends.watch))
