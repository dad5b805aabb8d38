"""Keeps fleets of parallel AI agents working through rate limits, quota walls and outages.

Rules: (1) importing this package loads no third-party module; (2) the names below are the whole
public surface, and a test pins them.
Not here: anything that does work; names are imported from their modules when first used. What they
are, type checkers read in `__init__.pyi`: an import here, even for them only, would make cycles.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

_MODULES = {
    "Batch": "jackline.flows.authoring.calls",
    "Budget": "jackline.budgets.budget",
    "FlowError": "jackline.errors",
    "JacklineError": "jackline.errors",
    "Outcome": "jackline.agents.outcome",
    "UsageError": "jackline.errors",
    "agent": "jackline.flows.authoring.calls",
    "batch": "jackline.batches.api",
    "ctx": "jackline.flows.authoring.context",
    "flow": "jackline.flows.authoring.flow_definition",
    "parallel": "jackline.flows.authoring.calls",
    "phase": "jackline.flows.authoring.calls",
    "resume": "jackline.flows.api",
    "run": "jackline.flows.api",
    "step": "jackline.flows.authoring.calls",
}

__all__ = [
    "Batch",
    "Budget",
    "FlowError",
    "JacklineError",
    "Outcome",
    "UsageError",
    "__version__",
    "agent",
    "batch",
    "ctx",
    "flow",
    "parallel",
    "phase",
    "resume",
    "run",
    "step",
]


def __getattr__(name: str) -> object:
    """Import a public name from the module that owns it."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'jackline' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    """List the public surface, loaded or not."""
    return sorted(__all__)
