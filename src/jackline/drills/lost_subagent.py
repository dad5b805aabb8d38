"""The drill of an agent on a rented machine that meets a wall after forty minutes of work.

Its flow runs in processes of their own, by the drill clock:

    python -m jackline.drills.lost_subagent CLOCK GATEWAY STORE_URL run ARGUMENTS
    python -m jackline.drills.lost_subagent CLOCK GATEWAY STORE_URL resume RUN

Rules: (1) set-up, rent and release write lines to files, which are the evidence; (2) the wall comes
with a turn, not at a time, so that a slow machine meets it too; (3) a process that began a run
exits when the run is parked, as if its terminal was closed: what was not saved by then is lost; (4)
another one resumes the run; as `jackline resume`, it loads this file as a user's, and finds all
else in the store alone, also the machine, which is rented and saved as a resource in one step; (5)
the last line on stdout is the outcome as JSON, the exit code is the outcome's; (6) the plain
program is started again once the wall is gone, as its user would have to do.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackline import agent, ctx, event_loop, flow, step
from jackline.agents.outcome import Ending, Outcome
from jackline.drills.conversation import Block, ClientGaveUpError
from jackline.drills.drill import (
    MINUTE,
    Drill,
    ProgramFigures,
    ProgramPart,
    ProgramSide,
    Requirement,
)
from jackline.drills.drill_clock import DrillClock
from jackline.drills.environment import open_flow_host
from jackline.drills.plain_program import PlainAgent, each, tool
from jackline.drills.processes import EndedProcess, Programs
from jackline.flows.api import resume
from jackline.flows.authoring.flow_definition import load_flow
from jackline.flows.flow_run import FlowRun
from jackline.flows.lifecycle import begin_run
from jackline.flows.records import RunState, encode_outcome
from jackline.flows.run_events import FlowEvent, RunParked
from jackline.flows.store import open_run_store
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.reply_script import Reply, Say
from jackline.simulator.time_model import seeded_random

PROMPT = "PART-1: train the model on the rented machine."
TURN_SECONDS = 300.0
SET_UP, RENTED, RELEASED, WORKED = "set-up.log", "rented.log", "released.log", "worked.log"


@dataclass(slots=True)
class Machine:
    """The machine whose files are in this folder."""

    folder: Path

    def rent(self) -> str:
        """Rent a machine; returns its name."""
        path = self.folder / RENTED
        rented = path.read_text("utf-8").splitlines() if path.exists() else []
        return self.write(RENTED, f"gpu-{len(rented) + 1}")

    async def work(self, hour: int, clock: DrillClock) -> str:
        """Do one piece of the work."""
        await clock.sleep(TURN_SECONDS)
        return self.write(WORKED, f"piece {hour}")

    def write(self, name: str, line: str) -> str:
        """Add a line to one of the files; returns the line."""
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return line


def set_up(folder: str) -> str:
    """Prepare the data."""
    return Machine(Path(folder)).write(SET_UP, "set up")


def rent(folder: str) -> str:
    """Rent a machine, to be released whatever happens."""
    name = Machine(Path(folder)).rent()
    release = f'echo {name}>> "{Path(folder) / RELEASED}"'
    ctx.resource(name, release=release, lease="12h")
    return name


@flow
async def training(folder: str, clock: str) -> str:
    """Train the model by the drill's clock."""
    drill_clock = DrillClock.from_text(clock)

    async def work(hour: int) -> str:
        """Do one piece of the work."""
        return await Machine(Path(folder)).work(hour, drill_clock)

    await step(set_up, folder)
    await step(rent, folder)
    return await agent(PROMPT, tools=[work], label="PART-1")


TURNS = 12
WALL_AFTER = 40 * MINUTE
# Farther away than a gateway holds calls for, and than a process needs to start in scaled time.
RESETS_IN = 40 * MINUTE
FINAL_TEXT = "The model is trained."


@dataclass(frozen=True, slots=True)
class LostFigures(ProgramFigures):
    """What was done, and how often."""

    left_behind: int
    set_ups: int
    machines: int
    """Machines that were rented."""
    released: int
    leaked: int
    """Machines that nobody has released."""
    released_twice: int
    hours_repeated: int
    """Pieces of work that were done more than once."""
    misreported: int
    """Facts about the parked and the finished run that were reported wrongly."""
    started_by_hand: int


@dataclass(slots=True, eq=False, kw_only=True)
class LostSide(ProgramSide):
    """One agent, whose model meets the wall once."""

    wall_came: bool = False

    def reply(self, request: ClientRequest) -> Reply:
        """A piece of work in each turn, then the end."""
        if request.turn * TURN_SECONDS >= WALL_AFTER and not self.wall_came:
            self.wall_came = True
            # This very request is refused.
            self.provider.add_fault(Fault(Effect.QUOTA_WALL, until=RESETS_IN))
        if request.turn < TURNS:
            return Say("Going on.", (("work", {"hour": request.turn + 1}),))
        return Say(FINAL_TEXT)

    async def bare(self) -> ProgramFigures:
        """The plain program, started again from the beginning after the reset."""
        machine, starts, answer = Machine(self.folder), 0, ""

        async def work(call: Block) -> str:
            return await machine.work(call["input"]["hour"], self.clock)

        while not answer:
            starts += 1
            set_up(str(self.folder))
            name = machine.rent()
            plain = PlainAgent(self.provider.url, self.clock, seeded_random(0))
            try:
                answer = await plain.work(PROMPT, [tool("work", hour="integer")], each(work))
            except ClientGaveUpError:
                # The process is gone, and with it what it knew of the machine.
                self.provider.playing.clear_faults()
            else:
                machine.write(RELEASED, name)
        return self._figures(answer, misreported=0, started_by_hand=starts - 1)

    async def jackline(self) -> ProgramFigures:
        """The flow: one process until it is parked, another one that resumes it."""
        arguments = json.dumps({"folder": str(self.folder), "clock": self.clock.as_text()})
        programs = Programs.before(self.folder, self.provider.url)
        async with self.gateway() as endpoint:
            places = (self.clock.as_text(), endpoint.url, self.store_url)
            process = ("-m", "jackline.drills.lost_subagent", *places)
            first = await programs.ended(*process, "run", arguments)
            run_id, wrong = await self._check_parked(first)
            second = await programs.ended(*process, "resume", run_id)
        ended = second.outcome()
        wrong += ended.terminated_by is not Ending.COMPLETION
        wrong += ended.tally.ok != 1
        wrong += ended.parked
        return self._figures(ended.value or "", misreported=wrong, started_by_hand=1)

    async def _check_parked(self, process: EndedProcess) -> tuple[str, int]:
        """The id of the run, and what a parked run must report or save, and did not."""
        outcome, runs = process.outcome(), open_run_store(self.store_url)
        try:
            (run,) = await runs.runs()
            notes = await runs.notes(run.run_id)
            held = await runs.resources()
        finally:
            await runs.close()
        # The last note has the final state; the other one has the time of waking.
        walls = [note for note in notes if note.what == "parked" and note.detail.get("wake_at")]
        facts = [
            outcome.parked,
            outcome.exit_code == process.code == 75,
            outcome.terminated_by is Ending.QUOTA,
            outcome.evidence.resets_at is not None,
            run.state is RunState.PARKED and run.wake_at is not None,
            len(walls) == 1,
            [resource.name for resource in held] == self.lines(RENTED),
        ]
        return run.run_id, facts.count(False)

    def _figures(self, answer: str, *, misreported: int, started_by_hand: int) -> LostFigures:
        rented, released = self.lines(RENTED), self.lines(RELEASED)
        worked = self.lines(WORKED)
        finished = answer == FINAL_TEXT and len(set(worked)) == TURNS
        return LostFigures(
            agents=1,
            finished=int(finished),
            requests=len(self.provider.ledger),
            left_behind=int(not finished),
            set_ups=len(self.lines(SET_UP)),
            machines=len(rented),
            released=len(released),
            leaked=len(set(rented) - set(released)),
            released_twice=len(released) - len(set(released)),
            hours_repeated=len(worked) - len(set(worked)),
            misreported=misreported,
            started_by_hand=started_by_hand,
        )


LOST_SUBAGENT = Drill(
    "lost-subagent",
    "an hour's work on a rented machine, a quota wall at 40 minutes, and a new process",
    (
        ProgramPart(
            name="rented_machine",
            side=LostSide,
            requirements=(
                Requirement("the work completes", "left_behind", most=0),
                Requirement("the set-up ran once", "set_ups", most=1),
                Requirement("on one machine, from beginning to end", "machines", most=1),
                Requirement("which was released", "leaked", most=0),
                Requirement("once", "released_twice", most=0),
                Requirement("no piece of work was done twice", "hours_repeated", most=0),
                Requirement("parked and finished are reported as such", "misreported", most=0),
            ),
            rows=(
                ("set-ups", "set_ups"),
                ("machines rented", "machines"),
                ("of these never released", "leaked"),
                ("pieces of work done twice", "hours_repeated"),
            ),
            least_speed=120.0,
        ),
    ),
)


async def main(clock: str, url: str, store_url: str, verb: str, *rest: str) -> int:
    """The process: begin a run or resume one; returns the exit code."""
    run: FlowRun[Any] | None = None

    def stop_when_parked(event: FlowEvent) -> None:
        if isinstance(event, RunParked) and run is not None:
            run.stop("Its terminal was closed.")

    def print_outcome(outcome: Outcome[Any]) -> int:
        line = encode_outcome(outcome, plain_value=outcome.value).decode()
        print(line, flush=True)  # noqa: T201 -- a program
        return outcome.exit_code

    async with open_flow_host(url, store_url, DrillClock.from_text(clock)) as host:
        if verb == "run":
            flow_of_file = load_flow(__file__)
            arguments = rest[0].encode()
            run = await begin_run(host, flow_of_file, arguments, listener=stop_when_parked)
            os._exit(print_outcome(await run.run()))
        outcome: Outcome[Any] = await resume(*rest, host=host)
    return print_outcome(outcome)


if __name__ == "__main__":
    sys.exit(event_loop.run(main(*sys.argv[1:])))
