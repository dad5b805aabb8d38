"""The runner `claude-code`: carries an agent with the real Claude Code through the gateway.

Laws: those of process/ and of this room.
Not here: the loop itself (process/carrying.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import UUID, uuid5

from jackline.agents.claude_code.judging import asks_again, judge
from jackline.agents.claude_code.printed import Printed
from jackline.agents.claude_code.start import Place, start_for
from jackline.agents.claude_code.transcript import CostState, read_session, transcript_of
from jackline.agents.outcome import Usage
from jackline.agents.process.history import beyond
from jackline.agents.process.program import LeftBehind, Order, Spent, Start
from jackline.agents.process.runner import PrintedEar, ProgramRunner, found_program
from jackline.agents.task import AgentTask
from jackline.clock import Clock


class ClaudeCodeRunner(ProgramRunner):
    """Carries agents with Claude Code.

    `base_url` is a gateway's, `token` what it asks of its clients, `tag` the name under which it
    counts them (a run's id). `environment` is what Claude Code is given beside what the gateway
    needs: its credentials and its home are found there.
    """

    def __init__(
        self,
        base_url: str,
        *,
        program: str = "claude",
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        tag: str | None = None,
        token: str | None = None,
    ) -> None:
        found, environ = found_program(program, environment)
        super().__init__(ClaudeCode(Place(base_url, found, environ, tag, token)), clock)


class ClaudeCode:
    """Claude Code as a program that can be driven."""

    name = "claude-code"

    def __init__(self, place: Place) -> None:
        self._place = place

    def task_words(self, task: AgentTask) -> str:
        """What it is told as its task."""
        return task.prompt

    def asks_again(self, fault: str | None) -> str:
        """What to say to an agent that owes its structured answer."""
        return asks_again(fault)

    def why_not(self, task: AgentTask) -> str | None:
        """Why it cannot do this task at all."""
        if task.tools:
            return (
                "Claude Code brings its own tools and cannot call Python functions: name its tools "
                'as strings ("Read", "Bash(git *)"), give an MCP server, or use runner="messages"'
            )
        return None

    def start(self, task: AgentTask, order: Order) -> AbstractContextManager[Start]:
        """How to start it."""
        new_session = task.session_id
        if order.session_id is None and self._transcript(new_session) is not None:
            # Cut off before anything was in it: it can neither be resumed nor begun again.
            new_session = str(uuid5(UUID(new_session), "again"))
        return start_for(self._place, task, order, new_session)

    def ear(self, task: AgentTask, session_id: str | None) -> _Ear:
        """Somebody to hear the next process."""
        before = CostState()
        path = None if session_id is None else self._transcript(session_id)
        if path is not None:
            before = read_session(path).cost
        return _Ear(before, schema=task.schema is not None)

    def look_back(self, task: AgentTask, session_id: str | None) -> LeftBehind:
        """What its transcript holds of this session."""
        named = session_id or task.session_id
        path = self._transcript(named)
        if path is None:
            return LeftBehind()
        kept = read_session(path)
        if not kept.prompts and not kept.answers:
            return LeftBehind(transcript=str(path))
        holds = any(task.prompt.strip() == prompt.strip() for prompt in kept.prompts)
        return LeftBehind(
            named,
            str(path),
            holds,
            tuple(kept.calls.values()),
            frozenset(kept.settled),
            tuple(kept.prompts),
        )

    def _transcript(self, session_id: str) -> Path | None:
        return transcript_of(session_id, self._place.environment)


class _Ear(PrintedEar[Printed]):
    """Hears one process of Claude Code."""

    def __init__(self, before: CostState, *, schema: bool) -> None:
        super().__init__(Printed(), judge, schema=schema)
        self._before = before

    @property
    def counted(self) -> None:
        """Nothing: not all versions keep count, and those that do count only what ended well."""
        return None

    def spent(self) -> Spent:
        """What this process cost: newer clients tell it for the whole session."""
        result = self._printed.result
        if result is None or not result.usage:
            return Spent()
        before = self._before
        usage = [
            (model, _since(told, before.usage.get(model, Usage()))) for model, told in result.usage
        ]
        cost = result.cost
        if cost is not None and cost >= before.cost:
            cost -= before.cost
        return Spent(tuple(usage), cost)


def _since(told: Usage, before: Usage) -> Usage:
    return told if told.total < before.total else beyond(told, before)
