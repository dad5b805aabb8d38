"""The function `jackline.batch` for any Python program.

    report = await jackline.batch(["make lint", "make test", (check, ("a",)), fetch_all()])
    print(report.summary)

Rules: (1) an item is a command line, a `BatchCall`, a function with its arguments, or an awaitable;
a mapping names each; (2) nothing raises because one item failed: the report shows it; (3) an
awaitable that never ran is closed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
    named: Iterable[tuple[str, Item]]
    if isinstance(items, Mapping):
        named = items.items()
    else:
        named = (
            (item.id if isinstance(item, BatchCall) else str(number), item)
            for number, item in enumerate(items, 1)
        )
    # A program's own commands may take as long as they like, unless it says otherwise.
    shell = ShellTool(keep=keep, seconds=inf, longest=inf)
    calls = [_call(str(name), item, shell) for name, item in named]
    known = {call.id for call in calls}
    wanted = {name: tuple(others) for name, others in (needs or {}).items()}
    try:
        if strangers := sorted(set(wanted) - known):
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
        context = ToolContext(Path.cwd() if cwd is None else Path(cwd))
        report = await run_batch(calls, context=context, limit=limit, clock=clock)
    finally:
        for call in calls:
            if isinstance(call.tool, _ProgramCall):
                call.tool.close()
    if not isinstance(items, Mapping):
        return report
    # Whoever gave names wants to read them in the summary.
    return BatchReport(tuple(replace(result, name=result.id) for result in report))


def _call(name: str, item: Item, shell: ShellTool) -> BatchCall:
    if isinstance(item, BatchCall):
        return replace(item, id=name)
    if isinstance(item, str):
        return BatchCall(name, shell, {"command": item})
    if inspect.isawaitable(item):
        return BatchCall(name, _ProgramCall(item, None), {})
    if isinstance(item, tuple) and callable(item[0]):
        return BatchCall(name, _ProgramCall(item[0], item[1]), {})
    if callable(item):
        return BatchCall(name, _ProgramCall(item, ()), {})
    raise BadArgumentError(
        f"item {name} of the batch is a {type(item).__name__}, which cannot be run",
        hint="give a command line, a function, (function, arguments), an awaitable or a BatchCall",
    )


class _ProgramCall:
    """A tool for a single call of a Python program, which needs no schema."""

    description = "Runs a call of the program itself."

    def __init__(self, item: Any, arguments: Sequence[Any] | Mapping[str, Any] | None) -> None:
        """`item` is a function with these arguments; without any, an awaitable."""
        self.name = str(getattr(item, "__name__", type(item).__name__))
        self.input_schema: JsonObject = {"type": "object"}
        self._item = item
        self._arguments = arguments

    def read_only(self, arguments: JsonObject) -> bool:  # noqa: ARG002 -- for any arguments
        return False

    def words(self, arguments: JsonObject) -> CallLabel:  # noqa: ARG002 -- they are bound already
        return CallLabel(self.name, self.name)

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002
        if self._arguments is None:
            return as_output(await self._item)
        if isinstance(self._arguments, Mapping):
            work = partial(self._item, **self._arguments)
        else:
            work = partial(self._item, *self._arguments)
        return as_output(await call_function(work, self._item))

    def close(self) -> None:
        """Let go of an awaitable that never ran."""
        # One that began and would not end is left to its task; closing it would break both.
        if (
            self._arguments is None
            and inspect.iscoroutine(self._item)
            and inspect.getcoroutinestate(self._item) == inspect.CORO_CREATED
        ):
            self._item.close()
