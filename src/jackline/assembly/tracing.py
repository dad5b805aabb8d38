"""Join the traces of clients with what becomes of their calls.

Laws: (1) without an endpoint no call pays anything: the plain desk is taken; (2) of a request only
its `traceparent` is looked at, and what agents of ours tell of the tools that they ran before it.
Not here: spans (telemetry/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jackline import __version__
from jackline.agents.tools_ran import HEADER as TOOLS_HEADER
from jackline.agents.tools_ran import tools_in
from jackline.assembly.observing import Observatory
from jackline.clock import Clock
from jackline.events import AttemptFailed, CallEnded, Event
from jackline.gateway.desk import Desk
from jackline.gateway.exchange import Exchange
from jackline.gateway.identity import identify
from jackline.gateway.messages import MessagesCall
from jackline.gateway.packed_body import NOT_PACKED, Packed
from jackline.providers.settings import UpstreamSettings
from jackline.telemetry.otlp_sending import SpanSender
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.span_names import PROVIDERS
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
        kinds = {each.name: each.kind.value for each in self._upstreams()}
        return PROVIDERS.get(kinds.get(upstream, ""), upstream or "unknown")


class TracedDesk(Desk):
    """A desk that remembers which trace a call came with, and which tools ran before it."""

    tracing: Tracing | None = None

    def take(
        self, exchange: Exchange, target: bytes, tag: str | None, packed: Packed = NOT_PACKED
    ) -> None:
        """Take a call in."""
        told = exchange.header(_TOOLS)
        if told is not None and self.tracing is not None:
            who = identify(exchange.header, tag)
            for tool in tools_in(told):
                self.tracing.tool_ran(
                    ToolRan(
                        who.session or "",
                        who.agent or "",
                        tool.name,
                        tool.begins,
                        tool.begins + tool.seconds,
                        ok=tool.ok,
                        told_by="agent",
                        error=tool.ended_by,
                    )
                )
        super().take(exchange, target, tag, packed)

    def ended(self, call: MessagesCall, event: CallEnded) -> None:
        """A call is over."""
        if self.tracing is not None:
            for name, value in call.request.message.headers:
                if name.lower() == _TRACEPARENT:
                    self.tracing.tracer.came_with(event.call, value)
                    break
        super().ended(call, event)
