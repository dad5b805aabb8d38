"""Know where in which run a piece of code stands: run, phase, account, and the agent it works for.

Laws: (1) tasks and threads that the code starts inherit it; (2) a call remembers the scope in which
it was made, wherever it is awaited; (3) outside a run there is none, and asking is a UsageError.
Not here: the run itself (execution.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from jackline.budgets.accounts import Account
from jackline.errors import UsageError
from jackline.flows.execution import Execution


@dataclass(frozen=True, slots=True)
class Scope:
    """Where code stands."""

    run: Execution
    account: Account
    phase: str = ""
    task_id: str = ""
    """The agent whose tool or hook this is; empty in the flow itself."""


CURRENT: ContextVar[Scope | None] = ContextVar("jackline_flow_scope", default=None)


@contextmanager
def inside(scope: Scope) -> Iterator[None]:
    """Code in this block stands there, and so does what it starts."""
    token = CURRENT.set(scope)
    try:
        yield
    finally:
        CURRENT.reset(token)


def scope_for(what: str) -> Scope:
    """The current scope; UsageError naming `what` when no run is being carried here."""
    scope = CURRENT.get()
    if scope is None:
        raise UsageError(
            f"{what} works only inside a flow that is being run.",
            next="Mark the function with @flow; start it with jackline.run(…) or `jackline run`.",
        )
    return scope
