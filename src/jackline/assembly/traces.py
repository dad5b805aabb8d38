"""Join the traces and telemetry of clients with what the service has seen of their calls.

Rules: (1) without an endpoint no call pays anything, nothing is traced and nothing is sent on:
what clients report is only shown; (2) of a request only its `traceparent` is read, and what
agents of ours report of the tools that they ran before it; (3) a tool is reported once: by the
client's own span, or by ours.
Not here: spans and receiving (telemetry/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from jackline import __version__
from jackline.agents.runner import TOOLS_HEADER, parse_tool_runs
from jackline.assembly.agent_ends import EndTrackingClients
from jackline.batches.tool import BatchCall, CallResult
from jackline.clock import Clock
from jackline.dashboard.handler import Details
from jackline.dashboard.runs import StoredRuns
from jackline.events import AttemptFailed, CallEnded, Event
from jackline.gateway.call_intake import CallIntake
from jackline.gateway.caller import identify
from jackline.gateway.client_call import ClientCall
from jackline.gateway.connection import Exchange
from jackline.mcp_server.model_tool import ToolCaller
from jackline.mcp_server.tools.batch import CallListener, nobody
from jackline.providers.settings import UpstreamSettings
from jackline.telemetry.client_telemetry import ClientReports, OtlpReceiver, ReceiverCallbacks
from jackline.telemetry.observatory import Observatory
from jackline.telemetry.otlp_export import Forwarder, SpanSender
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.spans import ToolRan, Tracer

_TRACEPARENT = b"traceparent"
_TOOLS = TOOLS_HEADER.encode()


class Tracing:
    """The spans of one service; `watch` must run for as long as it does."""

    def __init__(
        self,
        settings: OtlpSettings,
        upstreams: Callable[[], Sequence[UpstreamSettings]],
        observatory: Observatory,
        clock: Clock,
    ) -> None:
        self._upstreams = upstreams
        self.tracer = Tracer(self._provider_of)
        self._settle = observatory.settle
        observatory.also = self.heard
        self._sender = SpanSender(self.tracer, settings, __version__, clock, observatory.settle)

    async def watch(self) -> None:
        """Send spans, until cancelled."""
        await self._sender.watch()

    def heard(self, event: Event) -> None:
        """Something was announced."""
        if isinstance(event, CallEnded):
            self.tracer.call_ended(event)
        elif isinstance(event, AttemptFailed):
            self.tracer.attempt_failed(event)

    def tool_ran(self, tool: ToolRan) -> None:
        """A tool came to its end; its agent's calls that were put aside are placed before it."""
        self._settle()
        self.tracer.tool_ran(tool)

    def place_of(self, session: str, agent: str) -> tuple[str, str]:
        """The trace and the span of an agent, as of now."""
        self._settle()
        return self.tracer.place_of(session, agent)

    def _provider_of(self, upstream: str) -> str:
        names = {each.name: each.kind.facts.telemetry_name for each in self._upstreams()}
        return names.get(upstream, upstream or "unknown")


class TracedDesk(CallIntake):
    """A desk that remembers which trace a call came with, and which tools ran before it."""

    tracing: Tracing | None = None

    def take(
        self,
        exchange: Exchange,
        target: bytes,
        tag: str | None,
        readable: bytes | bytearray | None,
    ) -> None:
        """Submit a call."""
        told = exchange.header(_TOOLS)
        if told is not None and self.tracing is not None:
            who = identify(exchange.header, tag)
            for tool in parse_tool_runs(told):
                self.tracing.tool_ran(
                    ToolRan(
                        who.session or "",
                        who.agent or "",
                        tool.name,
                        tool.begins,
                        tool.begins + tool.seconds,
                        ok=tool.ok,
                        reported_by="agent",
                        error=tool.ended_by,
                    )
                )
        super().take(exchange, target, tag, readable)

    def ended(self, call: ClientCall, event: CallEnded) -> None:
        """A call is over."""
        if self.tracing is not None:
            for name, value in call.request.message.headers:
                if name.lower() == _TRACEPARENT:
                    self.tracing.tracer.came_with(event.call, value)
                    break
        super().ended(call, event)


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
        self.book = EndTrackingClients(ended)
        self.forwarder = None if tracing is None else Forwarder(settings(), clock)
        heard = ReceiverCallbacks(
            settings,
            lambda session, agent: observatory.fleet.member((session, agent)),
            None if tracing is None else tracing.tool_ran,
            _nowhere if tracing is None else tracing.place_of,
            None if self.forwarder is None else self.forwarder.put,
        )
        self.face = OtlpReceiver(self.book, heard)
        self.batch_ran = nobody if tracing is None else batch_tracer(tracing, clock)


def _nowhere(_session: str, _agent: str) -> tuple[str, str]:
    return "", ""


class JoinedDetails(Details):
    """The page of an agent, with what its client told beside what was seen."""

    def __init__(
        self, flows: StoredRuns, journal: Path, clock: Clock, clients: ClientReports
    ) -> None:
        super().__init__(flows, journal, clock)
        self._clients = clients

    async def agent(self, session: str, agent: str) -> dict[str, object]:
        """Everything about one agent."""
        told = self._clients.of_agent(session, agent)
        seen = await super().agent(session, agent)
        return seen | {"client": None if told is None else told.to_json()}


def batch_tracer(tracing: Tracing, clock: Clock) -> CallListener:
    """Makes a span of each call of a batch, under the session that asked for it."""

    def ran(call: BatchCall, result: CallResult, caller: ToolCaller) -> None:
        ends = clock.wall()
        tracing.tool_ran(
            ToolRan(
                caller.session,
                "",
                call.tool.name,
                ends - result.seconds,
                ends,
                ok=result.ok,
                reported_by="batch",
                call_id=call.id,
                error=result.ended_by,
            )
        )

    return ran
