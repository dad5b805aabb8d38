"""Define what an agent program must offer: its output as events, its verdict, its saved session.

Rules: (1) parsing and judging are pure: bytes in, events out, one verdict at the end; (2) lines are
the same however the bytes are cut; a line without its end is no line yet, and a line over the limit
is skipped; (3) `Done` only for an answer that is there and whole, `Failed` has a classified
failure, `Incomplete` is work that ended well except for a missing answer; (4) `look_back` only
reads; (5) a sentence for people holds at most one line of program output, redacted; (6) a program
is started with the settings of a folder only if the user trusts that folder.
Not here: running it (runner.py), the programs (claude_code/, codex/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeAlias

from jackline.agents.outcome import Ending, TokenUsage
from jackline.agents.process.resume import ProgramToolCall
from jackline.agents.runner import AgentTask
from jackline.batches.processes import exit_text
from jackline.failures import Failure
from jackline.failures.sentences import name_of
from jackline.failures.wording import redact

# A line is a whole message: tool output of many megabytes may stand in one.
LONGEST_LINE = 64 << 20


class LineCutter:
    """The lines of one output so far."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = bytearray()
        self._passing_over = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that these bytes complete, without their ends; empty ones are left out."""
        lines = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end])
            if self._rest and not self._passing_over:
                lines.append(bytes(self._rest))
            self._rest.clear()
            self._passing_over = False
            start = end + 1
        self._keep(data[start:])
        return lines

    def _keep(self, piece: bytes) -> None:
        if self._passing_over:
            return
        self._rest += piece
        if len(self._rest) > self._longest:
            self._rest.clear()
            self._passing_over = True


@dataclass(frozen=True, slots=True)
class Done:
    """The answer: its text, and where a schema was asked for what was given by it."""

    text: str
    given: object = None


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Something is owed: `ask` says so to the agent, `says` to a person."""

    ask: str
    says: str
    ending: Ending = Ending.SCHEMA
    """What it ends with when it stays owed."""
    raw: str = ""
    """What was given in place of a valid answer, as it came."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, and what was seen of the reason."""

    failure: Failure
    says: str
    status: int | None = None
    request_id: str | None = None
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Broken:
    """The program itself ended without a last word: killed, crashed, or never started."""

    says: str
    ending: Ending = Ending.CRASH


Verdict: TypeAlias = Done | Incomplete | Failed | Broken


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The program has opened its session."""

    session_id: str
    model: str | None


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """One piece of a model's answer; pieces of the same answer bear the same id."""

    id: str | None
    model: str
    usage: TokenUsage
    text: str = ""
    calls: tuple[ProgramToolCall, ...] = ()
    """The tools whose results the model will be asked about next."""
    request_id: str | None = None
    agent: str | None = None
    """The call that started the sub-agent who heard it; None for the agent itself."""


@dataclass(frozen=True, slots=True)
class ToolResulted:
    """A tool that the agent itself had called has ended; what it gave."""

    call_id: str
    text: str


ProgramEvent: TypeAlias = SessionOpened | AnswerPart | ToolResulted


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended; `errors` are the last words of its error output."""

    exit_code: int | None
    errors: str = ""


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """What a whole process cost, as far as it told; None where it told nothing."""

    usage: tuple[tuple[str, TokenUsage], ...] | None = None
    """By model."""
    cost: float | None = None
    turns: int | None = None
    """Of the whole session, where the program keeps count."""


@dataclass(frozen=True, slots=True)
class SavedSession:
    """What the program itself has written down of a session."""

    session_id: str | None = None
    """The session that can be gone on with; None when there is none."""
    transcript: str | None = None
    holds_task: bool = False
    """Whether the conversation holds the prompt of this task."""
    lost: tuple[ProgramToolCall, ...] = ()
    """Calls that it holds without their results."""
    settled: frozenset[str] = frozenset()
    """Calls whose results it holds."""
    prompts: tuple[str, ...] = ()
    """What the agent was told in it."""


class ProgramOutput(Protocol):
    """Hears one process."""

    @property
    def counted(self) -> TokenUsage | None:
        """What the session had cost before, where the program keeps count of its own."""
        ...

    def feed(self, data: bytes) -> Sequence[ProgramEvent]:
        """What the next piece tells, however it was cut."""
        ...

    def judge(self, ended: ProcessExit, *, now: datetime) -> Verdict:
        """What the process came to."""
        ...

    def spent(self) -> ProcessCost:
        """What the process cost."""
        ...


@dataclass(frozen=True, slots=True)
class StartRequest:
    """One start of the program: in which session, or None for a new one, and what is left."""

    session_id: str | None
    model: str | None
    turns_left: int | None = None
    dollars_left: float | None = None


@dataclass(frozen=True, slots=True)
class StartCommand:
    """A command line and its environment."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class UnfollowedSettings:
    """The settings of a folder, which no agent follows: another agent may have written them."""

    notice: str = ""
    """What is not followed, and what to do about it; empty when nothing is lost."""
    untrusted: tuple[str, ...] = ()
    """The folders that are named to the program as untrusted, where it needs that."""


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

    def unfollowed(self, cwd: Path) -> UnfollowedSettings:
        """What it does not follow in this folder; read anew for each process."""
        ...

    def start(
        self, task: AgentTask, order: StartRequest, unfollowed: UnfollowedSettings
    ) -> AbstractContextManager[StartCommand]:
        """How to start it; files that it needs are there for as long as the block runs."""
        ...

    def ear(self, task: AgentTask, session_id: str | None) -> ProgramOutput:
        """Somebody to hear a process that is about to be started in this session."""
        ...

    def look_back(self, task: AgentTask, session_id: str | None) -> SavedSession:
        """What is on disk of this session; None asks for the one that the task would begin."""
        ...


_SHOWN = 300


def failure_sentence(failure: Failure, text: str | None) -> str:
    """What failed, with the first line of the program's own words."""
    first = (text or "").strip().partition("\n")[0]
    named = name_of(failure)
    return f"{named}: {redact(first)[:_SHOWN]}" if first else named


def exit_sentence(program: str, ended: ProcessExit, when: str) -> str:
    """That the program was gone, how, and the last line of its errors."""
    code = ended.exit_code
    how = "ended" if code is None else exit_text(code)
    last = next((line for line in reversed(ended.errors.splitlines()) if line.strip()), "")
    said = f"; it said: {redact(last.strip())[:_SHOWN]}" if last else ""
    return f"{program} was gone {when} ({how}){said}"
