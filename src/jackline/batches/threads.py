"""Run a blocking function in a thread of its own.

Laws: (1) a function that never returns holds up nobody: no pool is filled, and the program can
end, but not by what the function raises; (2) what it tells is told on the loop's thread; (3) a
cancelled call lets go of its thread, whose result is then lost.
Not here: functions as tools (functions.py).
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from jackline.batches.leaving import failing_at_most

T = TypeVar("T")


async def in_own_thread(work: Callable[[], T], name: str) -> T:
    """What `work` returned or raised; `name` is the thread's, for whoever debugs it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Callable[[], None]) -> None:
        # The loop may be gone when an abandoned thread ends at last.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if done.done() else result())

    def live() -> None:
        try:
            with failing_at_most():
                value = context.run(work)
        except StopIteration:
            settle(lambda: done.set_exception(RuntimeError("it raised StopIteration")))
        except BaseException as error:  # noqa: BLE001 -- passed on to the caller, not handled
            raised = error
            settle(lambda: done.set_exception(raised))
        else:
            settle(lambda: done.set_result(value))

    # Not asyncio.to_thread: its pool is small, shared, and waited for at the end of the program.
    threading.Thread(target=live, name=name, daemon=True).start()
    return await done


def told_on_loop(heard: Callable[[str], None]) -> Callable[[str], None]:
    """A listener that may be told from any thread."""
    loop = asyncio.get_running_loop()

    def tell(text: str) -> None:
        with suppress(RuntimeError):  # the loop is gone; nobody listens any more
            loop.call_soon_threadsafe(heard, text)

    return tell
