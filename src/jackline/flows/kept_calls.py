"""Find the tool calls that a run would make from its notebooks, before the model is asked again.

Rules: (1) a notebook is read as a resumed agent reads it: alone, and after the lines of every agent
that it says it goes on from; (2) notebooks count by their run, not by its calls: the agent's id
follows from the flow, so that a notebook is found without a call; (3) a notebook that cannot be
read whole is refused, since nobody can be shown what it holds.
Not here: showing them (cli/accepting_run.py), making them (agents/messages/tool_turn.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from jackline.agents.messages.conversation import conversation
from jackline.agents.ports import Entry
from jackline.agents.process.history import history_of
from jackline.errors import UsageError
from jackline.flows.engine import Engine
from jackline.flows.notebook import Follows, follows_in, is_own_line

# More than anybody writes by hand; beyond it a chain is a circle.
_LONGEST_CHAIN = 1000


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A tool call that an answer asks for and that has no result yet."""

    task_id: str
    name: str
    arguments: str
    """As JSON, whole."""


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A session of an agent's program that would be resumed."""

    task_id: str
    session_id: str


async def kept_calls(engine: Engine, run_id: str) -> list[KeptCall | KeptSession]:
    """What the notebooks of this run lead to; UsageError when one of them cannot be read."""
    found: dict[KeptCall | KeptSession, None] = {}  # a set that keeps the order
    for task_id in await engine.notebooks(run_id):
        try:
            own, follows = await _lines(engine, task_id, None)
            chains = [await _chain(engine, each) for each in follows]
            for before in ([], *chains):
                for call in conversation([*before, *own]).calls:
                    if call.ended is None:
                        given = json.dumps(call.arguments, ensure_ascii=False)
                        found[KeptCall(task_id, call.name, given)] = None
            session = history_of(own).session_id
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise _unreadable(run_id, task_id) from error
        if session is not None:
            found[KeptSession(task_id, session)] = None
    return list(found)


async def _lines(
    engine: Engine, task_id: str, most: int | None
) -> tuple[list[Entry], Sequence[Follows]]:
    """The runner's lines of one notebook, and whom it says it goes on from."""
    records = (await engine.entries(task_id))[:most]
    lines = [Entry(each.kind, json.loads(each.data), each.at) for each in records]
    follows = [found for line in lines if (found := follows_in(line.kind, line.data))]
    return [line for line in lines if not is_own_line(line)], follows


async def _chain(engine: Engine, whom: Follows | None) -> list[Entry]:
    """The lines of this agent and of all that it went on from, the oldest first."""
    parts: list[list[Entry]] = []
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
        next=f"delete the run: jackline rm {run_id} --force",
    )
