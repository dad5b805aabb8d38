"""A folder with a flow, a simulated provider, and `jackline` as processes around them.

Rules: (1) whatever gateway was started is ended, and so is a process whose test has failed; (2)
nothing of the user's own state is touched.
Not here: what is promised of runs (test_runs.py and its neighbours).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from jackline.simulator.ledger import RequestOutcome
from jackline.simulator.reply_script import Say
from jackline.testing import Rule, SimulatedProvider
from tests import warm_processes

# Only a test that fails ever waits so long; some commands wait for a reset themselves.
PATIENCE = 240.0
FLOW = """
from jackline import agent, flow, parallel, phase

@flow
async def many(count: int, word: str = "part") -> str:
    async with phase("parts"):
        parts = await parallel(agent(f"{word} {i}", label=f"{word} {i}") for i in range(count))
    return f"{parts.summary}: {' '.join(sorted(parts.values))}"
"""


class _Process(warm_processes.Popen):
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            # A parked run would keep the test that has failed waiting until its reset.
            self.kill()
        super().__exit__(kind, error, trace)


@dataclass
class World:
    folder: Path
    provider: SimulatedProvider
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "JACKLINE_STATE": str(self.folder / "state"),
            "JACKLINE_PORT": "0",
            "JACKLINE_UPSTREAM": self.provider.url,
            "ANTHROPIC_API_KEY": "sk-ant-simulated",
            "JACKLINE_HOLD_QUOTA": "0s",
            **self.more,
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        return _Process(
            [sys.executable, "-m", "jackline", *words],
            env=self.environ,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def jackline(self, *words: str) -> tuple[int, str, str]:
        with self.start(*words) as process:
            try:
                out, err = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return process.returncode, out, err

    def json(self, *words: str) -> Any:
        code, out, err = self.jackline(*words, "--json")
        assert out, (code, err)
        return json.loads(out)

    def paid(self) -> Counter[str]:
        """How often each conversation was answered, by the hash of its request."""
        done = (each for each in self.provider.ledger if each.outcome is RequestOutcome.COMPLETED)
        return Counter(each.body_hash for each in done)


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        if words in line:
            return
        lines.append(line)
    raise AssertionError(f"{words!r} was never printed, but: {''.join(lines)}")


@contextmanager
def flow_world(folder: Path) -> Iterator[World]:
    """A world whose provider answers with the last word of the prompt."""
    (folder / "flow.py").write_text(FLOW)
    with SimulatedProvider() as provider:
        provider.says(Rule(lambda request: Say(request.prompt.split()[-1])))
        there = World(folder, provider)
        try:
            yield there
        finally:
            there.jackline("down")
