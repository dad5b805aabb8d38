"""Turn ledgers and client records into figures, and figures into met or missed requirements.

Rules: (1) pure; (2) the ledger is the evidence for what was sent, the clients for what they
received; (3) all ledgers are read by one clock, the drill's; (4) a request without an end is
neither a success nor a failure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Self

from jackline.drills.builtin_client import AgentEnd, AgentRecord
from jackline.drills.drill import CrewPart, ProgramFigures, ProgramPart, Requirement
from jackline.drills.environment import WatchedEndpoint
from jackline.simulator.exchange import QUOTA_MESSAGE
from jackline.simulator.ledger import LedgerEntry, RequestLedger, RequestOutcome
from jackline.simulator.time_model import Calendar

# Requests in so many seconds after a recovery come at once.
HERD_S = 10.0
# Real seconds in which a request may be on its way while the refusal of another one is, too; a busy
# machine that plays provider, gateway and fleet at once needs that long.
IN_FLIGHT_S = 0.5
# Who is at work when the faults begin meets them; after so many seconds they are known.
BURST_S = 15.0


class AgentRequest(NamedTuple):
    """One request of one agent at one provider."""

    host: str
    agent: str
    model: str
    arrived: float
    ended: float | None
    completed: bool
    """Whether it got its whole answer."""


class ProviderLedger(NamedTuple):
    """A provider's ledger, and what to add to its times to get the drill's."""

    host: str
    ledger: RequestLedger
    offset: float = 0.0


class RequestHistory(tuple[AgentRequest, ...]):
    """The requests of all agents at all providers, in order of arrival."""

    __slots__ = ()

    @classmethod
    def from_ledgers(cls, ledgers: Iterable[ProviderLedger], agents: Mapping[str, str]) -> Self:
        """The requests of known agents; `agents` are labels by the hashes of bodies."""
        found = [
            AgentRequest(
                book.host,
                agents[entry.body_hash],
                entry.model,
                entry.arrived + book.offset,
                None if entry.ended is None else entry.ended + book.offset,
                entry.outcome is RequestOutcome.COMPLETED,
            )
            for book in ledgers
            for entry in book.ledger
            if entry.body_hash in agents
        ]
        return cls(sorted(found, key=lambda request: request.arrived))

    def by_agent(self) -> Iterable[list[AgentRequest]]:
        """The requests of each agent."""
        found: dict[str, list[AgentRequest]] = {}
        for request in self:
            found.setdefault(request.agent, []).append(request)
        return found.values()

    def slowest_move(self) -> float:
        """The longest time from an agent's first failure to the start of what succeeds."""
        longest = 0.0
        for requests in self.by_agent():
            failing_since: float | None = None
            for request in requests:
                if request.completed:
                    if failing_since is not None:
                        longest = max(longest, request.arrived - failing_since)
                    failing_since = None
                elif request.ended is not None and failing_since is None:
                    failing_since = request.ended
        return longest

    def most_moves(self) -> int:
        """How often one agent was answered by another provider than before, at most."""
        most = 0
        for requests in self.by_agent():
            hosts = [request.host for request in requests if request.completed]
            most = max(most, sum(a != b for a, b in pairwise(hosts)))
        return most

    def answered_by(self, hosts: Sequence[str], since: float = 0.0) -> set[str]:
        """The agents that one of these providers has answered since then."""
        return {r.agent for r in self if r.completed and r.host in hosts and r.arrived >= since}

    def back_after(self, host: str, since: float) -> float | None:
        """How long after a recovery the first request came that the provider answered."""
        back = [r.arrived for r in self if r.host == host and r.completed and r.arrived >= since]
        return min(back) - since if back else None

    def herd(self, host: str, since: float) -> int:
        """How many requests came to the recovered provider in its first seconds of work."""
        first = self.back_after(host, since)
        if first is None:
            return 0
        until = since + first + HERD_S
        return sum(r.host == host and since <= r.arrived < until for r in self)


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
    """Agents that died of anything but the vendor's own refusal, with its reset, received once."""
    slowest_error: float
    """The longest time from a request to the error that answered it."""
    bystanders_took: float
    bystanders_moved: int
    """Requests at other providers for models that have no fault."""
    not_moved: int
    """Agents on failing models that no other provider has answered."""
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
    """Calls and results of tools that did not fit together in what a provider received."""
    failed_attempts: int
    """By the gateway's journal: also those that reached no provider."""
    failed_later: int
    """Those of them that came later than the first burst."""
    missing_status_texts: int
    """Texts that the gateway's status should have shown, and did not."""
    seconds: float
    providers: Mapping[str, Mapping[str, int]]
    reasons: Mapping[str, int]
    died_of: Mapping[str, int]


@dataclass(slots=True)
class RunEvidence:
    """What one run of a crew part left behind."""

    part: CrewPart
    speed: float
    ledgers: Sequence[ProviderLedger] = ()
    """Of all providers, that of the first one first."""
    records: Sequence[AgentRecord] = ()
    error_waits: Sequence[float] = ()
    """For each error that reached a client, the seconds since its request was sent."""
    seconds: float = 0.0
    wall_resets_at: float | None = None
    """The reset that the provider announced, as Unix time."""
    agents: dict[str, str] = field(default_factory=dict)
    """Labels by the hashes of bodies that agents sent."""
    faults_began_at: float | None = None
    misbound: int = 0
    endpoint: WatchedEndpoint | None = None

    def figures(self) -> Figures:
        """The figures of the run."""
        part, records = self.part, self.records
        ledgers = [book.ledger for book in self.ledgers]
        first = ledgers[0] if ledgers else RequestLedger()
        host = self.ledgers[0].host if ledgers else ""
        history = RequestHistory.from_ledgers(self.ledgers, self.agents)
        failed = [attempt.at for attempt in self.endpoint.failed] if self.endpoint else []
        verdicts = self.endpoint.verdicts if self.endpoint else []
        ends = Counter(record.end for record in records)
        dead = [record for record in records if record.end is AgentEnd.DIED]
        failing = {plan.label for plan in part.crew if not self._is_bystander(plan.model)}
        moved = history.answered_by([one.name for one in part.backups])
        recovered_at, returned, back = math.inf, failing, 0.0
        if part.recovers_after is not None and self.faults_began_at is not None:
            recovered_at = self.faults_began_at + part.recovers_after
            returned = history.answered_by([host], recovered_at)
            found = history.back_after(host, recovered_at)
            # What never happened counts as longer than anyone waits.
            back = part.time_limit if found is None else found
        return Figures(
            agents=len(part.crew),
            finished=ends[AgentEnd.FINISHED],
            misled=ends[AgentEnd.MISLED],
            died=ends[AgentEnd.DIED],
            unfinished=ends[AgentEnd.WORKING],
            left_behind=len(part.crew) - ends[AgentEnd.FINISHED],
            errors_seen=len(self.error_waits),
            requests=sum(map(len, ledgers)),
            useful=sum(one.useful for one in ledgers),
            wasted=sum(one.wasted for one in ledgers),
            after_wall=first.after_wall,
            sent_into_the_wall=sent_into_the_wall(first, self.speed),
            stopped_otherwise=sum(not self._got_vendor_error(one) for one in dead),
            slowest_error=round(max(self.error_waits, default=0.0), 1),
            bystanders_took=round(self._bystanders_took(first), 1),
            bystanders_moved=sum(
                self._is_bystander(request.model) for request in history if request.host != host
            ),
            not_moved=len(failing - moved) if part.backups else 0,
            not_returned=len(failing - returned),
            slowest_move=round(history.slowest_move(), 1),
            most_moves=history.most_moves(),
            back_after=round(back, 1),
            herd=history.herd(host, recovered_at),
            wasted_elsewhere=sum(one.wasted for one in ledgers[1:]),
            misbound=self.misbound,
            failed_attempts=len(failed),
            failed_later=sum(at > min(failed) + BURST_S for at in failed),
            missing_status_texts=sum(
                not any(text in verdict for verdict in verdicts) for text in part.status_texts
            ),
            seconds=round(self.seconds, 1),
            providers={
                book.host: {
                    "requests": len(book.ledger),
                    "useful": book.ledger.useful,
                    "wasted": book.ledger.wasted,
                }
                for book in self.ledgers
            },
            reasons=dict(sum((one.reasons for one in ledgers), Counter[str]()).most_common()),
            died_of=dict(Counter(record.died_of for record in dead).most_common()),
        )

    def _is_bystander(self, model: str) -> bool:
        return bool(self.part.bystander_model) and self.part.bystander_model in model

    def _got_vendor_error(self, record: AgentRecord) -> bool:
        """Whether all it got is one refusal of the vendor's, with the true reset."""
        reset = self.wall_resets_at
        if len(record.errors) != 1 or reset is None:
            return False
        (error,) = record.errors
        if error.status != 429:
            return False
        if error.resets_at is not None:
            return QUOTA_MESSAGE in error.text and error.resets_at == reset
        # The real client has its own text, to the minute: "You've hit your … limit · resets".
        times = [Calendar(epoch=reset - early).clock_text(0.0) for early in (0, 60)]
        own_text = error.text.startswith("You've hit your ")
        return own_text and error.text.endswith(tuple(f" · resets {time}" for time in times))

    def _bystanders_took(self, ledger: RequestLedger) -> float:
        """The longest time from an agent's first request to its last answer, without faults."""
        found: dict[str, list[LedgerEntry]] = {}
        for entry in ledger:
            if entry.agent and self._is_bystander(entry.model):
                found.setdefault(entry.agent, []).append(entry)
        spans = (
            max(e.ended or e.arrived for e in all_) - all_[0].arrived for all_ in found.values()
        )
        return max(spans, default=0.0)


def sent_into_the_wall(entries: Iterable[LedgerEntry], speed: float) -> int:
    """The requests that came when the refusal of an earlier one was known."""
    walls = [entry for entry in entries if entry.wall]
    known = min((entry.ended for entry in walls if entry.ended is not None), default=math.inf)
    return sum(entry.arrived > known + IN_FLIGHT_S * speed for entry in walls)


@dataclass(frozen=True, slots=True)
class RequirementResult:
    """A requirement, what was measured, and the most that was allowed."""

    requirement: Requirement
    part: str
    measured: float
    allowed: float

    @property
    def met(self) -> bool:
        """Whether the requirement is met."""
        return self.measured <= self.allowed


def check_requirements(
    part: CrewPart | ProgramPart,
    bare: Figures | ProgramFigures,
    jackline: Figures | ProgramFigures,
    speed: float,
) -> tuple[RequirementResult, ...]:
    """Every requirement of a part against what was measured."""
    results = []
    for one in part.requirements:
        measured = float(getattr(jackline, one.figure))
        from_bare = float(getattr(bare, one.figure)) if one.beyond_bare else 0.0
        allowed = one.most + from_bare + one.machine_slack * speed
        results.append(RequirementResult(one, part.name, measured, allowed))
    return tuple(results)
