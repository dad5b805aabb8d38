"""Construct and connect the parts of one running process; nothing else happens here.

Rules: (1) what is opened is closed again, in reverse order, however the process stops; (2)
commands that only look for a gateway do not load one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from jackline.state_dir import RunningGateway, StateDir

if TYPE_CHECKING:
    from jackline.assembly.service import CannotListenError, Service

__all__ = ["CannotListenError", "RunningGateway", "Service", "StateDir"]


def __getattr__(name: str) -> object:
    """Load the service only when it is used."""
    if name not in ("CannotListenError", "Service"):
        raise AttributeError(f"module 'jackline.assembly' has no attribute {name!r}")
    return getattr(import_module("jackline.assembly.service"), name)
