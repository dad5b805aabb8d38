"""Define what an agent program's output becomes: events while it runs, one verdict at its end.

Rules: (1) parsing and judging are pure: bytes in, events out, one verdict at the end; (2) lines are
the same however the bytes are cut; a line without its end is no line yet, and a line over the limit
is skipped; (3) `Done` only for an answer that is there and whole, `Failed` has a classified
failure, `Incomplete` is work that ended well except for a missing answer; (4) a sentence for people
holds at most one line of program output, redacted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias

from jackline.agents.outcome import Ending, Evidence
from jackline.agents.runner import evidence_of, is_run_wall
from jackline.batches.processes import exit_text
from jackline.calls.own_words import says_any
from jackline.dialects import TokenUsage
from jackline.failures import Failure, Observation, classify
from jackline.failures.sentences import name_of
from jackline.failures.wording import redact
from jackline.transcripts.saved_conversation import SavedConversation, TranscriptToolCall

# A line is a whole message: tool output of many megabytes may be in one.
LONGEST_LINE = 64 << 20
_SHOWN = 300


class LineCutter:
    """Lines of an output that is pushed to us; a file is pulled by `transcripts.LineReader`."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = bytearray()
        self._is_skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that these bytes complete, without their ends; empty ones are left out."""
        lines = []
        *complete, rest = data.split(b"\n")
        for piece in complete:
            self._add(piece)
            if self._rest and not self._is_skipping:
                lines.append(bytes(self._rest))
            self._rest.clear()
            self._is_skipping = False
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        if self._is_skipping:
            return
        self._rest += piece
        if len(self._rest) > self._longest:
            self._rest.clear()
            self._is_skipping = True


@dataclass(frozen=True, slots=True)
class Done:
    """The answer: its text, and with a schema the input of its tool."""

    text: str
    tool_input: object = None


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Something is missing: `prompt` requests it from the agent, `says` is for a person."""

    prompt: str
    says: str
    ending: Ending = Ending.SCHEMA
    """How the agent ends when it stays missing."""
    raw: str = ""
    """What came in place of a valid answer."""


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, and what was seen of the reason."""

    failure: Failure
    evidence: Evidence

    @property
    def says(self) -> str:
        """The sentence for a person."""
        return self.evidence.says

    @classmethod
    def of(
        cls,
        seen: Observation,
        now: datetime,
        *,
        model: str,
        attempts: int,
        request_id: str | None = None,
    ) -> Failed:
        """The classified failure; the first line of the program's own words is private.

        A quota parks the whole run: one that the text may have from the name of the agent's model,
        which APIs repeat when they do not know it, is none.
        """
        failure = classify(seen, now=now)
        if is_run_wall(failure) and says_any(f"{seen.text} {seen.body!r}", (model,)):
            failure = classify(Observation.of_response(seen.status or 404, {}, {}), now=now)
        first = (seen.text or "").strip().partition("\n")[0]
        evidence = evidence_of(
            failure,
            says=name_of(failure),
            status=seen.status,
            attempts=attempts,
            request_id=request_id,
        )
        return cls(failure, replace(evidence, private=redact(first, _SHOWN)))


@dataclass(frozen=True, slots=True)
class Broken:
    """The program itself ended without a result: killed, crashed, or never started."""

    says: str
    ending: Ending = Ending.CRASH
    private: str = ""
    """The last line of its errors."""


Verdict: TypeAlias = Done | Incomplete | Failed | Broken


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The program has opened its session."""

    session_id: str
    model: str | None


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """One piece of a model's answer; pieces of the same answer have the same id."""

    id: str | None
    model: str
    usage: TokenUsage
    text: str = ""
    calls: tuple[TranscriptToolCall, ...] = ()
    """The tools whose results the next model call sends."""
    request_id: str | None = None
    agent: str | None = None
    """The call that started the sub-agent who got the answer; None for the agent itself."""


@dataclass(frozen=True, slots=True)
class ToolResulted:
    """A tool call of the agent itself has ended, with this result."""

    call_id: str
    text: str
    is_error: bool = False


ProgramEvent: TypeAlias = SessionOpened | AnswerPart | ToolResulted


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended; `errors` is the end of its error output."""

    exit_code: int | None
    errors: str = ""

    def broken(self, program: str, when: str) -> Broken:
        """The program was gone: when and how."""
        how = "ended" if self.exit_code is None else exit_text(self.exit_code)
        last = next((line for line in reversed(self.errors.splitlines()) if line.strip()), "")
        words = redact(last.strip(), _SHOWN)
        return Broken(f"{program} was gone {when} ({how})", private=words)


@dataclass(frozen=True, slots=True)
class ProcessCost:
    """What a whole process cost, as far as it reported that; None where it did not."""

    usage: tuple[tuple[str, TokenUsage], ...] | None = None
    """By model."""
    cost: float | None = None
    turns: int | None = None
    """Of the whole session, where the program counts them."""


class ProgramOutput(ABC):
    """Parses and judges the output of one process."""

    counted: TokenUsage | None = None
    """What the session had cost before, where the program itself counts that."""
    reports_each_answer = False
    """Whether it prints with each answer what its input used, and not only at its end."""

    def __init__(self) -> None:
        self._lines = LineCutter()

    def feed(self, data: bytes) -> list[ProgramEvent]:
        """The events in the next bytes, however they were cut."""
        return [event for line in self._lines.feed(data) for event in self._read(line)]

    @abstractmethod
    def _read(self, line: bytes) -> Sequence[ProgramEvent]: ...

    @abstractmethod
    def judge(self, ended: ProcessExit, *, now: datetime) -> Verdict:
        """The process's verdict."""

    @abstractmethod
    def cost(self) -> ProcessCost:
        """What the process cost."""


@dataclass(frozen=True, slots=True)
class SavedSession:
    """What the program itself has saved of a session."""

    session_id: str | None = None
    """The session that can be resumed; None when there is none."""
    transcript: str | None = None
    holds_task: bool = False
    """Whether the conversation holds the prompt of this task."""
    conversation: SavedConversation = field(default_factory=SavedConversation)


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
