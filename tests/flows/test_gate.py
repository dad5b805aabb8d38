"""The gate lets nobody through a wall, always one probe at a time, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.agents.outcome import Ending, Evidence
from jackline.agents.runner import StopAgentError
from jackline.clock import VirtualClock
from jackline.flows.execution.gate import Gate, GateState, Ticket
from tests.flows.world import EPOCH, played


@dataclass
class Crew:
    """Agents before a gate, driven by hand."""

    clock: VirtualClock = field(default_factory=lambda: VirtualClock(EPOCH))
    passing: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.gate = Gate(self.clock, lambda: 0.5)
        self.tickets: dict[int, Ticket] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def come(self, who: int) -> None:
        """One arrives at its next turn boundary."""
        waits = who in self.tasks and not self.tasks[who].done()
        if waits or who in self.stopped:
            return
        self.passing.discard(who)
        ticket = self.tickets.setdefault(who, self.gate.ticket())
        self.tasks[who] = asyncio.create_task(self._enter(who, ticket))
        await self.clock.advance(0)

    async def _enter(self, who: int, ticket: Ticket) -> None:
        try:
            await self.gate.enter(ticket)
            self.passing.add(who)
        except StopAgentError:
            self.stopped.add(who)

    async def leave(self, who: int) -> None:
        """One ends, wherever it is."""
        if who in self.tickets:
            self.tasks[who].cancel()
            await asyncio.wait({self.tasks[who]})
            self.passing.discard(who)
            self.gate.done(self.tickets.pop(who))
            await self.clock.advance(0)

    async def close(self) -> None:
        for who in list(self.tickets):
            await self.leave(who)

    async def do(self, what: str, who: int) -> None:
        """One thing that may happen."""
        gate = self.gate
        if what == "come":
            await self.come(who)
        elif what == "leave":
            await self.leave(who)
        elif what == "time" and gate.state is GateState.PARKED:
            gate.probe()
        elif what == "wait":
            await self.clock.advance(100)
        elif what == "answered" and who in self.passing:
            gate.answered(self.tickets[who])
        elif what.endswith("wall") and who in self.passing:
            resets = self.clock.wall() + (3600 if what == "wall" else -1)
            gate.wall(self.tickets[who], "wall", resets)
        await self.clock.advance(0)

    async def get_through(self) -> None:
        """Let time and answers do their work."""
        for who in range(5):
            await self.come(who)
        for _ in range(20):
            await self.do("time", 0)
            await self.clock.advance(100)
            for who in list(self.passing):
                await self.do("answered", who)
            await self.clock.advance(100)


moves = st.lists(
    st.tuples(
        st.sampled_from(["come", "answered", "wall", "late wall", "leave", "time", "wait"]),
        st.integers(0, 4),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(moves)
def test_whatever_happens_nobody_passes_a_wall_and_somebody_always_can_in_the_end(
    made: list[tuple[str, int]],
) -> None:
    async def test() -> None:
        crew = Crew()
        gate = crew.gate
        for what, who in made:
            before, state = set(crew.passing), gate.state
            await crew.do(what, who)
            new = crew.passing - before
            if gate.state is GateState.PARKED:
                assert not new, "nobody passes while parked"
            if gate.state is state is GateState.PROBING:
                assert len(new) <= 1, "one probe at a time"
        await crew.get_through()
        assert crew.passing == set(range(5))
        assert gate.state is GateState.OPEN
        await crew.close()

    played(test)


def test_a_probe_that_ends_without_an_answer_is_followed_by_the_next() -> None:
    async def test() -> None:
        crew = Crew()
        for who in range(3):
            await crew.come(who)
        crew.gate.wall(crew.tickets[0], "w", crew.clock.wall() + 10)
        for who in range(3):
            await crew.come(who)
        assert crew.passing == set()
        crew.gate.probe()
        await crew.clock.advance(0)
        assert crew.passing == {0}
        await crew.leave(0)
        assert crew.passing == {1}
        crew.gate.answered(crew.tickets[1])
        await crew.clock.advance(100)
        assert crew.passing == {1, 2}
        await crew.close()

    played(test)


def test_a_late_wall_of_an_old_call_parks_nobody_again() -> None:
    async def test() -> None:
        crew = Crew()
        for who in range(3):
            await crew.come(who)
        gate = crew.gate
        gate.wall(crew.tickets[0], "w", crew.clock.wall() + 10)
        await crew.come(0)
        gate.probe()
        await crew.clock.advance(0)
        gate.answered(crew.tickets[0])
        assert str(gate.state) == "open"
        gate.wall(crew.tickets[1], "old news", crew.clock.wall() - 5)
        gate.wall(crew.tickets[2], "old news", None)
        assert str(gate.state) == "open"
        gate.wall(crew.tickets[1], "the weekly limit", crew.clock.wall() + 5)
        assert gate.state is GateState.PARKED
        await crew.close()

    played(test)


def test_of_two_walls_the_later_one_counts_and_is_the_one_that_is_told() -> None:
    async def test() -> None:
        crew = Crew()
        for who in range(3):
            await crew.come(who)
        gate, now = crew.gate, crew.clock.wall()
        gate.wall(crew.tickets[0], "the session's limit", now + 10)
        gate.wall(crew.tickets[1], "the weekly limit", now + 99)
        gate.wall(crew.tickets[2], "the session's limit", now + 10)
        assert (gate.why, gate.wake_at) == ("the weekly limit", now + 99)
        await crew.close()

    played(test)


@pytest.mark.parametrize("hard", [True, False])
def test_a_closed_gate_stops_or_holds_all_and_comes_to_rest(hard: bool) -> None:
    async def test() -> None:
        crew = Crew()
        await crew.come(0)
        stop = StopAgentError(Ending.CANCELLED, Evidence(says="stop")) if hard else None
        crew.gate.close(stop)
        await crew.come(1)
        assert not crew.gate.came_to_rest.is_set()
        await crew.come(0)
        assert crew.stopped == ({0, 1} if hard else set())
        # One that was stopped still has its end to tell.
        assert crew.gate.came_to_rest.is_set() is not hard
        await crew.leave(0)
        assert crew.gate.came_to_rest.is_set()
        assert crew.passing == set()
        await crew.close()

    played(test)
