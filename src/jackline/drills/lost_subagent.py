"""An agent on a rented machine meets a wall after forty minutes: what of its hour is kept.

Laws: (1) set-up, rent and release leave lines in files, which are the witnesses; (2) the process
that was parked is stopped, and another one, which knows only the store, goes on; (3) the plain
program is started again once the wall is gone, as its user would have to.
Not here: the wall for a whole fleet (session_limit_flow.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from jackline.agents.outcome import Ending, Outcome
from jackline.drills.answer import Block
from jackline.drills.crews import MINUTE, STEADY
from jackline.drills.drill import Demand, Drill, FlowFigures, FlowPart, Scene
from jackline.drills.flow_side import Provider, flow_host, provider_for
from jackline.drills.pace import Pace
from jackline.drills.plain_program import GaveUpError, PlainAgent, each, tool
from jackline.flows.arguments import encode_arguments
from jackline.flows.authoring import agent, step
from jackline.flows.context import ctx
from jackline.flows.definition import Flow, flow
from jackline.flows.doors import resume
from jackline.flows.orders import begin_run
from jackline.flows.progress import FlowEvent, RunParked
from jackline.flows.running import FlowRun
from jackline.simulator.conversation import Asked
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.lots import from_seed
from jackline.simulator.mind import Reply, Say

TURNS = 12
TURN_TAKES = 5 * MINUTE
WALL_AFTER = 40 * MINUTE
# Farther away than a gateway holds calls for.
RESETS_IN = 25 * MINUTE
PROMPT = "PART-1: train the model on the rented machine."
LAST_WORDS = "The model is trained."
SET_UP, RENTED, RELEASED, WORKED = "set-up.log", "rented.log", "released.log", "worked.log"


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


@dataclass(slots=True)
class Machine:
    """A machine for rent, and what is done on it: each a line in a file."""

    folder: Path
    pace: Pace

    def set_up(self) -> str:
        """Prepare the data."""
        return self._write(SET_UP, "set up")

    def rent(self) -> str:
        """Rent a machine and give its name."""
        return self._write(RENTED, f"gpu-{len(self.lines(RENTED)) + 1}")

    def release(self, name: str) -> None:
        """Give it back."""
        self._write(RELEASED, name)

    @property
    def release_command(self) -> str:
        """The same as a command of the shell, whichever that is."""
        return f'echo %s>> "{self.folder / RELEASED}"'

    async def work(self, hour: int) -> str:
        """Do one piece of the work."""
        await self.pace.sleep(TURN_TAKES)
        return self._write(WORKED, f"piece {hour}")

    def lines(self, name: str) -> list[str]:
        """What was written to one of the files."""
        path = self.folder / name
        return path.read_text("utf-8").split("\n")[:-1] if path.exists() else []

    def _write(self, name: str, line: str) -> str:
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return line


def lost_subagent() -> Drill:
    """The drill."""
    part = FlowPart(
        name="rented_machine",
        bare=_bare,
        jackline=_as_a_flow,
        demands=(
            Demand("the work completes", "left_behind", most=0),
            Demand("the set-up ran once", "set_ups", most=1),
            Demand("on one machine, from beginning to end", "machines", most=1),
            Demand("which was given back", "leaked", most=0),
            Demand("once", "released_twice", most=0),
            Demand("no piece of work was done twice", "hours_repeated", most=0),
            Demand("parked and finished are told as what they are", "misreported", most=0),
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


def reply(asked: Asked) -> Reply:
    """What the model says: a piece of work in each turn, then the end."""
    if asked.turn < TURNS:
        return Say("Going on.", (("work", {"hour": asked.turn + 1}),))
    return Say(LAST_WORDS)


# --- the plain program ---------------------------------------------------------------------


async def _bare(scene: Scene) -> FlowFigures:
    pace = Pace(scene.speed)
    machine = Machine(scene.folder, pace)
    async with provider_for(reply, STEADY, scene.speed) as provider:
        _let_the_wall_come(provider)
        said, started = "", 0
        while not said:
            started += 1
            said = await _plain_training(provider.url, machine)
            # Whoever comes back after the reset starts it again from the beginning.
            provider.playing.clear_faults()
        return _figures(machine, provider, said, misreported=0, started_by_hand=started - 1)


async def _plain_training(url: str, machine: Machine) -> str:
    machine.set_up()
    name = machine.rent()
    plain = PlainAgent(url, machine.pace, from_seed(0))

    async def worked(call: Block) -> str:
        return await machine.work(call["input"]["hour"])

    offered = [tool("work", hour="integer")]
    try:
        said = await plain.work(PROMPT, offered, lambda calls: each(calls, worked))
    except GaveUpError:
        return ""  # the process is gone, and with it what it knew of the machine
    machine.release(name)
    return said


# --- the flow ------------------------------------------------------------------------------


@dataclass(slots=True)
class _StopWhenParked:
    """Plays the user who goes home when the run is parked."""

    run: FlowRun[str] | None = None
    events: list[FlowEvent] = field(default_factory=list)

    def hear(self, event: FlowEvent) -> None:
        """Listen to the run."""
        self.events.append(event)
        if isinstance(event, RunParked) and self.run is not None:
            self.run.stop("Its user went home.")


async def _as_a_flow(scene: Scene) -> FlowFigures:
    pace = Pace(scene.speed)
    machine = Machine(scene.folder, pace)
    store = scene.folder / "flows.db"
    training = _training(machine)
    async with provider_for(reply, STEADY, scene.speed) as provider:
        _let_the_wall_come(provider)
        user = _StopWhenParked()
        async with flow_host(provider.url, store, pace, watched=scene.watched) as host:
            given = encode_arguments(training.function, (), {})
            user.run = await begin_run(host, training, given, listener=user.hear)
            parked = await user.run.carry()
            run_id = user.run.run_id
        async with flow_host(provider.url, store, pace, watched=scene.watched) as host:
            ended = await resume(run_id, flow=training, host=host)
            await scene.watched.linger("lost-subagent", pace)
    wrong = _wrong_of_parked(parked, user.events) + _wrong_of_ended(ended)
    return _figures(machine, provider, ended.value or "", wrong, started_by_hand=1)


def _training(machine: Machine) -> Flow[[], str]:
    async def work(hour: int) -> str:
        """Do one piece of the work."""
        return await machine.work(hour)

    @flow(name="training")
    async def training() -> str:
        await step(machine.set_up)
        name = await step(machine.rent)
        await ctx.resource(name, release=machine.release_command % name, lease="12h")
        return await agent(PROMPT, tools=[work], label="PART-1")

    return training


def _wrong_of_parked(outcome: Outcome[str], events: list[FlowEvent]) -> int:
    """How many of the things that a parked run must say are not said."""
    parked = [event for event in events if isinstance(event, RunParked)]
    told = [
        outcome.parked,
        outcome.exit_code == 75,
        outcome.terminated_by is Ending.QUOTA,
        outcome.evidence.resets_at is not None,
        len(parked) == 1 and parked[0].wake_at is not None,
    ]
    return told.count(False)


def _wrong_of_ended(outcome: Outcome[str]) -> int:
    told = [outcome.terminated_by is Ending.COMPLETION, outcome.tally.ok == 1, not outcome.parked]
    return told.count(False)


# --- both ----------------------------------------------------------------------------------


def _let_the_wall_come(provider: Provider) -> None:
    until = WALL_AFTER + RESETS_IN
    provider.playing.add_fault(Fault(Effect.QUOTA_WALL, WALL_AFTER, until))


def _figures(
    machine: Machine, provider: Provider, said: str, misreported: int, *, started_by_hand: int
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
