"""A session of Claude Code with eight sub-agents, of which three meet a quota wall in mid-task.

Laws: (1) what was sent when, and what was answered twice, is read in the provider's ledger; what
ran twice, in a file; what the parent knew, in what it was told; (2) an agent counts as finished
only when its parent has its last words; (3) both sides are played by the real client, and the model
says the same as long as it is told the same.
Not here: what the model says (subagent_wall_mind.py), the processes (subagent_wall_client.py).
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from jackline.clock import SystemClock
from jackline.drills.crews import MINUTE
from jackline.drills.drill import Demand, Drill, FlowFigures, FlowPart, Scene
from jackline.drills.finding_clients import ClaudeCode
from jackline.drills.flow_side import Provider, provider_for
from jackline.drills.judging import IN_FLIGHT_S
from jackline.drills.subagent_wall_client import Place, bare_session, session_with_jackline
from jackline.drills.subagent_wall_mind import (
    LABELS,
    LOOKS,
    STEPS,
    STRUCK,
    STRUCK_MODEL,
    Script,
    Wall,
    last_words,
)
from jackline.simulator.conversation import Asked
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.ledger import Entry, Outcome
from jackline.simulator.mind import Reply
from jackline.simulator.service import ServiceSettings
from jackline.simulator.windows import Claim

SUBAGENT_WALL = "subagent-wall"
# Resets are on the minute; the agents must have been cut off, and their parent told, before it.
RESETS_IN_AT_LEAST = 20.0
_QUICK = ServiceSettings(first_byte=0.05, first_byte_spread=0.0, tokens_per_second=400.0)


@dataclass(frozen=True, slots=True)
class SubagentFigures(FlowFigures):
    """One side at the wall."""

    not_cut: int
    """Agents that the wall was for, and that did not meet it."""
    left_behind: int
    untold: int
    """Agents whose parent was not told what cut them off, until when, what had become of their
    steps, and how to go on with them."""
    taken_for_results: int
    """Words of an agent that was cut off, handed to the parent as if they were its result."""
    turns_repeated: int
    """Turns that were answered in full and asked for again."""
    steps_repeated: int
    """Steps that ran again."""
    steps_missing: int
    sent_into_the_wall: int
    """Requests that came when the refusal of an earlier one was known."""


def subagent_wall(claude: ClaudeCode) -> Drill:
    """The drill, played by this client."""
    part = FlowPart(
        name="subagent_wall",
        bare=partial(_play, claude, bare_session, with_jackline=False),
        jackline=partial(_play, claude, session_with_jackline, with_jackline=True),
        demands=(
            Demand("three sub-agents meet the wall", "not_cut", most=0),
            Demand("for each its parent is told the truth", "untold", most=0),
            Demand("no error passes for a result", "taken_for_results", most=0),
            Demand("all eight are complete in the end", "left_behind", most=0),
            Demand("with every step made", "steps_missing", most=0),
            Demand("no completed turn is repeated", "turns_repeated", most=0),
            Demand("and no step runs twice", "steps_repeated", most=0),
            Demand("nothing is sent into the known wall", "sent_into_the_wall", most=0),
        ),
        rows=(
            ("cut off, parent not told so", "untold"),
            ("errors taken for results", "taken_for_results"),
            ("left behind", "left_behind"),
            ("completed turns repeated", "turns_repeated"),
            ("steps that ran twice", "steps_repeated"),
            ("sent into a known wall", "sent_into_the_wall"),
        ),
        in_real_time=True,
        client=f"Claude Code {claude.version}",
    )
    about = "three of eight sub-agents meet a wall, and their parent goes on with them"
    return Drill(SUBAGENT_WALL, about, (part,))


async def _play(
    claude: ClaudeCode,
    session: Callable[[Place], Awaitable[None]],
    scene: Scene,
    *,
    with_jackline: bool,
) -> FlowFigures:
    def hear(asked: Asked) -> Reply:
        return script.reply(asked)

    async with provider_for(hear, _QUICK) as provider:
        script = Script(partial(_put_up_wall, provider), with_jackline=with_jackline)
        place = Place(scene.folder / "side", claude, provider.url)
        await session(place)
        lines = await asyncio.to_thread(_lines, place.project / LOOKS)
        return figures_of(script, list(provider.ledger), lines)


def _put_up_wall(provider: Provider) -> Wall:
    now = SystemClock().wall()
    minute = -(-(now + RESETS_IN_AT_LEAST) // MINUTE) * MINUTE
    # A second more: rounded to whole seconds, it must not be told as the minute before.
    wall = Fault(
        Effect.QUOTA_WALL,
        until=minute + 1.0 - now,
        model=STRUCK_MODEL,
        claim=Claim.SEVEN_DAY_OPUS,
    )
    handle = provider.playing.add_fault(wall)
    there = provider.playing.provider
    until = next(one.fault.until for one in there.faults if one.handle == handle)
    return Wall(there.settings.calendar.epoch_seconds(until), until)


def _lines(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines() if file.exists() else []


# --- what came of it -------------------------------------------------------------------------


def figures_of(script: Script, entries: Sequence[Entry], lines: Sequence[str]) -> SubagentFigures:
    """What a side came to: the ledger's entries, and the lines that steps have left."""
    heard = "\n".join(script.heard)
    finished = sum(last_words(label) in heard for label in LABELS)
    met = [entry for entry in entries if entry.wall]
    known = min((e.ended for e in met if e.ended is not None), default=math.inf)
    turns = [
        (*script.steps[entry.body_hash], entry.arrived)
        for entry in entries
        if entry.outcome is Outcome.COMPLETED and entry.body_hash in script.steps
    ]
    until = script.wall.until if script.wall is not None and met else math.inf
    spared = {label for label, step, arrived in turns if step == 1 and arrived < until}
    return SubagentFigures(
        agents=len(LABELS),
        finished=finished,
        requests=len(entries),
        not_cut=len(spared & set(STRUCK)) if met else len(STRUCK),
        left_behind=len(LABELS) - finished,
        untold=sum(not _was_told(label, script) for label in STRUCK),
        taken_for_results=sum(_passes_for_result(words, bad) for words, bad in script.results),
        turns_repeated=len(turns) - len({(label, step) for label, step, _ in turns}),
        steps_repeated=len(lines) - len(set(lines)),
        steps_missing=len(LABELS) * STEPS - len(set(lines)),
        sent_into_the_wall=sum(entry.arrived > known + IN_FLIGHT_S for entry in met),
    )


def _was_told(label: str, script: Script) -> bool:
    """Whether the parent knows what cut this agent off, until when, and how to go on with it."""
    if script.wall is None:
        return False
    minute = f"{datetime.fromtimestamp(script.wall.resets_at, UTC):%H:%M}"
    agent = script.agents.get(label)
    steps = r"(had finished 1 turns|may or may not have run)"
    of_claude = (
        rf"Sub-agent {agent} did not finish: terminated_by quota [^)]*resets {minute}(:\d\d)? UTC\)"
        rf'[^"]*{steps}[^"]*continue_from_task_id="{agent}"'
    )
    of_ours = (
        rf'"{label}" did not complete: quota\..*It resets at \S+T{minute}\S+.*'
        r'finished turns are kept.*agent\(resume="'
    )
    heard = "\n".join(script.heard)
    return any(re.search(words, heard, re.DOTALL) for words in (of_claude, of_ours))


def _passes_for_result(words: str, marked_as_error: bool) -> bool:
    tells = "not finish" in words.lower()
    return "limit · resets" in words and not marked_as_error and not tells
