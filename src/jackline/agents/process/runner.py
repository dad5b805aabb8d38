"""Be a runner for an agent program: all that the runners of such programs share.

Laws: those of carrying.py.
Not here: the programs (claude_code/, codex/), the loop itself (carrying.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from jackline.agents.outcome import Outcome
from jackline.agents.ports import Leave, Notebook
from jackline.agents.process.carrying import carry
from jackline.agents.process.program import Ended, News, Program
from jackline.agents.process.verdict import Verdict
from jackline.agents.task import AgentTask
from jackline.clock import Clock, SystemClock
from jackline.programs import find_program


class ProgramRunner:
    """Carries agents with a program; one serves any number of agents at once."""

    def __init__(self, program: Program, clock: Clock | None) -> None:
        self.name = program.name
        self._program = program
        self._clock = clock or SystemClock()

    async def carry(self, task: AgentTask, notebook: Notebook, leave: Leave) -> Outcome[object]:
        """How the agent ended. Goes on where the notebook and the program's own records end."""
        return await carry(self._program, task, notebook, leave, self._clock)


def found_program(
    program: str, environment: Mapping[str, str] | None
) -> tuple[str, Mapping[str, str]]:
    """The program's path, as far as it is found, and the environment it is given (ours if None)."""
    environ = dict(os.environ if environment is None else environment)
    return find_program(program, environ) or program, environ


class Printed(Protocol):
    """Takes in what a program prints."""

    def feed(self, data: bytes) -> Sequence[News]:
        """What the next piece tells."""
        ...


P = TypeVar("P", bound=Printed)
P_contra = TypeVar("P_contra", bound=Printed, contravariant=True)


class Judge(Protocol[P_contra]):
    """Judges what a program printed."""

    def __call__(self, printed: P_contra, ended: Ended, *, schema: bool, now: datetime) -> Verdict:
        """What its process came to."""
        ...


class PrintedEar(Generic[P]):
    """The part of an `Ear` that every program has: what it prints is taken in, then judged."""

    def __init__(self, printed: P, judge: Judge[P], *, schema: bool) -> None:
        self._printed = printed
        self._judge = judge
        self._schema = schema

    def feed(self, data: bytes) -> Sequence[News]:
        """What the next bytes tell."""
        return self._printed.feed(data)

    def judge(self, ended: Ended, *, now: datetime) -> Verdict:
        """What the process came to."""
        return self._judge(self._printed, ended, schema=self._schema, now=now)
