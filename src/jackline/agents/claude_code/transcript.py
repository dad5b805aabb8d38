"""Read what Claude Code itself has written down of a session, to go on from it.

Laws: (1) read only, and a half-written last line is passed over; (2) a tool call without a result
after it is lost: it may or may not have run; (3) the client writes late: what it printed last may
be missing here.
Not here: sub-agents (dead_agent.py), why an agent died (autopsy/).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from jackline.agents.claude_code.blocks import blocks_of, call_of
from jackline.agents.claude_code.printed import ModelUsage
from jackline.agents.outcome import Usage
from jackline.agents.process.going_on import ToolCall
from jackline.autopsy.conversation import SYNTHETIC
from jackline.autopsy.lines import LineReader
from jackline.autopsy.records import Message, decode
from jackline.foreign_files import open_foreign

_NOTHING = msgspec.Raw(b"")


class KeptLine(msgspec.Struct, rename="camel"):
    """One line of a transcript, as far as going on needs it."""

    type: str = ""
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_api_error_message: bool | None = None
    message: Message | None = None
    total_cost: float | None = msgspec.field(default=None, name="totalCostUSD")
    model_usage: msgspec.Raw = _NOTHING


KEPT_LINES = msgspec.json.Decoder(KeptLine)
_MODEL_USAGES = msgspec.json.Decoder(dict[str, ModelUsage])


@dataclass(frozen=True, slots=True)
class CostState:
    """What the client has written down that a session had cost so far."""

    cost: float = 0.0
    usage: Mapping[str, Usage] = field(default_factory=dict)


@dataclass(slots=True)
class KeptSession:
    """What stands in one transcript."""

    prompts: list[str] = field(default_factory=list)
    calls: dict[str, ToolCall] = field(default_factory=dict)
    """Those without a result, in their order."""
    settled: set[str] = field(default_factory=set)
    """The calls whose results it holds."""
    answers: int = 0
    cost: CostState = field(default_factory=CostState)


def config_folder(environment: Mapping[str, str]) -> Path:
    """Where Claude Code keeps its records for a process with this environment."""
    chosen = environment.get("CLAUDE_CONFIG_DIR")
    home = environment.get("USERPROFILE" if os.name == "nt" else "HOME")
    return Path(chosen) if chosen else Path(home or Path.home()) / ".claude"


def transcript_of(session_id: str, environment: Mapping[str, str]) -> Path | None:
    """The transcript of this session; None when there is none."""
    projects = config_folder(environment) / "projects"
    if not projects.is_dir() or not session_id or "/" in session_id or "\\" in session_id:
        return None
    # The folder's name is made of the project's, in a way that has changed with versions.
    for folder in projects.iterdir():
        path = folder / f"{session_id}.jsonl"
        if path.is_file():
            return path
    return None


def read_session(path: Path) -> KeptSession:
    """What a session's own transcript holds; nothing of its sub-agents."""
    session = KeptSession()
    # It may be gone by now, or not ours to read: then nothing is known of it.
    with suppress(OSError), open_foreign(path) as file:
        for line in LineReader(file):
            record = decode(KEPT_LINES, line)
            if record is not None:
                _keep(session, record)
    return session


def _keep(session: KeptSession, record: KeptLine) -> None:
    if record.type == "cost-state":
        told = decode(_MODEL_USAGES, record.model_usage) if record.model_usage else None
        usage = {model: each.usage for model, each in (told or {}).items()}
        session.cost = CostState(record.total_cost or 0.0, usage)
    message = record.message
    if message is None or record.is_sidechain:
        return
    blocks = blocks_of(message)
    if record.type == "assistant" and message.model != SYNTHETIC:
        session.answers += 1
        for block in blocks:
            if block.type == "tool_use" and block.id is not None:
                session.calls[block.id] = call_of(block)
    elif record.type == "user":
        for block in blocks:
            if block.type == "tool_result" and block.tool_use_id is not None:
                session.calls.pop(block.tool_use_id, None)
                session.settled.add(block.tool_use_id)
            elif block.text and not record.is_meta:
                session.prompts.append(block.text)
