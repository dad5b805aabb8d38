"""Call a function of the user, blocking or not, without blocking anybody and without ending us.

Rules: (1) a blocking function, also a generator's body, runs in a thread of its own; one that never
returns fills no pool and does not stop the program from ending; (2) a cancelled call leaves its
thread, whose result is lost; (3) generators are collected: the caller gets values; (4) a
cancellation, and Ctrl-C on the main thread, pass; everything else that would end the program
(`sys.exit()`, a panic of a Rust library) becomes a failure of this call.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar
from weakref import WeakKeyDictionary

_LONGEST = 200
T = TypeVar("T")


class LeavingError(Exception):
    """A call raised what is meant to end the program."""


@contextmanager
def contain_exits() -> Iterator[None]:
    """Within this, nothing is raised but ordinary exceptions and what really ends the program."""
    try:
        yield
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except SystemExit as left:
        raise LeavingError(f"it tried to end the whole program ({left})") from left
    except KeyboardInterrupt as error:
        # Ctrl-C reaches the main thread alone: in another, somebody has raised it by hand.
        if threading.current_thread() is threading.main_thread():
            raise
        raise LeavingError("it raised KeyboardInterrupt") from error
    except BaseException as error:
        words = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise LeavingError(f"it raised {words[:_LONGEST]}") from error


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
            with contain_exits():
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


class SharedPlaces:
    """So many places for all batches of a loop together."""

    def __init__(self, many: int) -> None:
        self._many = many
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self._by_loop = WeakKeyDictionary()

    def here(self) -> asyncio.Semaphore:
        """The places of this loop."""
        loop = asyncio.get_running_loop()
        return self._by_loop.setdefault(loop, asyncio.Semaphore(self._many))

    async def in_thread(self, work: Callable[[], T], name: str) -> T:
        """`in_own_thread` in one place, which is free again when the thread ends, not the call."""
        loop, places = asyncio.get_running_loop(), self.here()

        def live() -> T:
            try:
                return work()
            finally:
                with suppress(RuntimeError):  # the loop is gone
                    loop.call_soon_threadsafe(places.release)

        await places.acquire()
        return await in_own_thread(live, name)


async def call_function(work: Callable[[], object], function: Callable[..., object]) -> object:
    """What `work`, a call of `function`, gave: awaited, or run in a thread of its own."""

    def gathered() -> object:
        result = work()
        return list(result) if inspect.isgenerator(result) else result

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
