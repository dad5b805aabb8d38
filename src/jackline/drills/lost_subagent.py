"""The drill of an agent on a rented machine that meets a wall after forty minutes of work.

Rules: (1) set-up, rent and release write lines to files, which are the evidence; (2) the process
of the parked run ends, and another one, which knows only the store, resumes the run; (3) the wall
comes with a turn, not at a time, so that a slow machine meets it too; (4) the plain program is
started again once the wall is gone, as its user would have to do.
Not here: the wall for a whole fleet (session_limit_flow.py), the flow (lost_subagent_flow.py),
its processes (flow_process.py).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackline.agents.outcome import Ending, Outcome
from jackline.drills.conversation import Block
from jackline.drills.drill import (
    MINUTE,
    STEADY,
    Drill,
    FlowFigures,
    FlowPart,
    Requirement,
    SideContext,
)
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import DrillProvider, gateway_for_runs, provider_for
from jackline.drills.lost_subagent_flow import (
    PROMPT,
    RELEASED,
    RENTED,
    SET_UP,
    TURN_TAKES,
    WORKED,
    Machine,
)
from jackline.drills.plain_program import GaveUpError, PlainAgent, each, tool
from jackline.drills.processes import EndedProcess, programs_of
from jackline.errors import InternalError
from jackline.flows.records import RunRecord, RunState, decode_outcome
from jackline.flows.store.sqlite import SqliteRunStore
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.reply_script import Reply, Say
from jackline.simulator.time_model import seeded_random

TURNS = 12
WALL_AFTER = 40 * MINUTE
# Farther away than a gateway holds calls for, and than a process takes to start, hurried as it is.
RESETS_IN = 40 * MINUTE
LAST_WORDS = "The model is trained."
_FLOW = str(Path(__file__).with_name("lost_subagent_flow.py"))


@dataclass(frozen=True, slots=True)
class LostFigures(FlowFigures):
    """What was done, and how often."""

    left_behind: int
    set_ups: int
    machines: int
    """Machines that were rented."""
    released: int
    leaked: int
    """Machines that nobody has given back."""
    released_twice: int
    hours_repeated: int
    """Pieces of work that were done more than once."""
    misreported: int
    """What the run said of its ends, and is not so."""
    started_by_hand: int


def lost_subagent() -> Drill:
    """The drill."""
    part = FlowPart(
        name="rented_machine",
        bare=_bare,
        jackline=_as_a_flow,
        demands=(
            Requirement("the work completes", "left_behind", most=0),
            Requirement("the set-up ran once", "set_ups", most=1),
            Requirement("on one machine, from beginning to end", "machines", most=1),
            Requirement("which was given back", "leaked", most=0),
            Requirement("once", "released_twice", most=0),
            Requirement("no piece of work was done twice", "hours_repeated", most=0),
            Requirement("parked and finished are told as what they are", "misreported", most=0),
        ),
        rows=(
            ("set-ups", "set_ups"),
            ("machines rented", "machines"),
            ("of these never given back", "leaked"),
            ("pieces of work done twice", "hours_repeated"),
        ),
        least_speed=120.0,
    )
    about = "an hour's work on a rented machine, a quota wall at 40 minutes, and a new process"
    return Drill("lost-subagent", about, (part,))


@dataclass(slots=True)
class ModelWithWall:
    """The model, and the wall that it meets once."""

    provider: DrillProvider | None = None
    came: bool = False

    def reply(self, asked: ClientRequest) -> Reply:
        """What the model says: a piece of work in each turn, then the end."""
        if asked.turn * TURN_TAKES >= WALL_AFTER and not self.came and self.provider is not None:
            self.came = True
            # It stands before this very request.
            self.provider.playing.add_fault(Fault(Effect.QUOTA_WALL, until=RESETS_IN))
        if asked.turn < TURNS:
            return Say("Going on.", (("work", {"hour": asked.turn + 1}),))
        return Say(LAST_WORDS)


@asynccontextmanager
async def _provider(speed: float) -> AsyncIterator[DrillProvider]:
    wall = ModelWithWall()
    async with provider_for(wall.reply, STEADY, speed) as provider:
        wall.provider = provider
        yield provider


# --- the plain program ---------------------------------------------------------------------


async def _bare(scene: SideContext) -> FlowFigures:
    pace, machine = DrillClock(scene.speed), Machine(scene.folder)
    async with _provider(scene.speed) as provider:
        said, started = "", 0
        while not said:
            started += 1
            said = await _plain_training(provider.url, machine, pace)
            # Whoever comes back after the reset starts it again from the beginning.
            provider.playing.clear_faults()
        return _figures(machine, provider, said, misreported=0, started_by_hand=started - 1)


async def _plain_training(url: str, machine: Machine, pace: DrillClock) -> str:
    machine.set_up()
    name = machine.rent()
    plain = PlainAgent(url, pace, seeded_random(0))

    async def worked(call: Block) -> str:
        return await machine.work(call["input"]["hour"], pace)

    offered = [tool("work", hour="integer")]
    try:
        said = await plain.work(PROMPT, offered, lambda calls: each(calls, worked))
    except GaveUpError:
        return ""  # the process is gone, and with it what it knew of the machine
    machine.release(name)
    return said


# --- the flow ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredRun:
    """What a process has left in the store."""

    run: RunRecord
    parked: int
    """How often its log says that it met a wall, and until when."""
    held: tuple[str, ...]
    """The machines that are on the ledger."""


async def _as_a_flow(scene: SideContext) -> FlowFigures:
    pace, machine, store = DrillClock(scene.speed), Machine(scene.folder), scene.folder / "flows.db"
    given = json.dumps({"folder": str(scene.folder), "clock": pace.told()})
    async with _provider(scene.speed) as provider:
        programs = programs_of(scene.folder, provider.url)
        async with gateway_for_runs(provider.url, store, pace, scene.watched) as url:
            process = ("-m", "jackline.drills.flow_process", pace.told(), url, str(store))
            first = await programs.ended(*process, "run", _FLOW, given)
            parked, left = _outcome(first), await _left_in(store)
            ended = _outcome(await programs.ended(*process, "resume", left.run.run_id))
            await scene.watched.linger("lost-subagent", pace)
    wrong = _wrong_of_parked(parked, first.code, left, machine) + _wrong_of_ended(ended)
    return _figures(machine, provider, ended.value or "", wrong, started_by_hand=1)


async def _left_in(store: Path) -> StoredRun:
    engine = SqliteRunStore(store)
    try:
        (run,) = await engine.runs()
        notes = await engine.notes(run.run_id)
        held = await engine.resources()
    finally:
        await engine.close()
    # Its last line says what it was left as; the other one says until when.
    walls = [note for note in notes if note.what == "parked" and note.detail.get("wake_at")]
    return StoredRun(run, len(walls), tuple(row.name for row in held))


def _outcome(process: EndedProcess) -> Outcome[Any]:
    if not process.printed:
        raise InternalError(f"a process of the drill ended with {process.code}: {process.said}")
    return decode_outcome(process.printed.encode())


def _wrong_of_parked(
    outcome: Outcome[Any], exit_code: int, left: StoredRun, machine: Machine
) -> int:
    """How many of the things that a parked run must say, or leave, are not said or left."""
    told = [
        outcome.parked,
        outcome.exit_code == exit_code == 75,
        outcome.terminated_by is Ending.QUOTA,
        outcome.evidence.resets_at is not None,
        left.run.state is RunState.PARKED and left.run.wake_at is not None,
        left.parked == 1,
        list(left.held) == machine.lines(RENTED),
    ]
    return told.count(False)


def _wrong_of_ended(outcome: Outcome[Any]) -> int:
    told = [outcome.terminated_by is Ending.COMPLETION, outcome.tally.ok == 1, not outcome.parked]
    return told.count(False)


# --- both ----------------------------------------------------------------------------------


def _figures(
    machine: Machine, provider: DrillProvider, said: str, misreported: int, *, started_by_hand: int
) -> LostFigures:
    rented, released = machine.lines(RENTED), machine.lines(RELEASED)
    worked = machine.lines(WORKED)
    finished = said == LAST_WORDS and len(set(worked)) == TURNS
    return LostFigures(
        agents=1,
        finished=int(finished),
        requests=len(provider.ledger),
        left_behind=int(not finished),
        set_ups=len(machine.lines(SET_UP)),
        machines=len(rented),
        released=len(released),
        leaked=len(set(rented) - set(released)),
        released_twice=len(released) - len(set(released)),
        hours_repeated=len(worked) - len(set(worked)),
        misreported=misreported,
        started_by_hand=started_by_hand,
    )
