"""The function `jackline.batch` for any Python program.

    report = await jackline.batch(["make lint", "make test", (check, ("a",)), fetch_all()])
    print(report.summary)

Rules: (1) an item is a command line, a `BatchCall`, a function with its arguments, or an awaitable;
a mapping names each; (2) nothing raises because one item failed: the report shows it; (3) an
awaitable that never ran is closed.
Not here: running (batch.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

from jackline.batches.batch import CALLS_AT_ONCE, run_batch
from jackline.batches.function_tool import as_output
from jackline.batches.shell import ShellTool
from jackline.batches.threads import call_function
from jackline.batches.tool import (
    BatchCall,
    BatchReport,
    CallLabel,
    JsonObject,
    ToolContext,
    ToolOutput,
)
from jackline.clock import Clock
from jackline.errors import BadArgumentError

Function: TypeAlias = Callable[..., object]
Item: TypeAlias = (
    str
    | BatchCall
    | Function
    | tuple[Function, Sequence[Any] | Mapping[str, Any]]
    | Awaitable[object]
)


async def batch(
    items: Iterable[Item] | Mapping[str, Item],
    *,
    needs: Mapping[str, Iterable[str]] | None = None,
    cwd: Path | str | None = None,
    limit: int = CALLS_AT_ONCE,
    timeout: float | None = None,  # noqa: ASYNC109 -- of each call, not of the whole
    keep: Iterable[str] = (),
    clock: Clock | None = None,
) -> BatchReport:
    """What came of every item, in their order; `report["name"]` or `report["1"]` gives one.

    `needs` says by name which items must have succeeded before another may run; items without a
    name are called "1", "2", …  Commands do not see variables that sound secret, but those that
    `keep` names.
    """
    named = items.items() if isinstance(items, Mapping) else _numbered(items)
    # A program's own commands may take as long as they like, unless it says otherwise.
    shell = ShellTool(keep=keep, seconds=inf, longest=inf)
    calls = [_call(str(name), item, shell) for name, item in named]
    known = {call.id for call in calls}
    wanted = {name: tuple(others) for name, others in (needs or {}).items()}
    if strangers := sorted(set(wanted) - known):
        _close_unrun(calls)
        raise BadArgumentError(
            f"`needs` speaks of {', '.join(strangers)}, which is none of the items",
            hint="name items by the keys of the mapping, or by '1', '2', … in their order",
        )
    calls = [
        replace(
            call,
            needs=call.needs + wanted.get(call.id, ()),
            timeout=timeout if call.timeout is None else call.timeout,
        )
        for call in calls
    ]
    try:
        context = ToolContext(Path.cwd() if cwd is None else Path(cwd))
        report = await run_batch(calls, context=context, limit=limit, clock=clock)
    finally:
        _close_unrun(calls)
    if not isinstance(items, Mapping):
        return report
    # Whoever gave names wants to read them in the summary.
    return BatchReport(tuple(replace(result, name=result.id) for result in report))


def _numbered(items: Iterable[Item]) -> Iterable[tuple[str, Item]]:
    for number, item in enumerate(items, 1):
        yield (item.id if isinstance(item, BatchCall) else str(number)), item


def _call(name: str, item: Item, shell: ShellTool) -> BatchCall:
    if isinstance(item, BatchCall):
        return replace(item, id=name)
    if isinstance(item, str):
        return BatchCall(name, shell, {"command": item})
    if inspect.isawaitable(item):
        return BatchCall(name, _Awaited(item), {})
    if isinstance(item, tuple) and callable(item[0]):
        return BatchCall(name, _Called(item[0], item[1]), {})
    if callable(item):
        return BatchCall(name, _Called(item, ()), {})
    raise BadArgumentError(
        f"item {name} of the batch is a {type(item).__name__}, which cannot be run",
        hint="give a command line, a function, (function, arguments), an awaitable or a BatchCall",
    )


def _close_unrun(calls: Iterable[BatchCall]) -> None:
    for call in calls:
        if isinstance(call.tool, _Awaited):
            call.tool.close()


class _OneCall:
    """A tool for a single call of a Python program, which needs no schema."""

    description = "Runs a call of the program itself."

    def __init__(self, name: str) -> None:
        self.name = name
        self.input_schema: JsonObject = {"type": "object"}

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        """Nobody has promised it."""
        return False

    def words(self, arguments: JsonObject) -> CallLabel:  # noqa: ARG002 -- they are bound already
        """The function's name."""
        return CallLabel(self.name, self.name)


class _Called(_OneCall):
    """A function with its arguments."""

    def __init__(self, function: Function, arguments: Sequence[Any] | Mapping[str, Any]) -> None:
        super().__init__(str(getattr(function, "__name__", type(function).__name__)))
        self._function = function
        self._arguments = arguments

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        """What the function returned."""
        return as_output(await call_function(self._work, self._function))

    def _work(self) -> object:
        if isinstance(self._arguments, Mapping):
            return self._function(**self._arguments)
        return self._function(*self._arguments)


class _Awaited(_OneCall):
    """An awaitable, which can be awaited once."""

    def __init__(self, awaitable: Awaitable[object]) -> None:
        super().__init__(str(getattr(awaitable, "__name__", type(awaitable).__name__)))
        self._awaitable = awaitable

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        """What it gave."""
        return as_output(await self._awaitable)

    def close(self) -> None:
        """Let go of what never ran."""
        waiting = self._awaitable
        # One that began and would not end is left to its task; closing it would break both.
        if (
            inspect.iscoroutine(waiting)
            and inspect.getcoroutinestate(waiting) == inspect.CORO_CREATED
        ):
            waiting.close()
