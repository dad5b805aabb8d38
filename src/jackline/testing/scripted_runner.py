"""Play agents by a script: as many turns as said, then the ending that was said.

    runner = ScriptedRunner(lambda task: Play(value="done", turns=3))
    host = FlowHost(MemoryEngine(), lambda _run_id: {"messages": runner})

Laws: (1) it keeps a runner's contract: leave before each turn, a line for each, and it goes on
where the notebook ends; (2) it counts what really ran, so that a test tells replays from repeats.
Not here: a real loop with tools (agents/messages/).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from jackline.agents.outcome import Ending, Evidence, Outcome, Usage
from jackline.agents.ports import Leave, Notebook, StopAgentError
from jackline.agents.task import AgentTask
from jackline.agents.time_limit import within
from jackline.clock import Clock, SystemClock
from jackline.failures import Failure, Kind, Scope

_TURN = "turn"
MODEL = "scripted-model"


@dataclass(frozen=True, slots=True)
class Play:
    """What one agent does: its turns, what each takes, and how it ends."""

    value: object = "done"
    turns: int = 1
    tokens: int = 100
    """For each turn."""
    dollars: float | None = None
    """For each turn."""
    seconds: float = 0.0
    """For each turn."""
    ending: Ending = Ending.COMPLETION
    evidence: Evidence = field(default_factory=Evidence)
    text: str = ""
    during: Callable[[], Awaitable[None]] | None = None
    """Done in each turn, as a tool would."""


Script: TypeAlias = Callable[[AgentTask], Play | object]


def _answer_with_prompt(task: AgentTask) -> Play:
    return Play(value=f"answer to {task.prompt}")


class ScriptedRunner:
    """A runner that plays a script; anything but a `Play` is taken for its value."""

    def __init__(
        self,
        script: Script = _answer_with_prompt,
        *,
        name: str = "messages",
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._script = script
        self._clock = clock or SystemClock()
        self.begun: list[str] = []
        """Labels of the agents that were begun, again and again if so."""
        self.asked: list[str] = []
        """Labels of the agents for which a model was asked, a wall included."""
        self.answered: list[str] = []
        """Labels of the agents whose turns were answered."""
        self.tasks: list[AgentTask] = []
        self.at_once = 0
        self.most_at_once = 0
        self.wall_until: datetime | None = None
        """Before this time every turn meets a quota."""
        self.wall_is_billing = False

    async def carry(self, task: AgentTask, notebook: Notebook, leave: Leave) -> Outcome[object]:
        """Play the agent on from where its notebook ends."""
        self.begun.append(task.label)
        self.tasks.append(task)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            played: Any = self._script(task)
            if inspect.isawaitable(played):
                played = await played
            play = played if isinstance(played, Play) else Play(value=played)
            return await self._played(task, play, notebook, leave)
        finally:
            self.at_once -= 1

    async def _played(
        self, task: AgentTask, play: Play, notebook: Notebook, leave: Leave
    ) -> Outcome[object]:
        done = sum(entry.kind == _TURN for entry in notebook.entries)
        ending, evidence = play.ending, play.evidence
        try:
            while done < play.turns:
                await self._turn(task, play, notebook, leave)
                done += 1
        except StopAgentError as stop:
            ending, evidence = stop.ending, stop.evidence
        completed = ending is Ending.COMPLETION
        return Outcome(
            ending,
            play.value if completed else None,
            text=play.text or (str(play.value) if completed else ""),
            evidence=evidence,
            usage=Usage(output_tokens=done * play.tokens),
            cost=None if play.dollars is None else done * play.dollars,
            turns=done,
        )

    async def _turn(self, task: AgentTask, play: Play, notebook: Notebook, leave: Leave) -> None:
        await leave.before_call()
        self.asked.append(task.label)
        if play.seconds:
            await within(leave.time_limit, self._clock.sleep(play.seconds))
        while self.wall_until is not None and self._clock.now() < self.wall_until:
            await leave.wall(self._wall(), "You've hit your session limit")
            self.asked.append(task.label)
        if play.during is not None:
            await within(leave.time_limit, play.during())
        await notebook.write(_TURN, {"answer": "…"})
        self.answered.append(task.label)
        leave.spent(MODEL, Usage(output_tokens=play.tokens), play.dollars)

    def _wall(self) -> Failure:
        # A test double plays the judge, too: what `classify` gives for a real session limit.
        if self.wall_is_billing:
            return Failure(Kind.BILLING, None, Scope.ACCOUNT, False, True)
        return Failure(
            Kind.ACCOUNT_QUOTA,
            "session",
            Scope.ACCOUNT,
            retry_same=False,
            failover_helps=True,
            resets_at=self.wall_until,
        )
