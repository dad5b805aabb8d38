"""Run one engine's program: to its end, or killed in the middle and taken up again.

Rules: (1) each run has a folder of its own; (2) a process is killed with SIGKILL, by its handle;
(3) what does not end in time is told as such, and not waited for.
Not here: what is done with the figures (table.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from flows_bench.engines import Engine, MissingError
from flows_bench.work import HOLD, REACHED, WORKED, Order

PATIENCE = 600.0
_LOOK_EVERY = 0.005


@dataclass(frozen=True, slots=True)
class Took:
    """What a program took from the moment its engine was asked; seconds."""

    calls: int
    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Killed:
    """What a kill in the middle cost."""

    calls: int
    done_before: int
    again: int
    """Calls whose work was done, and was done again."""


def cost(engine: Engine, order: Order) -> Took:
    """The whole fan-out, undisturbed."""
    with _folder(order) as own:
        return _through(engine, own)


def replay(engine: Engine, order: Order) -> Took:
    """Kill the process when all calls are finished but the last, and take it up again."""
    with _folder(order) as own:
        (own.folder / HOLD).touch()
        _killed_when(engine, own, (own.folder / REACHED).exists)
        (own.folder / HOLD).unlink()
        before = _worked(own)
        took = _through(engine, own)
        if engine.name != "plain asyncio" and _worked(own) != before:
            raise MissingError(f"{_worked(own) - before} finished calls ran again")
        return took


def kill_in_the_middle(engine: Engine, order: Order) -> Killed:
    """Kill the process when half of the work is done, and take it up again."""
    with _folder(order) as own:
        half = order.count // 2
        _killed_when(engine, own, lambda: _worked(own) >= half)
        before = _worked(own)
        _through(engine, own)
        return Killed(order.count, before, _worked(own) - order.count)


@contextmanager
def _folder(order: Order) -> Iterator[Order]:
    with tempfile.TemporaryDirectory(prefix="flows-bench-", ignore_cleanup_errors=True) as folder:
        yield replace(order, folder=Path(folder))


def _command(engine: Engine, order: Order) -> list[str]:
    module, *words = engine.program
    return [str(engine.python), "-m", module, *words, *order.words()]


def _environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}


def _through(engine: Engine, order: Order) -> Took:
    try:
        done = subprocess.run(
            _command(engine, order),
            env=_environ(),
            cwd=order.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MissingError(f"it did not end in {PATIENCE:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise MissingError(f"it failed: {lines[-1][:200] if lines else done.returncode}")
    return Took(**json.loads(done.stdout.strip().splitlines()[-1]))


def _killed_when(engine: Engine, order: Order, is_time: Callable[[], bool]) -> None:
    quiet = subprocess.DEVNULL
    until = time.monotonic() + PATIENCE
    with subprocess.Popen(
        _command(engine, order), env=_environ(), cwd=order.folder, stdout=quiet, stderr=quiet
    ) as process:
        try:
            while not is_time():
                if process.poll() is not None:
                    raise MissingError("it ended before it could be killed")
                if time.monotonic() > until:
                    raise MissingError(f"it did not get there in {PATIENCE:g} s")
                time.sleep(_LOOK_EVERY)
        finally:
            process.kill()


def _worked(order: Order) -> int:
    path = order.folder / WORKED
    return path.read_bytes().count(b"\n") if path.exists() else 0
