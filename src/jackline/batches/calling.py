"""Call a Python function of the user's, of whatever kind, without holding anybody up.

Laws: (1) a blocking function runs in a thread of its own, a generator's body too; (2) what is given
bit by bit is gathered: the caller gets values, never something that has still to run.
Not here: functions as tools (functions.py), threads (threads.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from jackline.batches.threads import in_own_thread


async def called_aside(work: Callable[[], object], function: Callable[..., object]) -> object:
    """What `work`, a call of `function`, gave: awaited, or run in a thread of its own."""

    def gathered() -> object:
        given = work()
        return list(given) if inspect.isgenerator(given) else given

    if inspect.iscoroutinefunction(plain_function(function)):
        returned = work()
    else:
        name = getattr(function, "__name__", "function")
        returned = await in_own_thread(gathered, f"jackline-{name}")
    if inspect.isasyncgen(returned):
        return [each async for each in returned]
    # A plain function may also give an awaitable: a lambda around a coroutine, say.
    return await returned if inspect.isawaitable(returned) else returned


def plain_function(function: Callable[..., object]) -> Callable[..., object]:
    """The function that holds annotations and kind: of a callable object, its `__call__`."""
    plain: Callable[..., object] = getattr(function, "func", function)
    if inspect.isroutine(plain):
        return plain
    return plain.__init__ if inspect.isclass(plain) else type(plain).__call__
