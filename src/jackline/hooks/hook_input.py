"""Parse what Claude Code sends to its hooks, as far as it matters here.

Rules: (1) unknown events and fields are skipped; (2) what makes no sense is None.
Not here: the answers (face.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jackline.foreign_files import read_beginning
from jackline.outside_names import LONGEST_NAME

_NOTIFICATION = ("<task-notification>", "</task-notification>")
_TASK = re.compile(r"<task-id>([A-Za-z0-9-]{1,64})</task-id>")
_USED = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_FAILED = "<status>failed</status>"
_SUMMARY = ("<summary>", "</summary>")
_RESULT = ("<result>", "</result>")
_LONGEST_PATH = 4096
_LARGEST_META = 1 << 20


@dataclass(frozen=True, slots=True)
class ReportedEnd:
    """An agent of which the client says that it has ended, and what it says came of it."""

    agent: str
    failed: bool
    """Whether the client itself tells it as failed, in words or by numbers."""
    words: str
    """What the client has for its result."""


class HookInput(msgspec.Struct):
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
    def came_back(self) -> ReportedEnd | None:
        """The agent whose call gave back an end, and not only the start of a background agent."""
        told, agent = self.tool_response, self.sub_agent
        if not isinstance(told, dict) or agent is None or told.get("status") != "completed":
            return None
        usage = told.get("usage")
        # The error that the client puts in the place of an answer has used nothing.
        used = [usage.get(name) for name in _USED] if isinstance(usage, dict) else [None]
        return ReportedEnd(
            agent, all(number == 0 for number in used), _text_of(told.get("content"))
        )

    @property
    def notified(self) -> list[ReportedEnd]:
        """The background agents that the client itself now tells of."""
        words = (self.prompt or "").lstrip()
        if not words.startswith("<task-notification>"):
            return []
        return list(_notified(words))

    def started_agent(self) -> str | None:
        """The sub-agent that this very call started, by what the client wrote beside it."""
        if not self.transcript_path or not self.tool_use_id:
            return None
        mark = f'"{self.tool_use_id}"'
        for meta in self._sub_agents.glob("agent-*.meta.json"):
            try:
                if mark.encode() in read_beginning(meta, _LARGEST_META):
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


def parse_hook_input(body: bytes) -> HookInput | None:
    """The hook's input; None when it is none."""
    try:
        told = msgspec.json.decode(body, type=HookInput)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    names = (told.hook_event_name, told.session_id, told.agent_id, told.tool_name, told.tool_use_id)
    places = (told.transcript_path, told.cwd)
    too_long = any(len(each or "") > LONGEST_NAME for each in names)
    # Names and paths are kept, and looked for: a client's own are short.
    return None if too_long or any(len(each) > _LONGEST_PATH for each in places) else told


def _text_of(content: object) -> str:
    blocks = content if isinstance(content, list) else [content]
    texts = [each.get("text") if isinstance(each, dict) else each for each in blocks]
    return "\n".join(text for text in texts if isinstance(text, str))


def _notified(words: str) -> Iterator[ReportedEnd]:
    begin, end = _NOTIFICATION
    at = words.find(begin)
    while at >= 0 and (stop := words.find(end, at)) >= 0:
        note = words[at + len(begin) : stop]
        at = words.find(begin, stop)
        task, failed = _TASK.search(note), _FAILED in note
        if task is not None:
            # Of a failed one the result is what it had said before.
            said = _between(note, _SUMMARY) if failed else _between(note, _RESULT, last=True)
            yield ReportedEnd(task[1], failed, said)


def _between(words: str, marks: tuple[str, str], *, last: bool = False) -> str:
    """What stands between two marks, up to the first or the last end; nothing without both.

    By searching, not by a pattern: a text with thousands of beginnings would take a pattern hours.
    """
    begin = words.find(marks[0])
    if begin < 0:
        return ""
    begin += len(marks[0])
    end = words.rfind(marks[1], begin) if last else words.find(marks[1], begin)
    return "" if end < 0 else words[begin:end]
