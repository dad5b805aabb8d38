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
from jackline.mcp_server.face import McpFace
from jackline.mcp_server.tools.standing import standing_tools


@dataclass(frozen=True, slots=True)
class Faces:
    """All faces, and what keeps them going."""

    shown: tuple[Face, ...]
    work: tuple[Callable[[], Coroutine[object, object, None]], ...]


def make_faces(
    status: Callable[[], Mapping[str, object]], trusts: Callable[[Asked], bool], clock: Clock
) -> Faces:
    """The faces of one service."""
    models = McpFace(lambda: standing_tools(status, clock), trusts)
    return Faces((models,), (models.serve,))
