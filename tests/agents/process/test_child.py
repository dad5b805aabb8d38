"""A program is given its prompt, heard to its end, and never left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jackline import event_loop
from jackline.agents.process.child import (
    Child,
    ProcessMark,
    _began_by_ps,
    end,
    is_alive,
    mark_of,
    started,
)
from jackline.clock import SystemClock
from tests.agents.process.world import lines_of, until

CLOCK = SystemClock()
# A process in a session of its own that ends by itself, should a test fail.
STRAY = (
    "import subprocess, sys; subprocess.Popen([sys.executable, '-c', "
    '\'import os, time; open("stray", "w").write(str(os.getpid())); time.sleep(60)\'], '
    "start_new_session=True)"
)


@asynccontextmanager
async def python(script: str, folder: Path) -> AsyncIterator[Child]:
    command = [sys.executable, "-c", script]
    async with started(command, cwd=folder, environment=os.environ, clock=CLOCK) as child:
        yield child


def run(main: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(60):
            await main

    event_loop.run(in_time())


def test_the_prompt_goes_in_and_what_it_prints_comes_out(tmp_path: Path) -> None:
    async def main() -> None:
        script = "import sys; t = sys.stdin.read(); print(t * 3); print('E', file=sys.stderr)"
        async with python(script, tmp_path) as child:
            child.send("grüße " * 20_000)
            received = b"".join([piece async for piece in child.pieces()])
            assert received.decode().strip() == ("grüße " * 60_000).strip()
            assert child.exit_code == 0
            assert child.last_errors.strip() == "E"

    run(main())


def test_what_it_left_in_the_background_holds_nobody_up(tmp_path: Path) -> None:
    async def main() -> None:
        script = f"{STRAY}; print('done', flush=True); import os; os._exit(3)"
        async with python(script, tmp_path) as child:
            child.send("")
            assert b"".join([piece async for piece in child.pieces()]).strip() == b"done"
            assert child.exit_code == 3
            mark = child.mark
        stray = tmp_path / "stray"
        await until(lambda: lines_of(stray))
        assert is_alive(mark_of(int(lines_of(stray)[0]))), "it ended well, so its own may go on"
        await end(mark, CLOCK)

    run(main())


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="strays are found on Linux")
def test_whoever_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    stray = tmp_path / "stray"

    async def main() -> None:
        async def hear() -> None:
            async with python(f"{STRAY}; import time; time.sleep(60)", tmp_path) as child:
                marks.append(child.mark)
                child.send("")
                async for _ in child.pieces():
                    pass

        marks: list[ProcessMark] = []
        hearing = asyncio.create_task(hear())
        await until(lambda: lines_of(stray))
        marks.append(mark_of(int(lines_of(stray)[0])))
        hearing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hearing
        await until(lambda: not any(is_alive(mark) for mark in marks))

    run(main())


@pytest.mark.skipif(os.name == "nt", reason="a program there cannot refuse to end")
def test_a_program_that_does_not_want_to_end_is_made_to(tmp_path: Path) -> None:
    async def main() -> None:
        script = (
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
            "print('ready', flush=True); time.sleep(60)"
        )
        async with python(script, tmp_path) as child:
            child.send("")
            async for _ in child.pieces():
                break
            await end(child.mark, CLOCK, grace=0.2)
            assert not is_alive(child.mark)

    run(main())


def test_a_number_that_belongs_to_another_process_by_now_is_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with python("import time; time.sleep(60)", tmp_path) as child:
            for began in ("some other time", ""):
                await end(ProcessMark(child.mark.pid, began), CLOCK)
                assert is_alive(child.mark)

    run(main())


def test_a_program_that_ends_before_its_prompt_is_heard_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with python("import sys; sys.exit('BAD SETTINGS')", tmp_path) as child:
            await until(lambda: child.exit_code is not None)
            await asyncio.sleep(0)
            child.send("x" * 1_000_000)
            assert [piece async for piece in child.pieces()] == []
            assert (child.exit_code, child.last_errors.strip()) == (1, "BAD SETTINGS")

    run(main())


def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(FileNotFoundError):
            async with started([str(tmp_path / "none")], cwd=tmp_path, environment={}, clock=CLOCK):
                raise AssertionError("it cannot have started")

    run(main())


@pytest.mark.skipif(os.name == "nt", reason="there is no ps")
def test_where_there_is_no_proc_a_process_is_known_again_by_ps(tmp_path: Path) -> None:
    async def main() -> None:
        async with python("import time; time.sleep(60)", tmp_path) as child:
            began = _began_by_ps(child.mark.pid)
            assert began
            assert _began_by_ps(child.mark.pid) == began
            await end(child.mark, CLOCK)
        assert _began_by_ps(child.mark.pid) is None

    run(main())
