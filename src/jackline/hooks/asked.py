"""What Claude Code tells its hooks, as far as it matters here.

Laws: (1) unknown events and fields are passed over; (2) what makes no sense is None.
Not here: what is answered (answering.py).
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

_NOTIFICATION = "<task-notification>"
_TASK = re.compile(r"<task-id>([A-Za-z0-9-]{1,64})</task-id>")


class HookAsked(msgspec.Struct):
    """One hook's input; `agent_id` is missing for the main thread."""

    hook_event_name: str = ""
    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    agent_id: str | None = None
    tool_name: str | None = None
    tool_use_id: str | None = None
    tool_response: object = None
    error: str | None = None
    last_assistant_message: str | None = None
    prompt: str | None = None

    @property
    def sub_agent(self) -> str | None:
        """The sub-agent that an `Agent` call was about, from what the call gave back."""
        told = self.tool_response
        found = told.get("agentId") if isinstance(told, dict) else None
        return found if isinstance(found, str) and found else None

    @property
    def came_to_an_end(self) -> bool:
        """Whether an `Agent` call gave back an end, and not the start of a background agent."""
        told = self.tool_response
        return isinstance(told, dict) and told.get("status") == "completed"

    @property
    def notified(self) -> list[str]:
        """The background agents that the client itself now tells of, by their ids."""
        words = (self.prompt or "").lstrip()
        return _TASK.findall(words) if words.startswith(_NOTIFICATION) else []

    def started_agent(self) -> str | None:
        """The sub-agent that this very call started, by what the client wrote beside it."""
        if not self.transcript_path or not self.tool_use_id:
            return None
        mark = f'"{self.tool_use_id}"'
        for meta in self._sub_agents.glob("agent-*.meta.json"):
            try:
                if mark in meta.read_text("utf-8", "replace"):
                    return meta.name.removeprefix("agent-").removesuffix(".meta.json")
            except OSError:
                continue  # gone since
        return None

    @property
    def _sub_agents(self) -> Path:
        return Path(self.transcript_path).with_suffix("") / "subagents"

    def transcript_of(self, agent: str) -> Path | None:
        """Where that sub-agent's own transcript lies."""
        if not self.transcript_path or not agent.replace("-", "").isalnum():
            return None
        return self._sub_agents / f"agent-{agent}.jsonl"


def read_asked(body: bytes) -> HookAsked | None:
    """The hook's input; None when it is none."""
    try:
        return msgspec.json.decode(body, type=HookAsked)
    except msgspec.MsgspecError:
        return None
