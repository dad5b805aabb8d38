"""The drill that kills the process of a run many times: nothing finished is lost or paid twice.

Rules: (1) what was answered again is read in the provider's ledger, what ran again in files; (2)
what the store had as finished when the process died must not be requested again, without any
exception; (3) an undisturbed run of the same flow gives the expected result.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jackline.drills.drill import (
    QUICK,
    Drill,
    ProgramFigures,
    ProgramPart,
    ProgramSide,
    Requirement,
)
from jackline.drills.power_cut_work import SECOND, SET_UP, USED
from jackline.drills.processes import Programs, RequestCounter
from jackline.flows.records import CallState
from jackline.flows.store import open_run_store, run_store_exists, run_store_url
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import RequestOutcome
from jackline.simulator.reply_script import Reply, Say
from jackline.simulator.time_model import seeded_random

LOOKS = 3
AT_ONCE = 6
CUTS, CUTS_IN_A_HURRY = 50, 12
PARTS_PER_CUT = 3


@dataclass(frozen=True, slots=True)
class CutFigures(ProgramFigures):
    """What was lost, repeated or mixed up."""

    cuts: int
    left_behind: int
    wrong: int
    """Whether the result differs from that of an undisturbed run."""
    finished_ran_again: int
    """Requests of agents that had finished before a cut."""
    paid_twice: int
    """Answers that were paid for again, beyond the turn that an agent had in hand at a cut."""
    in_hand_paid_twice: int
    """Answers that were in hand at a cut and paid for again."""
    set_ups: int
    used_twice: int
    """Uses of a tool that ran again."""


class Cut(NamedTuple):
    """One cut: how many requests had come, and whose agents had finished by the store."""

    requests: int
    finished: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PaidAnswer:
    """A whole answer: the place of its request among all, whose it was, and the request."""

    place: int
    label: str
    body_hash: str


@dataclass(slots=True, eq=False, kw_only=True)
class PowerCutSide(ProgramSide):
    """Reviews by processes that are killed."""

    counter: RequestCounter = field(default_factory=RequestCounter)
    cuts: list[Cut] = field(default_factory=list)
    draw: random.Random = field(default_factory=lambda: seeded_random(6))

    @property
    def count(self) -> int:
        """How many cuts there are to be."""
        return CUTS if self.thorough else CUTS_IN_A_HURRY

    def reply(self, request: ClientRequest) -> Reply:
        """Look some times and review; agree as a second reviewer; sum up at the end."""
        self.counter.add()
        label, _, rest = request.prompt.partition(":")
        number = int(label.removeprefix("PART-"))
        if not number:
            return Say(f"Done: {rest.partition('sum up ')[2]}")
        if number > SECOND:
            return Say(f"{label} agrees.")
        if request.turn < LOOKS:
            folder = rest.rpartition(" in ")[2].removesuffix(".")
            use = ("look", {"folder": folder, "part": label, "turn": request.turn})
            return Say("Looking.", (use,))
        return Say(f"{label} is in order.")

    async def bare(self) -> ProgramFigures:
        """The plain program, started from the beginning after each cut."""
        async with self.comparison() as other, other.programs() as programs:
            expected = await programs.output(*other.plain_command())
        async with self.programs() as programs:
            for _ in range(self.count):
                await programs.killed(self.plain_command(), self.counter, self.draw)
                self.cuts.append(Cut(len(self.provider.ledger)))
            result = await programs.output(*self.plain_command())
        return self._figures(result, expected)

    async def jackline(self) -> ProgramFigures:
        """The flow, resumed after each cut."""
        async with self.comparison() as other, other.programs() as programs:
            expected = await programs.output(*other.flow_command(), "--json")
        async with self.programs() as programs:
            run_id = ""
            for _ in range(self.count):
                await programs.killed(self.flow_command(run_id), self.counter, self.draw)
                requests = len(self.provider.ledger)
                run_id, finished = await self._saved_run()
                self.cuts.append(Cut(requests, finished))
            result = await programs.output(*self.flow_command(run_id), "--json")
        return self._figures(json.loads(result).get("value"), json.loads(expected).get("value"))

    @asynccontextmanager
    async def programs(self) -> AsyncIterator[Programs]:
        """Processes of this side."""
        programs = Programs.before(self.folder, self.provider.url)
        try:
            yield programs
        finally:
            # `jackline run` has left a gateway running, as it does for its users.
            await programs.output("-m", "jackline", "down")

    def plain_command(self) -> tuple[str, ...]:
        """Starts the plain program."""
        module = ("-m", "jackline.drills.power_cut_work")
        parts = PARTS_PER_CUT * self.count
        return (*module, self.provider.url, str(self.folder), str(parts), str(AT_ONCE))

    def flow_command(self, run_id: str = "") -> tuple[str, ...]:
        """Begins the flow, or resumes this run."""
        if run_id:
            return ("-m", "jackline", "resume", run_id, "--quiet")
        parts = PARTS_PER_CUT * self.count
        arguments = {"folder": str(self.folder), "parts": parts, "at_once": AT_ONCE}
        file = str(Path(__file__).with_name("power_cut_work.py"))
        return ("-m", "jackline", "run", file, json.dumps(arguments), "--quiet")

    async def _saved_run(self) -> tuple[str, frozenset[str]]:
        """The id of the only run, and the labels of what had finished, by the store."""
        url = run_store_url(self.folder / "state")
        if not run_store_exists(url):
            return "", frozenset()
        store = open_run_store(url)
        try:
            runs = await store.runs()
            if not runs:
                return "", frozenset()
            calls = await store.calls(runs[0].run_id)
        finally:
            await store.close()
        return runs[0].run_id, frozenset(c.label for c in calls if c.state is CallState.DONE)

    def _figures(self, result: object, expected: object) -> CutFigures:
        # One who reviews each part, one who reviews it again, and one who sums up.
        agents = 2 * PARTS_PER_CUT * self.count + 1
        whole = result == expected
        labels = [self.provider.label(entry) for entry in self.provider.ledger]
        ran_again = {
            place
            for cut in self.cuts
            for place in range(cut.requests, len(labels))
            if labels[place] in cut.finished
        }
        answers = [
            PaidAnswer(place, self.provider.label(entry), entry.body_hash)
            for place, entry in enumerate(self.provider.ledger)
            if entry.outcome is RequestOutcome.COMPLETED
        ]
        beyond, in_hand = paid_again(answers, [cut.requests for cut in self.cuts])
        used = self.lines(USED)
        return CutFigures(
            agents=agents,
            finished=agents if whole else 0,
            requests=len(labels),
            cuts=len(self.cuts),
            left_behind=0 if whole else agents,
            wrong=int(not whole),
            finished_ran_again=len(ran_again),
            paid_twice=beyond,
            in_hand_paid_twice=in_hand,
            set_ups=len(self.lines(SET_UP)),
            used_twice=len(used) - len(set(used)),
        )


def paid_again(answers: Iterable[PaidAnswer], cuts: Sequence[int]) -> tuple[int, int]:
    """How many answers were paid for again: without excuse, and because they were in hand at a cut.

    An answer was in hand when it is the last that its agent got before a cut.
    """
    by_agent: dict[str, list[PaidAnswer]] = {}
    for answer in answers:
        by_agent.setdefault(answer.label, []).append(answer)
    counts: Counter[bool] = Counter()
    for got in by_agent.values():
        latest: dict[str, PaidAnswer] = {}
        for again in got:
            before = latest.get(again.body_hash)
            latest[again.body_hash] = again
            if before is None:
                continue
            between = (cut for cut in cuts if before.place < cut <= again.place)
            in_hand = any(
                max(answer.place for answer in got if answer.place < cut) == before.place
                for cut in between
            )
            counts[in_hand] += 1
    return counts[False], counts[True]


POWER_CUT = Drill(
    "power-cut",
    f"SIGKILL at random moments, {CUTS} times ({CUTS_IN_A_HURRY} with --fast)",
    (
        ProgramPart(
            name="power_cut",
            side=PowerCutSide,
            requirements=(
                Requirement("the run finishes", "left_behind", most=0),
                Requirement("with the result of an undisturbed one", "wrong", most=0),
                Requirement("no finished agent is started again", "finished_ran_again", most=0),
                Requirement("no answer is paid for twice but a turn in hand", "paid_twice", most=0),
                Requirement("no use of a tool runs twice", "used_twice", most=0),
            ),
            rows=(
                ("times killed", "cuts"),
                ("answers paid for twice", "paid_twice"),
                ("turns in hand paid for twice", "in_hand_paid_twice"),
                ("uses of a tool that ran twice", "used_twice"),
            ),
            service=QUICK,
            in_real_time=True,
        ),
    ),
)
