"""Turn ledgers and client records into figures, and figures into met or missed requirements.

Rules: (1) pure; (2) the ledger is the evidence for what was sent, the clients for what they
received; (3) all ledgers are read by one clock, the drill's; (4) a request that nobody ended is
neither a success nor a failure.
Not here: running a drill (drill_run.py), words for people (report.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from jackline.drills.builtin_client import AgentEnd, AgentRecord
from jackline.drills.drill import CrewPart, FlowFigures, FlowPart, Requirement
from jackline.drills.environment import WatchedEndpoint
from jackline.simulator.exchange import QUOTA_MESSAGE
from jackline.simulator.ledger import LedgerEntry, RequestLedger, RequestOutcome
from jackline.simulator.time_model import Calendar

# How long after a recovery those are counted who come at once.
HERD_S = 10.0


class Trip(NamedTuple):
    """One request of one agent at one provider."""

    host: str
    agent: str
    model: str
    arrived: float
    ended: float | None
    came_back: bool
    """Whether it brought its whole answer."""

    @property
    def failed(self) -> bool:
        """Whether it ended without a whole answer."""
        return self.ended is not None and not self.came_back


class ProviderLedger(NamedTuple):
    """A provider's ledger, and what to add to its times to get the drill's."""

    host: str
    ledger: RequestLedger
    ahead: float = 0.0


def trips(books: Iterable[ProviderLedger], agents: Mapping[str, str]) -> list[Trip]:
    """All requests of known agents in order of arrival; `agents` are known by bodies' hashes."""
    found = [
        Trip(
            book.host,
            agents[entry.body_hash],
            entry.model,
            entry.arrived + book.ahead,
            None if entry.ended is None else entry.ended + book.ahead,
            entry.outcome is RequestOutcome.COMPLETED,
        )
        for book in books
        for entry in book.ledger
        if entry.body_hash in agents
    ]
    return sorted(found, key=lambda trip: trip.arrived)


def slowest_move(made: Iterable[Trip]) -> float:
    """The longest time from an agent's first failure to setting out on what succeeds."""
    longest = 0.0
    for way in _by_agent(made).values():
        failing_since: float | None = None
        for trip in way:
            if trip.came_back:
                if failing_since is not None:
                    longest = max(longest, trip.arrived - failing_since)
                failing_since = None
            elif trip.ended is not None and failing_since is None:
                failing_since = trip.ended
    return longest


def most_moves(made: Iterable[Trip]) -> int:
    """How often the most restless agent was answered by another provider than before."""
    ways = _by_agent(trip for trip in made if trip.came_back).values()
    return max(
        (sum(a.host != b.host for a, b in pairwise(way)) for way in ways),
        default=0,
    )


def served(made: Iterable[Trip], hosts: Sequence[str], since: float = 0.0) -> set[str]:
    """The agents that one of these providers has answered since then."""
    return {t.agent for t in made if t.came_back and t.host in hosts and t.arrived >= since}


def back_after(made: Iterable[Trip], home: str, since: float) -> float | None:
    """How long after a recovery the first answer of the recovered provider was asked for."""
    back = [t.arrived for t in made if t.host == home and t.came_back and t.arrived >= since]
    return min(back) - since if back else None


def herd(made: Sequence[Trip], home: str, since: float) -> int:
    """How many came to the recovered provider in its first seconds of being known to work."""
    first = back_after(made, home, since)
    if first is None:
        return 0
    until = since + first + HERD_S
    return sum(t.host == home and since <= t.arrived < until for t in made)


def _by_agent(made: Iterable[Trip]) -> dict[str, list[Trip]]:
    ways: dict[str, list[Trip]] = {}
    for trip in made:
        ways.setdefault(trip.agent, []).append(trip)
    return ways


# Real seconds in which a request may be on its way while the refusal of another one is, too; a busy
# machine that plays provider, gateway and fleet at once needs that long.
IN_FLIGHT_S = 0.5
# Whoever is at work when trouble begins meets it; from then on it is known.
BURST_S = 15.0


@dataclass(frozen=True, slots=True)
class RunEvidence:
    """What one run of a part left behind."""

    part: CrewPart
    books: Sequence[ProviderLedger]
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
    door: WatchedEndpoint | None = None

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
class RequirementResult:
    """A demand, what was measured, and the most that was allowed."""

    demand: Requirement
    part: str
    measured: float
    allowed: float

    @property
    def held(self) -> bool:
        """Whether the demand is met."""
        return self.measured <= self.allowed


def figures(evidence: RunEvidence) -> Figures:
    """The figures of one run."""
    ledgers, records = [book.ledger for book in evidence.books], evidence.records
    ledger = ledgers[0] if ledgers else RequestLedger()
    part, door = evidence.part, evidence.door
    made, others = trips(evidence.books, evidence.agents), [one.name for one in part.stand_ins]
    home = evidence.books[0].host if ledgers else ""
    since = evidence.recovered_at
    failed = [attempt.at for attempt in door.failed] if door else []
    back = back_after(made, home, since)
    ends = Counter(record.end for record in records)
    dead = [record for record in records if record.end is AgentEnd.DIED]
    return Figures(
        agents=len(part.crew),
        finished=ends[AgentEnd.FINISHED],
        misled=ends[AgentEnd.MISLED],
        died=ends[AgentEnd.DIED],
        unfinished=ends[AgentEnd.WORKING],
        left_behind=len(part.crew) - ends[AgentEnd.FINISHED],
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


def check_requirements(
    part: CrewPart | FlowPart,
    bare: Figures | FlowFigures,
    jackline: Figures | FlowFigures,
    speed: float,
) -> list[RequirementResult]:
    """Every demand of a part against what was measured."""
    verdicts = []
    for demand in part.demands:
        measured = float(getattr(jackline, demand.figure))
        from_bare = float(getattr(bare, demand.figure)) if demand.beyond_bare else 0.0
        most = demand.most + from_bare + demand.machine_slack * speed
        verdicts.append(RequirementResult(demand, part.name, measured, most))
    return verdicts


def _or_never(seconds: float | None, evidence: RunEvidence) -> float:
    """What never happened counts as longer than anyone waits; without a recovery it is nothing."""
    if seconds is not None:
        return seconds
    return evidence.part.patience if evidence.recovered_at < math.inf else 0.0


def _missing(part: CrewPart, found: set[str]) -> int:
    """How many agents on struck models are not among those found."""
    struck = {plan.label for plan in part.crew if not _is_bystander(plan.model, part)}
    return len(struck - found)


def _is_bystander(model: str, part: CrewPart) -> bool:
    return bool(part.bystander_model) and part.bystander_model in model


def _said(words: str, door: WatchedEndpoint | None) -> bool:
    return door is not None and any(words in verdict for verdict in door.verdicts)


def _counts(ledger: RequestLedger) -> dict[str, int]:
    return {"requests": len(ledger), "useful": ledger.useful, "wasted": ledger.wasted}


def _sent_into_the_wall(ledger: RequestLedger, grace: float) -> int:
    walls = [entry for entry in ledger if entry.wall]
    told = [entry.ended for entry in walls if entry.ended is not None]
    if not told:
        return 0
    known = min(told) + grace
    return sum(entry.arrived > known for entry in walls)


def _heard_the_truth(record: AgentRecord, evidence: RunEvidence) -> bool:
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


def _longest_way(ledger: RequestLedger, model: str) -> float:
    """The longest time from an agent's first request to its last answer, on models of this name."""
    if not model:
        return 0.0
    ways: dict[str, list[LedgerEntry]] = {}
    for entry in ledger:
        if entry.agent and model in entry.model:
            ways.setdefault(entry.agent, []).append(entry)
    spans = [max(e.ended or e.arrived for e in way) - way[0].arrived for way in ways.values()]
    return max(spans, default=0.0)
