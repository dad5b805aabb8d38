"""Know which calls their clients have cancelled themselves.

Laws: (1) only a client's own word counts: a connection that broke, a session that ended and a
client's time-out cancel nothing; (2) what was heard is kept for a bounded number of calls.
Not here: ending the call, which the SDK does by itself; what a tool makes of it (tools/).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable

from jackline.control.face import Asked

_METHOD = b"notifications/cancelled"
_SESSION = b"mcp-session-id"
_KEPT = 1_000


class TakenBack:
    """The calls that were cancelled, by session and request."""

    def __init__(self) -> None:
        self._heard: OrderedDict[tuple[str, str], None] = OrderedDict()

    def hear(self, asked: Asked) -> None:
        """Take note, if this message cancels a call; the call's own end comes after."""
        if _METHOD not in bytes(asked.body):
            return
        try:
            message = json.loads(bytes(asked.body))
            params = message["params"] if message.get("method") == _METHOD.decode() else {}
            request, reason = params.get("requestId"), str(params.get("reason") or "")
        except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
            return  # whatever it is, the protocol itself refuses it
        # Clients' libraries also cancel what took too long for them: nobody wants that work gone.
        if request is not None and "timed out" not in reason.lower():
            self._heard[_session_of(asked), str(request)] = None
            while len(self._heard) > _KEPT:
                self._heard.popitem(last=False)

    def asker(self, session: str, request: object) -> Callable[[], bool]:
        """Something that tells whether this call was cancelled by its client."""
        return lambda: (session, str(request)) in self._heard


def _session_of(asked: Asked) -> str:
    given = [value for name, value in asked.headers if name.lower() == _SESSION]
    return given[0].decode("latin-1") if given else ""
