"""Tell an agent that goes on what happened, what was lost and what is on disk.

Laws: (1) never a bare "continue": it names the cut, the calls that may or may not have run, and the
files that changed; (2) the task is told again only where the conversation does not hold it; (3)
looking at the disk changes nothing there, and its failure is no failure of the agent; (4) where it
must not be looked, that is said.
Not here: finding the lost calls (claude_code/transcript.py, codex/rollout.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jackline.agents.task import JsonObject
from jackline.foreign_repositories import ForeignRepositoryError, ask_git

_SHOWN_INPUT = 600
_SHOWN_RESULT = 2_000
_SHOWN_FILES = 40
_GIT_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, as the model made it."""

    id: str
    name: str
    input: JsonObject | str

    @property
    def given(self) -> str:
        """Its input, shortened."""
        whole = self.input if isinstance(self.input, str) else _json(self.input)
        return whole if len(whole) <= _SHOWN_INPUT else f"{whole[:_SHOWN_INPUT]}…"

    def __str__(self) -> str:
        # By its id it is known again, should the agent be cut off once more.
        return f"{self.name} {self.given} ({self.id})"


def _json(value: JsonObject) -> str:
    return json.dumps(value, ensure_ascii=False)


def going_on(
    what_happened: str,
    lost: Sequence[ToolCall],
    on_disk: str = "",
    *,
    finished: Sequence[tuple[ToolCall, str]] = (),
    task: str | None = None,
) -> str:
    """The prompt with which an agent goes on.

    `on_disk` is what `changes_on_disk` says; `finished` are calls that ended and whose results the
    conversation does not hold; `task` is told where it does not hold that either.
    """
    parts = [what_happened.strip()]
    if finished:
        calls = "\n".join(f"- {call}: {result[:_SHOWN_RESULT]}" for call, result in finished)
        parts.append(
            "These tool calls had finished before that, though the conversation has lost them. Do "
            f"not run them again; what each gave:\n{calls}"
        )
    if lost:
        calls = "\n".join(f"- {call}" for call in lost)
        parts.append(
            "When that happened these tool calls were under way. Their results are lost: each may "
            "or may not have run, in part or as a whole, and may still be running. Look at what "
            f"they left before you run one again:\n{calls}"
        )
    parts.append(on_disk)
    if task is None:
        parts.append(
            "Everything else stands in this conversation and is finished: do not do it again. Go "
            "on with the task from there, to its end."
        )
    else:
        parts.append(f"The task, which this conversation does not hold yet:\n\n{task}")
    return "\n\n".join(part for part in parts if part)


async def changes_on_disk(cwd: Path) -> str:
    """What has changed under this folder, as git says; empty where it says nothing."""
    try:
        async with asyncio.timeout(_GIT_PATIENCE_S):
            code, said = await ask_git(
                cwd, "status", "--short", "--ignore-submodules=all", "--", "."
            )
    except TimeoutError:
        return ""
    except ForeignRepositoryError as error:
        return (
            "What has changed on disk is not listed here, because git is not run there:"
            f" {error.why}. Look for yourself."
        )
    if code or not said:
        return ""
    files = said.decode("utf-8", "replace").splitlines()
    shown = "\n".join(files[:_SHOWN_FILES])
    more = len(files) - _SHOWN_FILES
    rest = f"\n(and {more} more)" if more > 0 else ""
    return f"Changed on disk, as `git status --short` tells it now:\n{shown}{rest}"
