"""Write single lines of a Claude Code transcript in the shapes that version 2.1.197 writes.

Laws: (1) deterministic: ids come from names, times come in; (2) every block of an answer is its own
line and repeats the answer's id and usage, as the real program does; (3) nothing real is inside.
Not here: the plot of the incident (replica.py), reading such lines (claude_code.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from datetime import datetime

Line: TypeAlias = dict[str, object]

VERSION = "2.1.197"
CWD = "/home/user/project"
MODEL = "claude-sonnet-5"


def named_uuid(name: str) -> str:
    """A UUID that is always the same for the same name."""
    return str(UUID(bytes=_digest(name)[:16], version=4))


def named_agent_id(name: str) -> str:
    """An agent id as Claude Code makes them: `a` and sixteen hexadecimal digits."""
    return "a" + _digest(name).hex()[:16]


def _digest(name: str) -> bytes:
    return hashlib.sha256(f"jackline replica {name}".encode()).digest()


def stamp(moment: datetime) -> str:
    """`2026-06-18T17:41:02.310Z`."""
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


@dataclass(slots=True)
class Transcript:
    """The lines of one conversation, each hanging on the one before it."""

    name: str
    session_id: str
    agent_id: str | None = None
    lines: list[Line] = field(default_factory=list)

    def says(self, at: datetime, text: str, **extra: object) -> None:
        """A line of the user, or of the harness in the user's name."""
        self._add(at, {"type": "user", "message": {"role": "user", "content": text}, **extra})

    def answers(self, at: datetime, blocks: list[Line], tokens: tuple[int, int], stop: str) -> None:
        """One answer of the model: a line per block, with (input, output) tokens."""
        message: Line = {
            "id": f"msg_{self._mark()}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": _usage(*tokens),
        }
        request_id = f"req_{self._mark()}"
        for block in blocks:
            line: Line = {"message": {**message, "content": [block]}, "requestId": request_id}
            self._add(at, {**line, "type": "assistant"})

    def returns(
        self, at: datetime, tool_use_id: str, text: str, result: Line | None = None
    ) -> None:
        """The result of a tool."""
        block = {
            "tool_use_id": tool_use_id,
            "type": "tool_result",
            "content": text,
            "is_error": False,
        }
        line: Line = {"type": "user", "message": {"role": "user", "content": [block]}}
        if result is not None:
            line["toolUseResult"] = result
        self._add(at, line)

    def dies(self, at: datetime, text: str, *, status: int, error: str) -> None:
        """The line that Claude Code writes when the API has refused for good."""
        message: Line = {
            "id": named_uuid(f"{self.name} death"),
            "container": None,
            "model": "<synthetic>",
            "role": "assistant",
            "stop_reason": "stop_sequence",
            "stop_sequence": "",
            "type": "message",
            "usage": _usage(0, 0),
            "content": [{"type": "text", "text": text}],
            "context_management": None,
        }
        line: Line = {"type": "assistant", "message": message, "requestId": f"req_{self._mark()}"}
        self._add(at, {**line, "error": error, "isApiErrorMessage": True, "apiErrorStatus": status})

    def _mark(self) -> str:
        return _digest(f"{self.name} {len(self.lines)}").hex()[:20]

    def _add(self, at: datetime, line: Line) -> None:
        head: Line = {
            "parentUuid": self.lines[-1]["uuid"] if self.lines else None,
            "isSidechain": self.agent_id is not None,
        }
        if self.agent_id is not None:
            head["agentId"] = self.agent_id
        tail: Line = {
            "uuid": named_uuid(f"{self.name} {len(self.lines)}"),
            "timestamp": stamp(at),
            "userType": "external",
            "entrypoint": "cli",
            "cwd": CWD,
            "sessionId": self.session_id,
            "version": VERSION,
            "gitBranch": "main",
        }
        self.lines.append({**head, **line, **tail})


def _usage(given: int, written: int) -> Line:
    return {
        "input_tokens": min(given, 3),
        "cache_creation_input_tokens": max(given - 3, 0),
        "cache_read_input_tokens": 0,
        "output_tokens": written,
        "service_tier": "standard",
    }


def text_block(text: str) -> Line:
    """A block of prose."""
    return {"type": "text", "text": text}


def tool_block(tool_use_id: str, name: str, arguments: Line) -> Line:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": tool_use_id, "name": name, "input": arguments}
