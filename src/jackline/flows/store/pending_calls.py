"""Find the tool calls that a run would make from its logs before the model is called again.

Rules: (1) a log is read as a resumed agent reads it: alone, and after the lines of every agent
that it says it continues; (2) logs count by their run, not by its calls: the agent's id follows
from the flow, so that a log is found without a call; (3) a log that cannot be read whole is
refused, since nobody can be shown what it contains.
Not here: showing them (cli/), making them (agents/messages/). Apart from agent_log.py, because it
loads agents/messages/, which flows do not need at their start.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from jackline.agents.messages.conversation import AgentConversation
from jackline.agents.process.resume import History
from jackline.agents.runner import LogEntry
from jackline.errors import UsageError
from jackline.flows.store.agent_log import ContinuedAgent, continued_agent_in, is_own_line
from jackline.flows.store.run_store import RunStore

# More than anybody writes by hand; beyond it a chain is a circle.
_LONGEST_CHAIN = 1000


@dataclass(frozen=True, slots=True)
class PendingToolCall:
    """A tool call that an answer asks for and that has no result yet."""

    task_id: str
    name: str
    arguments: str
    """As JSON, whole."""


@dataclass(frozen=True, slots=True)
class PendingSession:
    """A session of an agent's program that would be resumed."""

    task_id: str
    session_id: str


async def pending_calls(engine: RunStore, run_id: str) -> list[PendingToolCall | PendingSession]:
    """What the notebooks of this run lead to; UsageError when one of them cannot be read."""
    found: dict[PendingToolCall | PendingSession, None] = {}  # a set that keeps the order
    for task_id in await engine.notebooks(run_id):
        try:
            own, follows = await _lines(engine, task_id, None)
            chains = [await _chain(engine, each) for each in follows]
            for before in ([], *chains):
                for call in AgentConversation.from_log([*before, *own]).calls:
                    if call.ended is None:
                        given = json.dumps(call.arguments, ensure_ascii=False)
                        found[PendingToolCall(task_id, call.name, given)] = None
            session = History.from_log(own).session_id
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise _unreadable(run_id, task_id) from error
        if session is not None:
            found[PendingSession(task_id, session)] = None
    return list(found)


async def _lines(
    engine: RunStore, task_id: str, most: int | None
) -> tuple[list[LogEntry], Sequence[ContinuedAgent]]:
    """The runner's lines of one notebook, and whom it says it goes on from."""
    records = (await engine.entries(task_id))[:most]
    lines = [LogEntry(each.kind, json.loads(each.data), each.at) for each in records]
    follows = [found for line in lines if (found := continued_agent_in(line.kind, line.data))]
    return [line for line in lines if not is_own_line(line)], follows


async def _chain(engine: RunStore, whom: ContinuedAgent | None) -> list[LogEntry]:
    """The lines of this agent and of all that it went on from, the oldest first."""
    parts: list[list[LogEntry]] = []
    while whom is not None:
        part, follows = await _lines(engine, whom.task_id, whom.lines)
        parts.append(part)
        if len(parts) > _LONGEST_CHAIN:
            raise ValueError("the agents go on from one another in a circle")
        whom = follows[0] if follows else None
    return [line for part in reversed(parts) for line in part]


def _unreadable(run_id: str, task_id: str) -> UsageError:
    return UsageError(
        f"The notebook of agent {task_id} of run {run_id} cannot be read, so that nobody can see"
        " what it would run; nothing was accepted.",
        hint=f"delete the run: jackline rm {run_id} --force",
    )
