"""The runner `codex`: carries an agent with the real Codex through the gateway.

Laws: those of process/ and of this room.
Not here: the loop itself (process/carrying.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from jackline.agents.codex.judging import asks_again, judge
from jackline.agents.codex.own_settings import Sandbox
from jackline.agents.codex.printed import Printed
from jackline.agents.codex.rollout import Rollout, read_rollout, rollout_of
from jackline.agents.codex.start import Place, start_for, task_words
from jackline.agents.outcome import Usage
from jackline.agents.process.history import beyond
from jackline.agents.process.program import LeftBehind, Order, Spent, Start
from jackline.agents.process.runner import PrintedEar, ProgramRunner, found_program
from jackline.agents.task import AgentTask
from jackline.clock import Clock


class CodexRunner(ProgramRunner):
    """Carries agents with Codex.

    `base_url` is a gateway's, `token` what it asks of its clients, `tag` the name under which it
    counts them (a run's id). `environment` is what Codex is given: its credentials and its home are
    found there. `sandbox` is what commands may do to the disk: by default change the working
    folder, or nothing if the user's own settings of Codex are stricter. An agent whose tools are
    named and none of which changes anything gets `read-only`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        program: str = "codex",
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        sandbox: Sandbox | None = None,
        tag: str | None = None,
        token: str | None = None,
    ) -> None:
        found, environ = found_program(program, environment)
        super().__init__(Codex(Place(base_url, found, environ, sandbox, tag, token)), clock)


class Codex:
    """Codex as a program that can be driven."""

    name = "codex"

    def __init__(self, place: Place) -> None:
        self._place = place

    def task_words(self, task: AgentTask) -> str:
        """What it is told as its task."""
        return task_words(task)

    def asks_again(self, fault: str | None) -> str:
        """What to say to an agent that owes its structured answer."""
        return asks_again(fault)

    def why_not(self, task: AgentTask) -> str | None:
        """Why it cannot do this task at all."""
        if task.tools:
            return (
                "Codex brings its own tools and cannot call Python functions: leave them out, give "
                'an MCP server, or use runner="messages"'
            )
        return None

    def start(self, task: AgentTask, order: Order) -> AbstractContextManager[Start]:
        """How to start it."""
        return start_for(self._place, task, order)

    def ear(self, task: AgentTask, session_id: str | None) -> _Ear:
        """Somebody to hear the next process."""
        before = Rollout() if session_id is None else self._rollout(session_id)
        return _Ear(task, before or Rollout(), self._rollout)

    def look_back(self, task: AgentTask, session_id: str | None) -> LeftBehind:
        """What its rollout holds of this thread."""
        path = None if session_id is None else rollout_of(session_id, self._place.environment)
        if path is None:
            return LeftBehind()
        kept = read_rollout(path)
        words = task_words(task).strip()
        holds = any(words in prompt for prompt in kept.prompts)
        return LeftBehind(
            session_id,
            str(path),
            holds,
            lost=tuple(kept.calls.values()),
            prompts=tuple(kept.prompts),
        )

    def _rollout(self, thread_id: str) -> Rollout | None:
        path = rollout_of(thread_id, self._place.environment)
        return None if path is None else read_rollout(path)


class _Ear(PrintedEar[Printed]):
    """Hears one process of Codex."""

    def __init__(
        self, task: AgentTask, before: Rollout, read: Callable[[str], Rollout | None]
    ) -> None:
        printed = Printed(task.model or before.model or "")
        super().__init__(printed, judge, schema=task.schema is not None)
        self._before = before
        self._read = read

    @property
    def counted(self) -> Usage:
        """What the thread had cost before."""
        return self._before.usage

    def spent(self) -> Spent:
        """What this process cost, by its rollout: it is printed only of turns that completed."""
        printed = self._printed
        now = None if printed.thread_id is None else self._read(printed.thread_id)
        if now is None:
            return Spent()
        usage = beyond(now.usage, self._before.usage)
        return Spent(((now.model or printed.model, usage),), turns=now.answers)
