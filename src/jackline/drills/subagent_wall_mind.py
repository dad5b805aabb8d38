"""What the model says to a parent and its eight sub-agents, three of which meet a quota wall.

Laws: (1) an agent's next step is read in its own conversation, so that whoever is told nothing of
finished steps does them again, and is seen doing it; (2) the parent goes on only with ids that it
was told; (3) the wall comes down before the second steps of the three, whose first ones wait for
each other.
Not here: the processes (subagent_wall_client.py), what is demanded (subagent_wall.py).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from jackline.drills.crews import MAIN, label_of
from jackline.simulator.conversation import Asked
from jackline.simulator.mind import UNDERSTOOD, Reply, Say, ToolCall

LABELS = tuple(f"PART-{number}" for number in range(1, 9))
STRUCK = LABELS[-3:]
BY_SESSION = LABELS[-1]
"""The one that, with Jackline, the parent starts as an agent with a session of its own."""
STEPS = 3
LOOKS = "looks"
"""The file in which every step that is really made leaves a line."""
OURS = "mcp__plugin_jackline_jackline__"
SAFE, STRUCK_MODEL = "sonnet", "opus"
_DEAD = re.compile(r'continue_from_task_id="([^"]+)"')
# Some versions hand a tool's words to the model, some its data.
_SESSION = re.compile(r'(?:agent\(resume=|"session_id":\s*)"([^"]+)"')
_RUN = re.compile(r'\brun(?: |_id":\s*")([0-9a-f]{6,})')


@dataclass(frozen=True, slots=True)
class Wall:
    """When a wall falls."""

    resets_at: float
    """As Unix time."""
    until: float
    """By the provider's clock."""


@dataclass(slots=True)
class Script:
    """Plays the model; `heard` is what the parent was told, turn by turn."""

    strike: Callable[[], Wall]
    """Puts up the wall."""
    with_jackline: bool
    heard: list[str] = field(default_factory=list)
    results: list[tuple[str, bool]] = field(default_factory=list)
    """The texts that the parent's calls gave back, and whether they were marked as errors."""
    agents: dict[str, str] = field(default_factory=dict)
    """The ids under which Claude Code runs its own sub-agents, by label."""
    steps: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Whose step, and which, the request with this hash asked for."""
    wall: Wall | None = None
    _said: dict[str, Reply] = field(default_factory=dict)
    """What the parent was answered: who asks the same again is told the same."""

    def reply(self, asked: Asked) -> Reply:
        """What the model says."""
        if "Bash" not in asked.tools:
            return UNDERSTOOD  # an errand of the client's own, such as finding a title
        label = label_of(asked)
        if label != MAIN:
            return self._part(label, asked)
        if asked.body_hash not in self._said:
            self._said[asked.body_hash] = self._parent(asked)
        return self._said[asked.body_hash]

    def _part(self, label: str, asked: Asked) -> Reply:
        if asked.agent:
            self.agents.setdefault(label, asked.agent)
        known = "\n".join(_told(asked.body.get("messages")))
        step = next((n for n in range(STEPS) if made(label, n) not in known), STEPS)
        self.steps[asked.body_hash] = (label, step)
        if step == STEPS:
            return Say(last_words(label))
        if label in STRUCK and step == 1 and self.wall is None:
            self.wall = self.strike()  # also for whoever asks for this
        first = label in STRUCK and step == 0
        command = (_together(label) if first else "") + _make(label, step)
        return Say("Looking.", (("Bash", {"command": command, "description": "A step"}),))

    def _parent(self, asked: Asked) -> Reply:
        if self.with_jackline and f"{OURS}agent" not in asked.tools:
            found = _finding_tools(asked)
            if found is not None:
                return found
        fresh = _since_spoken(asked)
        self.heard.append("\n".join(_told(fresh)))
        self.results += _results(fresh)
        if not self.with_jackline:
            return _split(LABELS) if len(self.heard) == 1 else Say("All parts are back.")
        return self._with_jackline(len(self.heard))

    def _with_jackline(self, turn: int) -> Reply:
        if turn == 1:
            given = {**_order(BY_SESSION), "label": BY_SESSION, "background": True}
            return Say("Starting one.", ((f"{OURS}agent", given),))
        if turn == 2:
            return _split([label for label in LABELS if label != BY_SESSION])
        if turn == 3:
            ids = _RUN.findall(self.heard[1])[:1]
            return Say("Asking for the first.", ((f"{OURS}agent_wait", {"ids": ids}),))
        if turn == 4:
            reset = self.wall.resets_at if self.wall is not None else 0.0
            return Say("Waiting for the reset.", (_wait_until(reset),))
        if turn == 5:
            dead = list(dict.fromkeys(_DEAD.findall(self.heard[2])))
            sessions = _SESSION.findall(self.heard[3])[:1]
            calls = [(f"{OURS}agent", {"continue_from_task_id": each}) for each in dead]
            calls += [(f"{OURS}agent", {"resume": each}) for each in sessions]
            return Say("Going on with them.", tuple(calls))
        return Say("All parts are back.")


def last_words(label: str) -> str:
    """What an agent says when it has made all of its steps."""
    return f"{label} is done."


def made(label: str, step: int) -> str:
    """What a step prints; its command does not hold these words."""
    return f"{label}/looked-{step}"


def prompt(label: str) -> str:
    """What an agent is asked."""
    return f"{label}: review this part of the project in {STEPS} steps."


# --- calls -----------------------------------------------------------------------------------


def _order(label: str) -> dict[str, Any]:
    model = STRUCK_MODEL if label in STRUCK else SAFE
    return {"prompt": prompt(label), "model": model}


def _split(labels: Sequence[str]) -> Say:
    usual = {"subagent_type": "general-purpose", "run_in_background": False}
    calls = [("Agent", {"description": f"Review {one}", **_order(one), **usual}) for one in labels]
    return Say("Splitting the work.", tuple(calls))


def _make(label: str, step: int) -> str:
    return f"printf '%s/%s\\n' {label} looked-{step} | tee -a {LOOKS}"


def _together(label: str) -> str:
    """Let nobody go on before all three that the wall is for have got so far."""
    count = f'"$(ls at-* | wc -l)" -lt {len(STRUCK)}'
    waiting = f"while [ {count} ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done"
    return f"touch at-{label}; n=0; {waiting}; "


def _wait_until(moment: float) -> ToolCall:
    program = f"import time; time.sleep(max(0, {moment + 1:.0f} - time.time()))"
    words = {"command": f"'{sys.executable}' -c '{program}'", "description": "Wait for the reset"}
    return ("Bash", {**words, "timeout": 300_000})


def _finding_tools(asked: Asked) -> Say | None:
    """How the model gets at tools that the client has not offered yet."""
    if "WaitForMcpServers" in asked.tools:
        return Say("Waiting for the tools.", (("WaitForMcpServers", {}),))
    if "ToolSearch" in asked.tools:
        names = f"select:{OURS}agent,{OURS}agent_wait"
        return Say("Looking for the tools.", (("ToolSearch", {"query": names}),))
    return None


# --- what was told ---------------------------------------------------------------------------


def _since_spoken(asked: Asked) -> list[dict[str, Any]]:
    fresh: list[dict[str, Any]] = []
    for entry in reversed(asked.body.get("messages") or ()):
        if entry.get("role") == "assistant":
            break
        fresh.insert(0, entry)
    return fresh


def _told(value: object) -> Iterator[str]:
    """Every text of users and of results, but none of what the model itself has said."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _told(each)
    elif isinstance(value, dict) and value.get("role") != "assistant":
        for key in ("text", "content"):
            yield from _told(value.get(key))


def _results(entries: Sequence[dict[str, Any]]) -> Iterator[tuple[str, bool]]:
    for entry in entries:
        content = entry.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                yield "\n".join(_told(block.get("content"))), bool(block.get("is_error"))
