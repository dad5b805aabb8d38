"""A call intake that also reports the traces of calls, and the tools that agents ran before them.

Rules: (1) it is used only while spans are sent, so that without a collector no call pays for it;
(2) of a request only `traceparent` and our own header about tools are read.
"""

from __future__ import annotations

from collections.abc import Callable

from jackline.agents.runner import TOOLS_HEADER
from jackline.events import CallEnded
from jackline.gateway.call_intake import CallIntake
from jackline.gateway.caller import identify
from jackline.gateway.client_call import ClientCall
from jackline.gateway.connection import Exchange

_TRACEPARENT = b"traceparent"
_TOOLS = TOOLS_HEADER.encode()


class TracedIntake(CallIntake):
    """Set both functions before the first call."""

    on_trace: Callable[[str, bytes], None]
    """Called with a call and the `traceparent` that it came with."""
    on_tools: Callable[[str, str, bytes], None]
    """Called with session, agent, and what the agent reports of its tools."""

    def take(
        self,
        exchange: Exchange,
        target: bytes,
        tag: str | None,
        readable: bytes | bytearray | None,
    ) -> None:
        """Submit a model call."""
        tools = exchange.header(_TOOLS)
        if tools is not None:
            who = identify(exchange.header, tag)
            self.on_tools(who.session or "", who.agent or "", tools)
        super().take(exchange, target, tag, readable)

    def ended(self, call: ClientCall, event: CallEnded) -> None:
        """A call is over."""
        for name, value in call.request.message.headers:
            if name.lower() == _TRACEPARENT:
                self.on_trace(event.call, value)
                break
        super().ended(call, event)
