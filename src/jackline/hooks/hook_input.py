"""The protocol of hooks: their path, their token, and what Claude Code sends to them.

Rules: (1) unknown events and fields are skipped, and invalid input is None; (2) the token of HTTP
hooks stays the same over restarts, since the plugin's files contain it, allows nothing but the
report that something has stopped, and cannot be derived from other uses of the salt.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jackline.foreign_files import read_beginning
from jackline.outside_names import LONGEST_NAME
from jackline.transcripts.findings import Notification

PATH = "/_jackline/hook"
HEADER = "x-jackline-hook"
# The model reads what is added to the answers of these events.
_EVENTS_WITH_CONTEXT = frozenset(
    {"PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart"}
)
_TASK_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
_USAGE = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_LONGEST_PATH = 4096
_LARGEST_META = 1 << 20


def hook_token(salt: bytes) -> str:
    """The token of HTTP hooks for the state folder with this salt."""
    return hmac.new(salt, b"hooks over http", hashlib.sha256).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class ReportedEnd:
    """An agent that has ended, as its client reports it."""

    agent: str
    failed: bool
    """Whether the client itself reports a failure, by its status or by its numbers."""
    text: str
    """The agent's result, as far as the client has one."""


class HookInput(msgspec.Struct):
    """One hook's input; `agent_id` is missing for the main thread."""

    hook_event_name: str = ""
    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    permission_mode: str = ""
    agent_id: str | None = None
    tool_name: str | None = None
    tool_use_id: str | None = None
    tool_response: object = None
    error: str | None = None
    last_assistant_message: str | None = None
    prompt: str | None = None

    @property
    def returned_agent(self) -> ReportedEnd | None:
        """The agent whose `Agent` call returned with its end, not only with its start."""
        response = self.tool_response
        if not isinstance(response, dict) or response.get("status") != "completed":
            return None
        agent, content = response.get("agentId"), response.get("content")
        if not isinstance(agent, str) or not agent:
            return None
        # The error that the client puts in the place of an answer has used no tokens.
        usage = response.get("usage")
        used = [usage.get(name) for name in _USAGE] if isinstance(usage, dict) else [None]
        blocks = content if isinstance(content, list) else [content]
        texts = [each.get("text") if isinstance(each, dict) else each for each in blocks]
        text = "\n".join(text for text in texts if isinstance(text, str))
        return ReportedEnd(agent, all(number == 0 for number in used), text)

    @property
    def notified_agents(self) -> list[ReportedEnd]:
        """The background agents whose end the client reports in this prompt."""
        text = (self.prompt or "").lstrip()
        if not text.startswith("<task-notification>") or "</task-notification>" not in text:
            return []
        ends = []
        for note in Notification.parse_all(text):
            if note.task_id is not None and _TASK_ID.fullmatch(note.task_id):
                failed = note.status == "failed"
                # The result of a failed agent is what it had written before.
                ends.append(
                    ReportedEnd(note.task_id, failed, note.summary if failed else note.result)
                )
        return ends

    def started_agent(self) -> str | None:
        """The sub-agent that this very call started, by the files that the client wrote."""
        if not self.transcript_path or not self.tool_use_id:
            return None
        for meta in self._agents_folder.glob("agent-*.meta.json"):
            try:
                if f'"{self.tool_use_id}"'.encode() in read_beginning(meta, _LARGEST_META):
                    return meta.name.removeprefix("agent-").removesuffix(".meta.json")
            except OSError:
                continue  # removed meanwhile
        return None

    @property
    def _agents_folder(self) -> Path:
        return Path(self.transcript_path).with_suffix("") / "subagents"

    def transcript_of(self, agent: str) -> Path | None:
        """The path of that sub-agent's own transcript."""
        if not self.transcript_path or not agent.replace("-", "").isalnum():
            return None
        return self._agents_folder / f"agent-{agent}.jsonl"

    def rewritten_result(self, text: str) -> dict[str, object]:
        """The answer that replaces the result of the sub-agent's call."""
        response = self.tool_response
        # Only the content: the client drops what has not its tool's own shape, status included.
        new = dict(response) if isinstance(response, dict) else {}
        new["content"] = [{"type": "text", "text": text}]
        return {
            "hookSpecificOutput": {
                "hookEventName": self.hook_event_name,
                "updatedToolOutput": new,
                # Also reaches a client that did not accept the new output.
                "additionalContext": text.partition(". ")[0] + ".",
            }
        }

    def added_context(self, texts: Sequence[str]) -> dict[str, object]:
        """The answer that adds these texts; empty without any, and where the model reads none."""
        if not texts or self.agent_id is not None:
            return {}
        event = self.hook_event_name
        if event not in _EVENTS_WITH_CONTEXT:
            return {}
        context = {"hookEventName": event, "additionalContext": "\n".join(texts)}
        return {"hookSpecificOutput": context}


def parse_hook_input(body: bytes) -> HookInput | None:
    """The hook's input; None when it is none."""
    try:
        hook = msgspec.json.decode(body, type=HookInput)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    # Names and paths are saved and looked up; those of a client are short.
    names = (
        *(hook.hook_event_name, hook.session_id, hook.permission_mode),
        *(hook.agent_id, hook.tool_name, hook.tool_use_id),
    )
    if any(len(name or "") > LONGEST_NAME for name in names):
        return None
    return None if max(len(hook.transcript_path), len(hook.cwd)) > _LONGEST_PATH else hook
