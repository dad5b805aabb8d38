"""What an agent program has to offer so that it can be driven.

Laws: (1) hearing and judging are pure: bytes in, news out, a verdict at the end; (2) `look_back`
only reads.
Not here: driving it (carrying.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeAlias

from jackline.agents.outcome import Usage
from jackline.agents.process.going_on import ToolCall
from jackline.agents.process.verdict import Verdict
from jackline.agents.task import AgentTask


@dataclass(frozen=True, slots=True)
class Began:
    """The program has opened its session."""

    session_id: str
    model: str | None


@dataclass(frozen=True, slots=True)
class Answered:
    """One piece of a model's answer; pieces of the same answer bear the same id."""

    id: str | None
    model: str
    usage: Usage
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    """The tools whose results the model will be asked about next."""
    request_id: str | None = None
    agent: str | None = None
    """The call that started the sub-agent who heard it; None for the agent itself."""


@dataclass(frozen=True, slots=True)
class Resulted:
    """A tool that the agent itself had called has ended; what it gave."""

    call_id: str
    text: str


News: TypeAlias = Began | Answered | Resulted


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended; `errors` are the last words of its error output."""

    exit_code: int | None
    errors: str = ""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a whole process cost, as far as it told; None where it told nothing."""

    usage: tuple[tuple[str, Usage], ...] | None = None
    """By model."""
    cost: float | None = None
    turns: int | None = None
    """Of the whole session, where the program keeps count."""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What the program itself has written down of a session."""

    session_id: str | None = None
    """The session that can be gone on with; None when there is none."""
    transcript: str | None = None
    holds_task: bool = False
    """Whether the conversation holds the prompt of this task."""
    lost: tuple[ToolCall, ...] = ()
    """Calls that it holds without their results."""
    settled: frozenset[str] = frozenset()
    """Calls whose results it holds."""
    prompts: tuple[str, ...] = ()
    """What the agent was told in it."""


class Ear(Protocol):
    """Hears one process."""

    @property
    def counted(self) -> Usage | None:
        """What the session had cost before, where the program keeps count of its own."""
        ...

    def feed(self, data: bytes) -> Sequence[News]:
        """What the next piece tells, however it was cut."""
        ...

    def judge(self, ended: Ended, *, now: datetime) -> Verdict:
        """What the process came to."""
        ...

    def spent(self) -> Spent:
        """What the process cost."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """One start of the program: in which session, or None for a new one, and what is left."""

    session_id: str | None
    model: str | None
    turns_left: int | None = None
    dollars_left: float | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A command line and its environment."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)


class Program(Protocol):
    """One agent program."""

    name: str

    def task_words(self, task: AgentTask) -> str:
        """What the program is told as its task."""
        ...

    def asks_again(self, fault: str | None) -> str:
        """What to say to an agent that owes its structured answer, or gave one with this fault."""
        ...

    def why_not(self, task: AgentTask) -> str | None:
        """Why it cannot do this task at all, and what to do instead; None when it can."""
        ...

    def start(self, task: AgentTask, order: Order) -> AbstractContextManager[Start]:
        """How to start it; files that it needs are there for as long as the block runs."""
        ...

    def ear(self, task: AgentTask, session_id: str | None) -> Ear:
        """Somebody to hear a process that is about to be started in this session."""
        ...

    def look_back(self, task: AgentTask, session_id: str | None) -> LeftBehind:
        """What is on disk of this session; None asks for the one that the task would begin."""
        ...
