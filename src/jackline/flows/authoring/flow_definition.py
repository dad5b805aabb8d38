"""Make a flow of an async function, and find it again in its Python file.

Rules: (1) called inside a run a flow is a child: same run, same keys, its budget part of the
parent's; outside a run it says how to run it; (2) all its parameters can be saved by name; (3) a
flow's file is run anew at each loading, under a name of its own, never as `__main__`, and modules
beside it can be imported; (4) a fault is reported with the file's name, the line, and what to do.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import update_wrapper
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from jackline.budgets.budget import Budget
from jackline.errors import BadArgumentError, UnreadableError, UsageError
from jackline.flows.agent_spec import HookLike, hooks
from jackline.flows.execution.execution import CURRENT, scope_for
from jackline.flows.flow_sources import SOURCES, CheckedLoader, check_user_code
from jackline.flows.values import Shape, returned_type
from jackline.user_errors import error_texts

P = ParamSpec("P")
T = TypeVar("T")
RESERVED = frozenset({"settings", "host", "listener"})
"""Names that `jackline.run(…)` needs itself."""


class Flow(Generic[P, T]):
    """An async function whose agents and steps are durable."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, T]],
        *,
        name: str | None = None,
        budget: Budget | None = None,
        on_end: HookLike | Iterable[HookLike] | None = None,
    ) -> None:
        if not inspect.iscoroutinefunction(function):
            raise BadArgumentError(
                f"@flow needs an async function, and {function.__name__} is none.",
                hint="Write `async def`.",
            )
        for parameter, kind in inspect.signature(function).parameters.items():
            if kind.kind in (kind.VAR_POSITIONAL, kind.VAR_KEYWORD):
                raise BadArgumentError(
                    f"The flow {function.__name__} takes *{parameter}, which cannot be saved by"
                    " name.",
                    hint="Take a list or a dict as one parameter.",
                )
            if kind.kind is kind.POSITIONAL_ONLY or parameter in RESERVED:
                raise BadArgumentError(
                    f"The flow {function.__name__} cannot have a parameter {parameter} like this.",
                    hint="Choose another name, and let it be passed by name.",
                )
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
        name = f"The flow {self.name}"
        account = scope.run.accounting.open_account(name, self.budget, scope.account)
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
        return Shape(returned_type(self.function))

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
    on_end: HookLike | Iterable[HookLike] | None = None,
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Flow[P, T]]: ...


def flow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    budget: Budget | None = None,
    on_end: HookLike | Iterable[HookLike] | None = None,
) -> Any:
    """Make a flow of an async function: `@flow`, or `@flow(budget=Budget(dollars=5))`.

    `on_end` runs at the run's ending, with its outcome.
    A hook runs at least once per ending, each time with the same idempotency key.
    """
    if function is not None:
        return Flow(function, name=name, budget=budget, on_end=on_end)
    return lambda decorated: Flow(decorated, name=name, budget=budget, on_end=on_end)


_count = itertools.count()


def load_flow(reference: str) -> Flow[..., Any]:
    """The flow that `FLOW.py` or `FLOW.py:name` means."""
    file, name = split_reference(reference)
    module = load_module(file)
    # Those that the module defines itself, by the names they stand under.
    flows = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, Flow) and value.function.__module__ == module.__name__
    }
    if name:
        found = flows.get(name) or next((f for f in flows.values() if f.name == name), None)
        if found is None:
            raise BadArgumentError(
                f"There is no flow {name} in {file.name}.",
                hint=f"It has these: {', '.join(flows)}." if flows else _MARK_ONE,
            )
        return found
    if len(flows) == 1:
        return next(iter(flows.values()))
    if not flows:
        raise BadArgumentError(f"There is no flow in {file.name}.", hint=_MARK_ONE)
    raise BadArgumentError(
        f"{file.name} has several flows: {', '.join(flows)}.",
        hint=f"Say which: {file.name}:{next(iter(flows))}.",
    )


_MARK_ONE = "Mark an async function at the top level of the file with @flow."


def split_reference(reference: str) -> tuple[Path, str]:
    """The file and the flow's name (empty without one)."""
    file, colon, name = reference.rpartition(":")
    # A lone drive letter is a Windows path, not a file and a name.
    if colon and len(file) > 1 and name.isidentifier():
        return Path(file), name
    return Path(reference), ""


def load_module(file: Path) -> ModuleType:
    """The module, run anew; UserCodeError in the service's process."""
    check_user_code(file.name)
    path = file.resolve()
    if not path.is_file():
        raise UnreadableError(
            f"There is no file {file}.", hint="Give the path of a Python file: FLOW.py[:name]."
        )
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    mark = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"jackline_flow_{path.stem}_{mark}_{next(_count)}"
    SOURCES.watch()
    loader = CheckedLoader(name, str(path), is_flow=True)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise UnreadableError(f"{file.name} is no Python file.", hint="Give a file ending in .py.")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pydantic look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except UsageError:
        sys.modules.pop(name, None)
        raise
    except Exception as error:
        sys.modules.pop(name, None)
        says, private = error_texts(error)
        if isinstance(error, SyntaxError) and error.filename == str(path):
            says = f"line {error.lineno}: {error.msg}"
        elif isinstance(error, ModuleNotFoundError) and (error.name or "").isidentifier():
            says = f"there is no module {error.name}"
        elif isinstance(error, OSError) and error.filename == str(path):
            says = str(error.strerror)
        raise UnreadableError(
            f"{file.name} cannot be loaded: {says}.",
            hint="Make `python -c 'import …'` of it work first.",
            private=private,
        ) from error
    return module
