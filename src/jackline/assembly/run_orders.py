"""Carry out what the page orders of runs: go on, run again what failed, cancel, give back.

Laws: (1) each order is a process of its own, since it may run the user's code: the same command
that a person would type; (2) an order that ends soon tells how it ended, one that goes on tells
where to look; (3) nothing of an order is read as an option of that command; (4) the log of orders
holds what was ordered and how it ended: what a run said or answered stays with the run.
Not here: who may give orders (dashboard/face.py), what they mean (cli/, flows/).
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, cast

from jackline.clock import SystemClock
from jackline.errors import BadArgumentError, UsageError
from jackline.flows.engine import Engine
from jackline.flows.trusting import must_be_trusted
from jackline.private_files import open_private
from jackline.programs import own_command

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TELLS_SOON = {"resume": 3.0, "retry": 3.0, "cancel": 30.0, "release": 30.0}
_LOOK_EVERY = 0.1
_MOST_WORDS = 2000
# On Windows alone; elsewhere a session of its own does the same.
_DETACHED = sum(
    getattr(subprocess, name, 0) for name in ("DETACHED_PROCESS", "CREATE_NEW_PROCESS_GROUP")
)


class RunOrders:
    """Orders to the runs that are kept in one state folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def carry_out(
        self, verb: str, asked: Mapping[str, object], engine: Engine | None
    ) -> dict[str, object]:
        """What came of it, in words."""
        arguments, cwd = ["resources", "--retry"], ""
        undo: dict[str, object] = {}
        if verb != "release":
            run_id = asked.get("run")
            if not isinstance(run_id, str) or not _ID.fullmatch(run_id):
                raise BadArgumentError("an order names its run", next="`jackline ls` lists them")
            run = None if engine is None else await engine.run(run_id)
            if run is None:
                raise BadArgumentError(f"there is no run {run_id}", next="`jackline ls` lists them")
            if verb != "cancel":
                must_be_trusted(run)
            arguments, cwd = [verb, run.run_id], run.cwd if run.trusted else ""
            only = asked.get("only")
            if isinstance(only, str) and only:
                arguments.append(f"--only={only}")
                if verb == "cancel":
                    undo = {"undo": {"order": "resume", "run": run.run_id, "only": only}}
        process, said = await asyncio.to_thread(self._start, arguments, cwd)
        code = await _ended(process, _TELLS_SOON[verb])
        words = await asyncio.to_thread(_written, said)
        if code is None:
            says = f"jackline {' '.join(arguments)} goes on, process {process.pid}."
            return {"says": says} | undo
        # A run that failed has been carried on as was ordered.
        if code not in (0, 1, 3, 75):
            raise UsageError(f"jackline {' '.join(arguments)} failed: {words}")
        return {"says": words or f"jackline {' '.join(arguments)} is done."} | undo

    def _start(self, arguments: list[str], cwd: str) -> tuple[subprocess.Popen[bytes], BinaryIO]:
        said = cast("BinaryIO", TemporaryFile())  # noqa: SIM115 -- closed once it was read
        process = subprocess.Popen(  # noqa: S603 -- ourselves
            own_command(*arguments, "--state", str(self._folder)),
            cwd=cwd if cwd and Path(cwd).is_dir() else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            creationflags=_DETACHED,
            start_new_session=os.name != "nt",
        )
        order = f"jackline {' '.join(arguments)}, process {process.pid}"
        self._note(f"{order}: started")

        def see_it_end() -> None:
            # Whoever orders does not wait for hours, but somebody must see it end: the system
            # keeps what is left of a process until then.
            self._note(f"{order}: exit {process.wait()}")

        threading.Thread(target=see_it_end, name=f"order {process.pid}", daemon=True).start()
        return process, said

    def _note(self, words: str) -> None:
        """Write a line of our own to the log of orders."""
        line = f"{SystemClock().now():%Y-%m-%d %H:%M:%S} {words}\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with suppress(OSError):  # an order is carried out though nobody can read of it later
            descriptor = open_private(self._folder / "ordered-runs.log", flags)
            with os.fdopen(descriptor, "ab") as file:
                file.write(line.encode(errors="replace"))


async def _ended(process: subprocess.Popen[bytes], within: float) -> int | None:
    for _ in range(round(within / _LOOK_EVERY)):
        if process.poll() is not None:
            break
        await asyncio.sleep(_LOOK_EVERY)
    return process.returncode


def _written(said: BinaryIO) -> str:
    with said:
        said.seek(0)
        return said.read(_MOST_WORDS).decode(errors="replace").strip()
