"""Turn the provider's ledger and what the clients saw into figures, and figures into a verdict.

Laws: (1) pure; (2) the ledger is the witness for what was sent, the clients for what they were
told.
Not here: running a drill (running.py), words for people (telling.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jackline.drills.drill import Demand, Part
from jackline.drills.record import AgentRecord, End
from jackline.simulator.calendar import Calendar
from jackline.simulator.ledger import Entry, Ledger
from jackline.simulator.refusals import QUOTA_MESSAGE

# Real seconds in which a request may be on its way while the refusal of another one is, too; a busy
# machine that plays provider, gateway and fleet at once needs that long.
IN_FLIGHT_S = 0.5


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one run of a part left behind."""

    part: Part
    ledger: Ledger
    records: Sequence[AgentRecord]
    error_waits: Sequence[float]
    """For each error that reached a client, the seconds since its request was sent."""
    speed: float
    seconds: float
    wall_resets_at: float | None = None
    """The reset that the provider announced, as Unix time."""


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
    seconds: float
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
    ledger, records = evidence.ledger, evidence.records
    ends = Counter(record.end for record in records)
    dead = [record for record in records if record.end is End.DIED]
    return Figures(
        agents=len(evidence.part.crew),
        finished=ends[End.FINISHED],
        misled=ends[End.MISLED],
        died=ends[End.DIED],
        unfinished=ends[End.WORKING],
        left_behind=len(evidence.part.crew) - ends[End.FINISHED],
        errors_seen=len(evidence.error_waits),
        requests=len(ledger),
        useful=ledger.useful,
        wasted=ledger.wasted,
        after_wall=ledger.after_wall,
        sent_into_the_wall=_sent_into_the_wall(ledger, IN_FLIGHT_S * evidence.speed),
        stopped_otherwise=sum(not _heard_the_truth(one, evidence) for one in dead),
        slowest_error=round(max(evidence.error_waits, default=0.0), 1),
        bystanders_took=round(_longest_way(ledger, evidence.part.bystander_model), 1),
        seconds=round(evidence.seconds, 1),
        reasons=dict(ledger.reasons.most_common()),
        died_of=dict(Counter(record.died_of for record in dead).most_common()),
    )


def judge(part: Part, bare: Figures, jackline: Figures, speed: float) -> list[Verdict]:
    """Every demand of a part against what was measured."""
    verdicts = []
    for demand in part.demands:
        measured = float(getattr(jackline, demand.figure))
        from_bare = float(getattr(bare, demand.figure)) if demand.beyond_bare else 0.0
        most = demand.most + from_bare + demand.machine_slack * speed
        verdicts.append(Verdict(demand, part.name, measured, most))
    return verdicts


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
