"""Make the faces that the service shows beside its gateway, and keep their work going.

Laws: (1) faces are given functions to ask and order with, never the service itself; (2) each brings
the work that must go on while the service runs.
Not here: the faces (mcp_server/, dashboard/), the gateway's own control paths.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass

from jackline.clock import Clock
from jackline.control.face import Asked, Face
from jackline.failures import Failure
from jackline.hooks.asked import HookAsked
from jackline.hooks.face import HooksFace
from jackline.mcp_server.face import McpFace
from jackline.mcp_server.tools.standing import standing_tools


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
    session_stopped: Callable[[HookAsked, Failure], None]
    """A client's session died of an API error."""


def make_faces(standing: Standing, trusts: Callable[[Asked], bool], clock: Clock) -> Faces:
    """The faces of one service."""
    models = McpFace(lambda: standing_tools(standing.status, clock), trusts)
    hooks = HooksFace(clock, trusts, standing.line, standing.session_stopped)
    return Faces((models, hooks), (models.serve,))
