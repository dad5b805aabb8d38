"""The drill that kills the process of a run many times: nothing finished is lost or paid twice.

Rules: (1) what was answered again is read in the provider's ledger, what ran again in files; (2)
what the store had as finished when the process died must not be requested again, without any
exception; (3) an undisturbed run of the same flow gives the expected result.
Not here: the work (power_cut_flow.py, power_cut_plain.py), the processes (processes.py).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter as Counts
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from jackline.drills.drill import Drill, FlowFigures, FlowPart, Requirement, SideContext
from jackline.drills.environment import DrillProvider, provider_for
from jackline.drills.power_cut_flow import SET_UP, USED, is_second
from jackline.drills.processes import Counter, Programs, killed, programs_of, saved_run_in
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import RequestOutcome
from jackline.simulator.reply_script import Reply, Say
from jackline.simulator.time_model import ServiceSettings, seeded_random

LOOKS = 3
AT_ONCE = 6
CUTS, CUTS_IN_A_HURRY = 50, 12
PARTS_PER_CUT = 3
SEED = 6
_SCRIPT = str(Path(__file__).with_name("power_cut_flow.py"))
_QUICK = ServiceSettings(first_byte=0.05, first_byte_spread=0.0, tokens_per_second=400.0)


@dataclass(frozen=True, slots=True)
class CutFigures(FlowFigures):
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


@dataclass(frozen=True, slots=True)
class Cut:
    """One cut: how many requests had come, and whose agents had finished by the store."""

    requests: int
    finished: frozenset[str] = frozenset()


@dataclass(slots=True)
class PowerCutSide:
    """One side at work."""

    folder: Path
    provider: DrillProvider
    counter: Counter
    programs: Programs
    cuts: list[Cut] = field(default_factory=list)
    draw: random.Random = field(default_factory=lambda: seeded_random(SEED))

    def lines(self, name: str) -> list[str]:
        """What was written to one of the files."""
        path = self.folder / name
        return path.read_text("utf-8").splitlines() if path.exists() else []


def power_cut() -> Drill:
    """The drill."""
    part = FlowPart(
        name="power_cut",
        bare=_bare,
        jackline=_as_a_flow,
        demands=(
            Requirement("the run finishes", "left_behind", most=0),
            Requirement("with the result of an undisturbed one", "wrong", most=0),
            Requirement("no finished agent is asked for again", "finished_ran_again", most=0),
            Requirement("no answer is paid for twice but a turn in hand", "paid_twice", most=0),
            Requirement("no use of a tool runs twice", "used_twice", most=0),
        ),
        rows=(
            ("times killed", "cuts"),
            ("answers paid for twice", "paid_twice"),
            ("turns in hand paid for twice", "in_hand_paid_twice"),
            ("uses of a tool that ran twice", "used_twice"),
        ),
        in_real_time=True,
    )
    about = f"SIGKILL at random moments, {CUTS} times ({CUTS_IN_A_HURRY} with --fast)"
    return Drill("power-cut", about, (part,))


def reply(asked: ClientRequest) -> Reply:
    """What the model says."""
    label, _, rest = asked.prompt.partition(":")
    if label == "PART-0":
        return Say(f"Done: {rest.partition('sum up ')[2]}")
    if is_second(label):
        return Say(f"{label} agrees.")
    if asked.turn < LOOKS:
        folder = rest.rpartition(" in ")[2].removesuffix(".")
        return Say("Looking.", (("look", {"folder": folder, "part": label, "turn": asked.turn}),))
    return Say(f"{label} is in order.")


# --- both sides ----------------------------------------------------------------------------


async def _bare(scene: SideContext) -> FlowFigures:
    count = _count(scene)
    async with _stage(scene.folder) as stage:
        words = ["-m", "jackline.drills.power_cut_plain", stage.provider.url, str(stage.folder)]
        words += [str(PARTS_PER_CUT * count), str(AT_ONCE)]
        should_be = await _undisturbed_plain(scene, words)
        for _ in range(count):
            await killed(partial(stage.programs.start, *words), stage.counter, stage.draw)
            stage.cuts.append(Cut(len(stage.provider.ledger)))
        return _figures(stage, count, await stage.programs.output(*words), should_be)


async def _undisturbed_plain(scene: SideContext, words: Sequence[str]) -> str:
    async with _stage(scene.folder / "undisturbed") as stage:
        *head, _url, _folder, parts, at_once = words
        own = (stage.provider.url, str(stage.folder), parts, at_once)
        return await stage.programs.output(*head, *own)


async def _as_a_flow(scene: SideContext) -> FlowFigures:
    count = _count(scene)
    async with _stage(scene.folder / "undisturbed") as stage:
        should_be = await _value(stage, _begin(stage, count))
    async with _stage(scene.folder) as stage:
        words = _begin(stage, count)
        for _ in range(count):
            start = partial(stage.programs.start, "-m", "jackline", *words, "--quiet")
            await killed(start, stage.counter, stage.draw)
            requests = len(stage.provider.ledger)
            run_id, finished = await saved_run_in(stage.folder)
            stage.cuts.append(Cut(requests, finished))
            words = ("resume", run_id) if run_id else words
        return _figures(stage, count, await _value(stage, words), should_be)


def _begin(stage: PowerCutSide, count: int) -> tuple[str, ...]:
    given = {"folder": str(stage.folder), "parts": PARTS_PER_CUT * count, "at_once": AT_ONCE}
    return ("run", _SCRIPT, json.dumps(given))


async def _value(stage: PowerCutSide, words: Sequence[str]) -> str:
    out = await stage.programs.output("-m", "jackline", *words, "--quiet", "--json")
    return str(json.loads(out).get("value"))


@asynccontextmanager
async def _stage(folder: Path) -> AsyncIterator[PowerCutSide]:
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    counter = Counter(reply)
    async with provider_for(counter.hear, _QUICK) as provider:
        programs = programs_of(folder, provider.url)
        try:
            yield PowerCutSide(folder, provider, counter, programs)
        finally:
            # `jackline run` has left a gateway running, as it does for its users.
            await programs.output("-m", "jackline", "down")


def _count(scene: SideContext) -> int:
    return CUTS if scene.thorough else CUTS_IN_A_HURRY


# --- what was repeated ---------------------------------------------------------------------


def _figures(stage: PowerCutSide, count: int, value: str, should_be: str) -> CutFigures:
    # One who reviews each part, one who takes the second look, and one who sums up.
    agents = 2 * PARTS_PER_CUT * count + 1
    whole = value == should_be
    beyond, in_hand = paid_again(_answers(stage.provider), [cut.requests for cut in stage.cuts])
    used = stage.lines(USED)
    return CutFigures(
        agents=agents,
        finished=agents if whole else 0,
        requests=len(stage.provider.ledger),
        cuts=len(stage.cuts),
        left_behind=0 if whole else agents,
        wrong=int(not whole),
        finished_ran_again=_ran_again(stage),
        paid_twice=beyond,
        in_hand_paid_twice=in_hand,
        set_ups=len(stage.lines(SET_UP)),
        used_twice=len(used) - len(set(used)),
    )


def _ran_again(stage: PowerCutSide) -> int:
    asked = [stage.provider.label(entry) for entry in stage.provider.ledger]
    found = {
        place
        for cut in stage.cuts
        for place in range(cut.requests, len(asked))
        if asked[place] in cut.finished
    }
    return len(found)


@dataclass(frozen=True, slots=True)
class PaidAnswer:
    """A whole answer: the place of its request among all, whose it was, and what was asked."""

    place: int
    label: str
    body_hash: str


def _answers(provider: DrillProvider) -> list[PaidAnswer]:
    return [
        PaidAnswer(place, provider.label(entry), entry.body_hash)
        for place, entry in enumerate(provider.ledger)
        if entry.outcome is RequestOutcome.COMPLETED
    ]


def paid_again(answers: Iterable[PaidAnswer], cuts: Sequence[int]) -> tuple[int, int]:
    """How many answers were paid for again: without excuse, and because they were in hand at a cut.

    An answer was in hand when it is the last that its agent got before a cut.
    """
    by_agent: dict[str, list[PaidAnswer]] = {}
    for answer in answers:
        by_agent.setdefault(answer.label, []).append(answer)
    counts: Counts[bool] = Counts()
    for got in by_agent.values():
        latest: dict[str, PaidAnswer] = {}
        for answer in got:
            before = latest.get(answer.body_hash)
            if before is not None:
                counts[_was_in_hand(before, answer, got, cuts)] += 1
            latest[answer.body_hash] = answer
    return counts[False], counts[True]


def _was_in_hand(
    before: PaidAnswer, again: PaidAnswer, got: Sequence[PaidAnswer], cuts: Sequence[int]
) -> bool:
    between = [cut for cut in cuts if before.place < cut <= again.place]
    return any(
        max(answer.place for answer in got if answer.place < cut) == before.place for cut in between
    )
