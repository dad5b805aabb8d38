"""Read what Codex itself has written down of a thread, to go on from it.

Laws: (1) read only, and a half-written last line is passed over; (2) a call without an output after
it is lost: it may or may not have run; (3) every model call counts what it cost, also one whose
turn was cut off.
Not here: why a thread ended (autopsy/).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from jackline.agents.codex.printed import TurnUsage
from jackline.agents.outcome import Usage
from jackline.agents.process.going_on import ToolCall
from jackline.autopsy.lines import LineReader
from jackline.autopsy.records import decode, text_of
from jackline.foreign_files import open_foreign

_NOTHING = msgspec.Raw(b"")
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})


class Payload(msgspec.Struct):
    """What a line is about."""

    type: str = ""
    role: str | None = None
    model: str | None = None
    cwd: str | None = None
    content: msgspec.Raw = _NOTHING
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    usage: TurnUsage | None = None


class RolloutLine(msgspec.Struct):
    """One line of a rollout."""

    type: str = ""
    payload: Payload = msgspec.field(default_factory=Payload)


_LINES = msgspec.json.Decoder(RolloutLine)


@dataclass(slots=True)
class Rollout:
    """What stands in one rollout."""

    prompts: list[str] = field(default_factory=list)
    calls: dict[str, ToolCall] = field(default_factory=dict)
    """Those without an output, in their order."""
    model: str | None = None
    cwd: str | None = None
    usage: Usage = field(default_factory=Usage)
    answers: int = 0


def codex_home(environment: Mapping[str, str]) -> Path:
    """Where Codex keeps its records for a process with this environment."""
    chosen = environment.get("CODEX_HOME")
    home = environment.get("USERPROFILE" if os.name == "nt" else "HOME")
    return Path(chosen) if chosen else Path(home or Path.home()) / ".codex"


def rollout_of(thread_id: str, environment: Mapping[str, str]) -> Path | None:
    """The rollout of this thread; None when there is none."""
    if not thread_id or not all(letter.isalnum() or letter == "-" for letter in thread_id):
        return None
    found = (codex_home(environment) / "sessions").glob(f"*/*/*/rollout-*-{thread_id}.jsonl")
    return max(found, default=None)


def folder_of_thread(thread_id: str, environment: Mapping[str, str]) -> str | None:
    """Where this thread was begun, by its rollout; None when that does not tell."""
    path = rollout_of(thread_id, environment)
    return None if path is None else read_rollout(path).cwd


def read_rollout(path: Path) -> Rollout:
    """What a thread's own rollout holds."""
    rollout = Rollout()
    # It may be gone by now, or not ours to read: then nothing is known of it.
    with suppress(OSError), open_foreign(path) as file:
        for line in LineReader(file):
            record = decode(_LINES, line)
            if record is not None:
                _keep(rollout, record.type, record.payload)
    return rollout


def _keep(rollout: Rollout, kind: str, payload: Payload) -> None:
    rollout.cwd = rollout.cwd or payload.cwd
    if kind == "turn_context":
        rollout.model = payload.model or rollout.model
    elif kind == "token_usage_record" and payload.usage is not None:
        rollout.usage = rollout.usage + payload.usage.usage
        rollout.answers += 1
    elif kind == "response_item" and payload.call_id is not None:
        if payload.type in _CALLS:
            given = payload.arguments or payload.input or ""
            rollout.calls[payload.call_id] = ToolCall(payload.call_id, payload.name or "", given)
        elif payload.type in _OUTPUTS:
            rollout.calls.pop(payload.call_id, None)
    elif kind == "response_item" and payload.role == "user":
        rollout.prompts.append(text_of(payload.content))
