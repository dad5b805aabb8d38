"""Join the traces of clients with what becomes of their calls.

Laws: (1) without an endpoint no call pays anything: the plain desk is taken; (2) of a request only
its `traceparent` is looked at.
Not here: spans (telemetry/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jackline import __version__
from jackline.assembly.observing import Observatory
from jackline.clock import Clock
from jackline.events import AttemptFailed, CallEnded, Event
from jackline.gateway.desk import Desk
from jackline.gateway.messages import MessagesCall
from jackline.providers.settings import UpstreamSettings
from jackline.telemetry.otlp_sending import SpanSender
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.span_names import PROVIDERS
from jackline.telemetry.spans import Tracer

_TRACEPARENT = b"traceparent"


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

    def _provider_of(self, upstream: str) -> str:
        kinds = {each.name: each.kind.value for each in self._upstreams()}
        return PROVIDERS.get(kinds.get(upstream, ""), upstream or "unknown")


class TracedDesk(Desk):
    """A desk that remembers which trace a call came with."""

    tracer: Tracer | None = None

    def ended(self, call: MessagesCall, event: CallEnded) -> None:
        """A call is over."""
        if self.tracer is not None:
            for name, value in call.request.message.headers:
                if name.lower() == _TRACEPARENT:
                    self.tracer.came_with(event.call, value)
                    break
        super().ended(call, event)
