"""One fetch for all who wait, in a thread, and never for longer than allowed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from jackline.event_loop import run
from jackline.providers.clouds import SharedFetch
from tests.upstream.loopback import until


def test_many_wait_for_one_fetch_and_the_next_one_is_new() -> None:
    async def main() -> None:
        calls: list[str] = []
        go = threading.Event()

        def fetch() -> None:
            calls.append(threading.current_thread().name)
            assert go.wait(120)

        fetching = SharedFetch(fetch)
        waiting = [asyncio.ensure_future(fetching.once()) for _ in range(5)]
        await until(lambda: bool(calls))
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        assert not any(task.done() for task in waiting[1:])
        go.set()
        await asyncio.gather(*waiting[1:])
        assert len(calls) == 1
        assert calls[0] != threading.main_thread().name
        await fetching.once()
        assert len(calls) == 2

    run(main())


def test_an_error_is_raised_to_all_who_wait() -> None:
    def fetch() -> None:
        raise ConnectionError("no")

    async def main() -> None:
        fetching = SharedFetch(fetch)
        reported = await asyncio.gather(fetching.once(), fetching.once(), return_exceptions=True)
        assert [type(each) for each in reported] == [ConnectionError] * 2

    run(main())


def test_nobody_waits_longer_than_allowed() -> None:
    go = threading.Event()

    def fetch() -> None:
        go.wait(120)

    async def main() -> None:
        with pytest.raises(OSError):  # noqa: PT011 -- that it is one is the rule
            await SharedFetch(fetch, seconds=0.01).once()
        go.set()

    run(main())
