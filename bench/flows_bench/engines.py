"""The engines that are measured: plain asyncio, Jackline, DBOS, LangGraph.

Rules: (1) each peer comes from its public registry, pinned, into the cache, once; (2) what cannot
be installed is left out with a sentence that says why, and never stops the others.
Not here: what their programs do (with_*.py), running them (runs.py).
"""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "bench"
INSTALL_SECONDS = 1_200
HERE = Path(sys.executable)


class MissingError(Exception):
    """It cannot be measured here; the text says why."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One way to write the fan-out."""

    name: str
    program: tuple[str, ...]
    packages: tuple[str, ...] = ()
    """What a peer needs; ours runs in the Python that runs the bench."""

    @property
    def python(self) -> Path:
        """The Python that it runs in."""
        if not self.packages:
            return HERE
        folder = "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
        return CACHE / self.packages[0].partition("==")[0] / folder

    def installed(self) -> bool:
        """Whether it is there already."""
        if not self.python.exists():
            return False
        asked = [str(self.python), "-c", f"import {self._module}"]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    def install(self) -> None:
        """Fetch it; a `MissingError` says why that did not work."""
        if not self.packages:
            raise MissingError("this Python has no jackline; run `make setup` first")
        venv.create(self.python.parents[1], with_pip=True, clear=True)
        command = [str(self.python), "-m", "pip", "install", "--quiet", *self.packages]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise MissingError(f"pip did not end in {INSTALL_SECONDS} s") from None
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise MissingError(f"pip failed: {lines[-1] if lines else done.returncode}")

    @property
    def _module(self) -> str:
        return self.packages[0].partition("==")[0].replace("-", "_") if self.packages else "asyncio"


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("plain asyncio", ("flows_bench.with_asyncio",)),
        Engine("jackline, steps", ("flows_bench.with_jackline", "steps")),
        Engine("jackline, agents", ("flows_bench.with_jackline", "agents")),
        Engine("DBOS on SQLite", ("flows_bench.with_dbos",), ("dbos==3.3.0",)),
        Engine(
            "LangGraph, SQLite checkpointer",
            ("flows_bench.with_langgraph",),
            ("langgraph==1.2.20", "langgraph-checkpoint-sqlite==3.1.2"),
        ),
    )
}
