"""Make a flow of an async function: something that can be run, resumed, and called by other flows.

Laws: (1) called inside a run it is a child: same run, same keys, its budget part of the parent's;
(2) called outside a run it says how to run it; (3) its parameters can all be kept by name.
Not here: running it (running.py), finding it in a file (loading.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import update_wrapper
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

from jackline.budgets.accounts import Account
from jackline.budgets.budget import Budget
from jackline.errors import BadArgumentError
from jackline.flows.agent_spec import HookGiven, hooks
from jackline.flows.arguments import check_signature
from jackline.flows.scope import CURRENT, scope_for
from jackline.flows.values import Shape, returned_shape, returned_type

P = ParamSpec("P")
T = TypeVar("T")


class Flow(Generic[P, T]):
    """An async function whose agents and steps are durable."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, T]],
        *,
        name: str | None = None,
        budget: Budget | None = None,
        on_end: HookGiven | Iterable[HookGiven] | None = None,
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            raise BadArgumentError(
                f"@flow needs an async function, and {function.__name__} is none.",
                next="Write `async def`.",
            )
        check_signature(function)
        self.function = function
        self.name = name or function.__name__
        self.budget = budget
        self._on_end = on_end
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """The flow as a child of the flow that calls it."""
        scope_for(f"The flow {self.name}")
        return self._as_child(args, kwargs)

    async def _as_child(self, args: Any, kwargs: Any) -> T:
        scope = scope_for(f"The flow {self.name}")
        scope.run.heed_window(self.budget)
        budgets = () if self.budget is None else (self.budget,)
        account = Account(f"The flow {self.name}", budgets, scope.account)
        path = f"{scope.phase}/{self.name}" if scope.phase else self.name
        token = CURRENT.set(replace(scope, account=account, phase=path))
        try:
            return await self.function(*args, **kwargs)
        finally:
            CURRENT.reset(token)

    @property
    def on_end(self) -> tuple[str, ...]:
        """Its hooks, in words that the next process understands."""
        return hooks(self._on_end, self.function.__module__)

    @property
    def source(self) -> str:
        """The file it can be loaded from again; empty when there is none."""
        path = Path(self.function.__code__.co_filename)
        return str(path.resolve()) if path.suffix == ".py" and path.is_file() else ""

    @property
    def shape(self) -> Shape:
        """What its result looks like."""
        return returned_shape(self.function)

    @property
    def promises(self) -> object:
        """Its return annotation; None when there is none."""
        return returned_type(self.function)

    def __repr__(self) -> str:
        return f"<Flow {self.name}>"


@overload
def flow(function: Callable[P, Coroutine[Any, Any, T]], /) -> Flow[P, T]: ...


@overload
def flow(
    *,
    name: str | None = None,
    budget: Budget | None = None,
    on_end: HookGiven | Iterable[HookGiven] | None = None,
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Flow[P, T]]: ...


def flow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    budget: Budget | None = None,
    on_end: HookGiven | Iterable[HookGiven] | None = None,
) -> Any:
    """Make a flow of an async function: `@flow`, or `@flow(budget=Budget(dollars=5))`.

    `on_end` runs at the run's ending, with its outcome.
    A hook runs at least once per ending, each time with the same idempotency key.
    """
    if function is not None:
        return Flow(function, name=name, budget=budget, on_end=on_end)
    return lambda given: Flow(given, name=name, budget=budget, on_end=on_end)
