"""Follow the agents of a drill from provider to provider, by the providers' own ledgers.

Laws: (1) pure; (2) all ledgers are read by one clock, the drill's; (3) a trip that nobody ended is
neither a success nor a failure.
Not here: bounds on these figures (catalogue.py), the ledgers (simulator/ledger.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from jackline.simulator.ledger import Ledger, Outcome

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


class Book(NamedTuple):
    """A provider's ledger, and what to add to its times to get the drill's."""

    host: str
    ledger: Ledger
    ahead: float = 0.0


def trips(books: Iterable[Book], agents: Mapping[str, str]) -> list[Trip]:
    """All requests of known agents in order of arrival; `agents` are known by bodies' hashes."""
    found = [
        Trip(
            book.host,
            agents[entry.body_hash],
            entry.model,
            entry.arrived + book.ahead,
            None if entry.ended is None else entry.ended + book.ahead,
            entry.outcome is Outcome.COMPLETED,
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
