"""Join what clients tell of themselves with what the service has seen of their calls.

Laws: (1) without an endpoint nothing is traced and nothing is sent on: what clients tell is only
shown; (2) a tool is told once: by the client's own span, or by ours.
Not here: taking it in (telemetry/otlp_receiving.py), our own spans (tracing.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jackline.assembly.hearing_ends import ListenedClients
from jackline.assembly.observing import Observatory
from jackline.assembly.tracing import Tracing
from jackline.batches.results import BatchCall, CallResult
from jackline.clock import Clock
from jackline.dashboard.details import Details
from jackline.dashboard.flow_book import FlowBook
from jackline.mcp_server.model_tool import Caller
from jackline.mcp_server.tools.batch import Ran, nobody
from jackline.telemetry.client_book import ClientBook
from jackline.telemetry.otlp_forwarding import Forwarder
from jackline.telemetry.otlp_receiving import Heard, ReceivingFace
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.spans import ToolRan


class ClientTelemetry:
    """What clients tell one service; the forwarder's `watch` must run for as long as it does."""

    def __init__(
        self,
        settings: Callable[[], OtlpSettings],
        tracing: Tracing | None,
        observatory: Observatory,
        clock: Clock,
        ended: Callable[[str, str], None],
    ) -> None:
        self.book = ListenedClients(ended)
        self.forwarder = None if tracing is None else Forwarder(settings(), clock)
        heard = Heard(
            settings,
            lambda session, agent: observatory.fleet.member((session, agent)),
            None if tracing is None else tracing.tool_ran,
            _nowhere if tracing is None else tracing.place_of,
            None if self.forwarder is None else self.forwarder.put,
        )
        self.face = ReceivingFace(self.book, heard)
        self.batch_ran = nobody if tracing is None else batch_heard(tracing, clock)


def _nowhere(_session: str, _agent: str) -> tuple[str, str]:
    return "", ""


class JoinedDetails(Details):
    """The page of an agent, with what its client told beside what was seen."""

    def __init__(self, flows: FlowBook, journal: Path, clock: Clock, clients: ClientBook) -> None:
        super().__init__(flows, journal, clock)
        self._clients = clients

    async def agent(self, session: str, agent: str) -> dict[str, object]:
        """Everything about one agent."""
        told = self._clients.of_agent(session, agent)
        seen = await super().agent(session, agent)
        return seen | {"client": None if told is None else told.to_json()}


def batch_heard(tracing: Tracing, clock: Clock) -> Ran:
    """Makes a span of each call of a batch, under the session that asked for it."""

    def ran(call: BatchCall, result: CallResult, caller: Caller) -> None:
        ends = clock.wall()
        tracing.tool_ran(
            ToolRan(
                caller.session,
                "",
                call.tool.name,
                ends - result.seconds,
                ends,
                ok=result.ok,
                told_by="batch",
                call_id=call.id,
                error=result.ended_by,
            )
        )

    return ran
