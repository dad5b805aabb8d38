"""The demo: one fleet twice, through a storm, a wall and an outage, with a sentence at each step.

Rules: (1) every number in a sentence is read from the simulator's ledger or from the clients'
records at that moment; a scene that was not played is not described; (2) both fleets work at the
same time, each at its own provider, with the same faults; (3) the same checks as those of a drill
decide whether it passed; (4) nothing of the user is read or changed: the gateway has a free port,
its own state and configuration, and is gone at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from jackline.drills.drill import (
    ALL_FINISH,
    HAIKU,
    NO_ERROR_SEEN,
    SONNET,
    CrewPart,
    Drill,
    Requirement,
    crew,
    crew_script,
)
from jackline.drills.drill_clock import DrillClock
from jackline.drills.drill_run import (
    BuiltinFleet,
    CrewRun,
    DrillOptions,
    DrillResult,
    PartResult,
    Side,
)
from jackline.drills.environment import open_gateway
from jackline.drills.evaluation import Figures, check_requirements
from jackline.drills.live_view import LiveView, ProgressLine
from jackline.simulator.faults import Effect, Fault

_LOOK_EVERY_S = 0.25
# Between two sentences when all trouble is over, while more and more calls are let through.
_QUIET_S = 25.0
_COUNT = 8
_NAMES = {Side.BARE: "straight", Side.JACKLINE: "Jackline"}


@dataclass(frozen=True, slots=True)
class Scene:
    """One kind of trouble; times are drill seconds since the first fault."""

    begins: float
    ends: float
    title: str
    over: str
    faults: tuple[Fault, ...]

    @property
    def settled(self) -> float:
        """When both fleets have had time to go on."""
        return self.ends + 6.0


SCENES = (
    Scene(
        0.0,
        18.0,
        'STORM: for 18 s, one model is answered with 429 "not your usage limit".',
        "The storm is over.",
        (Fault(Effect.THROTTLED, 0.0, 18.0, model="sonnet"),),
    ),
    Scene(
        25.0,
        48.0,
        "WALL: the account's quota is used up; the provider resets it in 23 s.",
        "The quota has been reset.",
        (Fault(Effect.QUOTA_WALL, 25.0, 48.0),),
    ),
    Scene(
        60.0,
        75.0,
        "OUTAGE: 10 s of errors that also break running answers, then 5 s without connections.",
        "The provider is back.",
        (
            Fault(Effect.SERVER_ERROR, 60.0, 70.0, kills_in_flight=0.5),
            Fault(Effect.REFUSED, 70.0, 75.0),
        ),
    ),
)
_CREW = crew(_COUNT, (SONNET, SONNET, HAIKU, SONNET))
DEMO = Drill(
    "demo",
    "a storm, a wall and an outage within three minutes",
    (
        CrewPart(
            name="demo",
            crew=_CREW,
            script=crew_script(_CREW, turns=6, tokens=240),
            faults=tuple(fault for scene in SCENES for fault in scene.faults),
            faults_after=_COUNT + 4,
            requirements=(
                *ALL_FINISH,
                NO_ERROR_SEEN,
                Requirement(
                    "after the first refusal nothing is sent into the wall but one probe",
                    "sent_into_the_wall",
                    most=1,
                ),
            ),
            time_limit=600.0,
        ),
    ),
)


@dataclass(slots=True, eq=False)
class Stage(LiveView):
    """Where the demo is watched; at the end the result is printed before anybody waits."""

    on_open: Callable[[str], Awaitable[None]] | None = None
    stays_open: bool = False
    at_end: Callable[[], None] = lambda: None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    _opening: asyncio.Future[None] | None = field(default=None, init=False)

    def opened(self, url: str, state: Path) -> None:
        """Print where to look."""
        self.state = state
        self.ready.set()
        self.progress(f"The page: {url}  (as long as the demo runs)")
        if self.on_open is not None:
            self._opening = asyncio.ensure_future(self.on_open(url))

    async def wait_for_viewer(self, name: str, clock: DrillClock) -> None:
        """Print the result; keep the page open, in real time, for somebody who looks at it."""
        self.at_end()
        if self.stays_open:
            clock.use_real_time()
            self.progress(f"The {name} has ended; the page stays open until you press Ctrl-C.")
            await self.until()


class Demo:
    """The demo at work: `run` returns its result."""

    def __init__(self, speed: float, stage: Stage, say: ProgressLine) -> None:
        self._say = say
        self._speed = speed
        self._stage = stage
        options = DrillOptions("the built-in client", BuiltinFleet, open_gateway, speed)
        (self._part,) = DEMO.crews
        self._runs = {
            side: CrewRun(self._part, side, replace(options, live_view=stage)) for side in Side
        }
        self._result: DrillResult | None = None
        stage.at_end = self._end

    async def run(self) -> DrillResult:
        """Play everything."""
        for line in _PROLOGUE:
            self._say(line)
        narrator = asyncio.create_task(self._narrate())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._runs[Side.JACKLINE].run())
                # A gateway takes longer to start than nothing: both fleets begin when it is there.
                await self._stage.ready.wait()
                group.create_task(self._runs[Side.BARE].run())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        finally:
            narrator.cancel()
            await asyncio.gather(narrator, return_exceptions=True)
        return self._result or self._evaluate()

    # --- sentences ---------------------------------------------------------------------

    async def _narrate(self) -> None:
        """One sentence when a scene begins, some in its middle, some when it is over."""
        for scene in SCENES:
            before, _ = await self._until(scene.begins)
            self._at(scene.title)
            _, now = await self._until((scene.begins + scene.ends) / 2)
            self._sides(before, now)
            await self._status()
            _, now = await self._until(scene.settled)
            self._at(scene.over)
            self._sides(before, now)
        clock = DrillClock(self._speed)
        while True:
            await clock.sleep(_QUIET_S)
            ours = self._runs[Side.JACKLINE].figures
            if ours is not None:
                self._at(f"{ours.finished} of {ours.agents} agents have finished.")

    async def _until(self, moment: float) -> tuple[dict[Side, Figures], dict[Side, Figures]]:
        """What each side had counted just before this moment, and when it had come there."""
        clock = DrillClock(self._speed)
        before: dict[Side, Figures] = {}
        there: dict[Side, Figures] = {}
        while True:
            for side, run in self._runs.items():
                figures = run.figures
                if figures is None or side in there:
                    continue
                if run.fault_seconds is not None and run.fault_seconds >= moment:
                    there[side] = figures
                    before.setdefault(side, figures)
                else:
                    before[side] = figures
            if len(there) == len(self._runs):
                return before, there
            await clock.sleep(_LOOK_EVERY_S)

    def _at(self, text: str) -> None:
        seconds = int(max(run.seconds for run in self._runs.values()))
        self._say(f"\n{seconds // 60}:{seconds % 60:02}  {text}")

    def _sides(self, before: dict[Side, Figures], now: dict[Side, Figures]) -> None:
        """Print what has happened to each fleet since the scene began."""
        for side in Side:
            self._say(f"      {_NAMES[side]:<10}{describe(before[side], now[side])}")

    async def _status(self) -> None:
        """Print what the gateway says of itself, as `jackline status` would."""
        endpoint = self._runs[Side.JACKLINE].evidence.endpoint
        verdict = "" if endpoint is None else await endpoint.verdict()
        if verdict:
            # Its first sentence; the others name every lane.
            self._say(f"      {'':<10}and reports: “{verdict.partition('. ')[0].rstrip('.')}.”")

    # --- the end -------------------------------------------------------------------------

    def _evaluate(self) -> DrillResult:
        bare, ours = (self._runs[side].figures for side in Side)
        results = check_requirements(self._part, bare, ours, self._speed) if bare and ours else ()
        parts = (PartResult(self._part, bare, ours, results),)
        return DrillResult(DEMO, "the built-in client", self._speed, parts, bool(results))

    def _end(self) -> None:
        """Print the result while the page is still there."""
        self._result = self._evaluate()
        self._at("The end. The simulator's ledger has counted:")
        for part in self._result.parts:
            for line in part.to_text():
                self._say(line)
            for one in part.results:
                self._say(f"    {'ok  ' if one.met else 'MISS'}  {one.requirement.text}")


_PROLOGUE = (
    f"{_COUNT} agents do the same work twice at the same time: straight at a provider, and through",
    "a gateway of Jackline. The provider is simulated: no key, no cost, nothing leaves this",
    "machine. The agents send and retry as Claude Code 2.1.197 does with a subscription.",
    "It takes about three minutes; Ctrl-C ends it and leaves nothing behind.",
)


def describe(before: Figures, now: Figures) -> str:
    """One side in a sentence: who is left, what agents noticed, and what was sent for nothing."""
    if not before.unfinished:
        finished = f"; {before.finished} had finished" if before.finished else ""
        return f"{before.died} of {before.agents} agents were dead before it began{finished}."
    died = now.died - before.died
    into_wall = now.sent_into_the_wall - before.sent_into_the_wall
    words = [
        f"{now.finished + now.unfinished} of {now.agents} agents are alive",
        *([f"{died} died"] if died else ()),
        _counted(now.errors_seen - before.errors_seen, "error", "reached an agent"),
        _counted(now.wasted - before.wasted, "request", "failed at the provider"),
        *([_counted(into_wall, "request", "went into the known wall")] if into_wall else ()),
    ]
    return f"{'; '.join(words)}."


def _counted(count: int, noun: str, verb: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'} {verb}"
