"""Turn the provider's ledger and what the clients saw into figures, and figures into a verdict.

Laws: (1) pure; (2) the ledger is the witness for what was sent, the clients for what they were
told.
Not here: running a drill (running.py), words for people (telling.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jackline.drills.door import Door
from jackline.drills.drill import Demand, FlowFigures, FlowPart, Part
from jackline.drills.record import AgentRecord, End
from jackline.drills.trips import (
    Book,
    back_after,
    herd,
    most_moves,
    served,
    slowest_move,
    trips,
)
from jackline.simulator.calendar import Calendar
from jackline.simulator.ledger import Entry, Ledger
from jackline.simulator.refusals import QUOTA_MESSAGE

# Real seconds in which a request may be on its way while the refusal of another one is, too; a busy
# machine that plays provider, gateway and fleet at once needs that long.
IN_FLIGHT_S = 0.5
# Whoever is at work when trouble begins meets it; from then on it is known.
BURST_S = 15.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one run of a part left behind."""

    part: Part
    books: Sequence[Book]
    """The ledgers of all providers, that of the first one first."""
    records: Sequence[AgentRecord]
    error_waits: Sequence[float]
    """For each error that reached a client, the seconds since its request was sent."""
    speed: float
    seconds: float
    wall_resets_at: float | None = None
    """The reset that the provider announced, as Unix time."""
    agents: Mapping[str, str] = field(default_factory=dict)
    """Labels by the hashes of bodies that agents sent."""
    struck_at: float | None = None
    misbound: int = 0
    door: Door | None = None

    @property
    def recovered_at(self) -> float:
        """When the first provider was well again, by the drill's clock."""
        after, struck_at = self.part.recovers_after, self.struck_at
        return math.inf if after is None or struck_at is None else struck_at + after


@dataclass(frozen=True, slots=True)
class Figures:
    """One side of a drill in numbers; seconds are the drill's."""

    agents: int
    finished: int
    misled: int
    died: int
    unfinished: int
    left_behind: int
    """All that did not finish, for whatever reason."""
    errors_seen: int
    requests: int
    useful: int
    wasted: int
    after_wall: int
    sent_into_the_wall: int
    """Requests that came when the refusal of an earlier one was known."""
    stopped_otherwise: int
    """Agents that died of anything but the vendor's own refusal, with its reset, heard once."""
    slowest_error: float
    """The longest time from a request to the error that answered it."""
    bystanders_took: float
    bystanders_moved: int
    """Requests at other providers for models that no fault strikes."""
    not_moved: int
    """Agents on struck models that no other provider has answered."""
    not_returned: int
    """Agents that the first provider has not answered again after its recovery."""
    slowest_move: float
    most_moves: int
    back_after: float
    """Seconds from the recovery to the first request that it answered."""
    herd: int
    """Requests to the first provider from its recovery to ten seconds after that one."""
    wasted_elsewhere: int
    misbound: int
    """Calls and results of tools that did not fit together in what a provider was sent."""
    failed_attempts: int
    """By the gateway's journal: also those that reached no provider."""
    failed_later: int
    """Those of them that came later than the first burst."""
    unsaid: int
    """Sentences that the gateway's status should have said, and did not."""
    seconds: float
    providers: Mapping[str, Mapping[str, int]]
    reasons: Mapping[str, int]
    died_of: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A demand, what was measured, and the most that was allowed."""

    demand: Demand
    part: str
    measured: float
    allowed: float

    @property
    def held(self) -> bool:
        """Whether the demand is met."""
        return self.measured <= self.allowed


def figures(evidence: Evidence) -> Figures:
    """The figures of one run."""
    ledgers, records = [book.ledger for book in evidence.books], evidence.records
    ledger = ledgers[0] if ledgers else Ledger()
    part, door = evidence.part, evidence.door
    made, others = trips(evidence.books, evidence.agents), [one.name for one in part.stand_ins]
    home = evidence.books[0].host if ledgers else ""
    since = evidence.recovered_at
    failed = [attempt.at for attempt in door.failed] if door else []
    back = back_after(made, home, since)
    ends = Counter(record.end for record in records)
    dead = [record for record in records if record.end is End.DIED]
    return Figures(
        agents=len(part.crew),
        finished=ends[End.FINISHED],
        misled=ends[End.MISLED],
        died=ends[End.DIED],
        unfinished=ends[End.WORKING],
        left_behind=len(part.crew) - ends[End.FINISHED],
        errors_seen=len(evidence.error_waits),
        requests=sum(map(len, ledgers)),
        useful=sum(one.useful for one in ledgers),
        wasted=sum(one.wasted for one in ledgers),
        after_wall=ledger.after_wall,
        sent_into_the_wall=_sent_into_the_wall(ledger, IN_FLIGHT_S * evidence.speed),
        stopped_otherwise=sum(not _heard_the_truth(one, evidence) for one in dead),
        slowest_error=round(max(evidence.error_waits, default=0.0), 1),
        bystanders_took=round(_longest_way(ledger, part.bystander_model), 1),
        bystanders_moved=sum(_is_bystander(trip.model, part) for trip in made if trip.host != home),
        not_moved=_missing(part, served(made, others)) if others else 0,
        not_returned=_missing(part, served(made, [home], since)) if since < math.inf else 0,
        slowest_move=round(slowest_move(made), 1),
        most_moves=most_moves(made),
        back_after=round(_or_never(back, evidence), 1),
        herd=herd(made, home, since),
        wasted_elsewhere=sum(one.wasted for one in ledgers[1:]),
        misbound=evidence.misbound,
        failed_attempts=len(failed),
        failed_later=sum(at > min(failed) + BURST_S for at in failed),
        unsaid=sum(not _said(words, door) for words in part.status_says),
        seconds=round(evidence.seconds, 1),
        providers={book.host: _counts(book.ledger) for book in evidence.books},
        reasons=dict(sum((one.reasons for one in ledgers), Counter[str]()).most_common()),
        died_of=dict(Counter(record.died_of for record in dead).most_common()),
    )


def judge(
    part: Part | FlowPart,
    bare: Figures | FlowFigures,
    jackline: Figures | FlowFigures,
    speed: float,
) -> list[Verdict]:
    """Every demand of a part against what was measured."""
    verdicts = []
    for demand in part.demands:
        measured = float(getattr(jackline, demand.figure))
        from_bare = float(getattr(bare, demand.figure)) if demand.beyond_bare else 0.0
        most = demand.most + from_bare + demand.machine_slack * speed
        verdicts.append(Verdict(demand, part.name, measured, most))
    return verdicts


def _or_never(seconds: float | None, evidence: Evidence) -> float:
    """What never happened counts as longer than anyone waits; without a recovery it is nothing."""
    if seconds is not None:
        return seconds
    return evidence.part.patience if evidence.recovered_at < math.inf else 0.0


def _missing(part: Part, found: set[str]) -> int:
    """How many agents on struck models are not among those found."""
    struck = {plan.label for plan in part.crew if not _is_bystander(plan.model, part)}
    return len(struck - found)


def _is_bystander(model: str, part: Part) -> bool:
    return bool(part.bystander_model) and part.bystander_model in model


def _said(words: str, door: Door | None) -> bool:
    return door is not None and any(words in verdict for verdict in door.verdicts)


def _counts(ledger: Ledger) -> dict[str, int]:
    return {"requests": len(ledger), "useful": ledger.useful, "wasted": ledger.wasted}


def _sent_into_the_wall(ledger: Ledger, grace: float) -> int:
    walls = [entry for entry in ledger if entry.wall]
    told = [entry.ended for entry in walls if entry.ended is not None]
    if not told:
        return 0
    known = min(told) + grace
    return sum(entry.arrived > known for entry in walls)


def _heard_the_truth(record: AgentRecord, evidence: Evidence) -> bool:
    if len(record.errors) != 1:
        return False
    (error,) = record.errors
    reset = evidence.wall_resets_at
    if error.status != 429 or reset is None:
        return False
    if error.resets_at is not None:
        return QUOTA_MESSAGE in error.text and error.resets_at == reset
    # The real client puts it into its own words, to the minute: "You've hit your … limit · resets".
    times = [Calendar(epoch=reset - early).clock_text(0.0) for early in (0, 60)]
    own_words = error.text.startswith("You've hit your ")
    return own_words and error.text.endswith(tuple(f" · resets {time}" for time in times))


def _longest_way(ledger: Ledger, model: str) -> float:
    """The longest time from an agent's first request to its last answer, on models of this name."""
    if not model:
        return 0.0
    ways: dict[str, list[Entry]] = {}
    for entry in ledger:
        if entry.agent and model in entry.model:
            ways.setdefault(entry.agent, []).append(entry)
    spans = [max(e.ended or e.arrived for e in way) - way[0].arrived for way in ways.values()]
    return max(spans, default=0.0)
