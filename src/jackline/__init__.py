"""Keeps fleets of parallel AI agents working through rate limits, quota walls and outages.

Laws: (1) importing this package loads no third-party module; (2) the names below are the whole
public surface, and a test pins them.
Not here: anything that does work; names are fetched from their rooms when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jackline.errors import (
        FlowError,
        GaveUpError,
        InternalError,
        JacklineError,
        RefusedError,
        UpstreamError,
        UsageError,
    )

__version__ = "0.1.0"

_ROOMS = {
    "FlowError": "jackline.errors",
    "GaveUpError": "jackline.errors",
    "InternalError": "jackline.errors",
    "JacklineError": "jackline.errors",
    "RefusedError": "jackline.errors",
    "UpstreamError": "jackline.errors",
    "UsageError": "jackline.errors",
}

__all__ = [
    "FlowError",
    "GaveUpError",
    "InternalError",
    "JacklineError",
    "RefusedError",
    "UpstreamError",
    "UsageError",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Give a public name from the room that owns it."""
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module 'jackline' has no attribute {name!r}")
    return getattr(import_module(room), name)


def __dir__() -> list[str]:
    """List the public surface, loaded or not."""
    return sorted(__all__)
