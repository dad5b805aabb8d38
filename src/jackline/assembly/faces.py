"""Make the faces that the service shows beside its gateway, and keep their work going.

Laws: (1) faces are given functions to ask and order with, never the service itself; (2) each brings
the work that must go on while the service runs.
Not here: the faces (mcp_server/, dashboard/), the gateway's own control paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path

from jackline.assembly.client_telemetry import JoinedDetails
from jackline.assembly.hearing_ends import EndsHeard, ListenedHooks
from jackline.clock import Clock, SystemClock
from jackline.control.board import Facts, Flows
from jackline.control.face import Asked, Face
from jackline.dashboard.face import CarryOut, DashboardFace, Doors
from jackline.dashboard.feed import Feed
from jackline.dashboard.flow_book import FlowBook
from jackline.hooks.face import HooksFace, SessionStopped
from jackline.hooks.fates import CallFates
from jackline.mcp_server.agent_desk import AgentDesk
from jackline.mcp_server.agent_orders import OrderDesk
from jackline.mcp_server.face import McpFace
from jackline.mcp_server.model_tool import Caller, ModelTool
from jackline.mcp_server.settings import AgentSettings, ToolSettings
from jackline.mcp_server.tools.agents import starting_tools
from jackline.mcp_server.tools.batch import Ran, batch_tools, nobody
from jackline.mcp_server.tools.following import following_tools
from jackline.mcp_server.tools.standing import standing_tools
from jackline.telemetry.client_book import ClientBook


@dataclass(frozen=True, slots=True)
class Faces:
    """All faces, and what keeps them going."""

    shown: tuple[Face, ...]
    work: tuple[Callable[[], Coroutine[object, object, None]], ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """How the service can be asked how it stands."""

    status: Callable[[], Mapping[str, object]]
    line: Callable[[str], str]
    """For a client's status line, given its session."""
    session_stopped: SessionStopped
    """A client's session died of an API error."""
    fates: CallFates
    """What became of each agent's latest call."""
    hook_token: str
    """What HTTP hooks of the plugin show."""
    ends: EndsHeard
    """Hears what hooks tell of agents that have ended."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What the page in the browser shows, and who carries out what it orders."""

    facts: Callable[[Flows], Facts]
    flows: FlowBook
    """The one that all faces look into, so that they tell of runs in the same moment."""
    journal: Path
    carry_out: CarryOut
    read_only: Callable[[], bool]
    stopping: Callable[[], bool]
    clients: ClientBook
    """What clients tell of their agents."""


@dataclass(frozen=True, slots=True)
class Working:
    """What models may have done for them."""

    desk: AgentDesk
    settings: Callable[[], ToolSettings]
    ran: Ran = nobody
    """Hears of each call of a batch."""

    def tools(self, clock: Clock) -> list[ModelTool]:
        """The tools that start work."""

        def agents() -> AgentSettings:
            return self.settings().agents

        orders = OrderDesk(self.desk, self.settings, os.environ, clock)
        return [
            *starting_tools(self.desk, orders, agents, clock),
            *following_tools(self.desk, agents, clock),
            *batch_tools(self.settings, self.ran),
        ]

    def news(self, caller: Caller) -> list[str]:
        """What finished since for this client."""
        return self.desk.news_for("" if caller.folder is None else str(caller.folder))


def make_faces(
    standing: Standing,
    watched: Watched,
    working: Working,
    trusts: Callable[[Asked], bool],
    clock: Clock,
) -> Faces:
    """The faces of one service."""
    flows = watched.flows
    page = DashboardFace(
        # By the clock of who looks at it: in a drill the service's own may run much faster.
        Feed(watched.facts, flows, SystemClock(), watched.stopping),
        flows,
        JoinedDetails(flows, watched.journal, clock, watched.clients),
        Doors(trusts, watched.read_only, watched.carry_out),
    )
    models = McpFace(
        lambda: [
            *standing_tools(standing.status, lambda: working.settings().agents, clock),
            *working.tools(clock),
        ],
        trusts,
        working.news,
        lambda: not watched.read_only(),
    )
    hooks = HooksFace(
        clock,
        trusts,
        standing.line,
        standing.session_stopped,
        standing.fates,
        standing.hook_token,
    )
    heard = ListenedHooks(hooks, trusts, standing.ends)
    return Faces((models, heard, page), (models.serve, page.serve, standing.ends.watch))
