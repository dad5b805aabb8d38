"""How long one agent works, and when its time is over.

Rules: (1) an agent's own work is the time in which a runner runs it, less what it waits: for the
gate, for room in a budget, for a gateway that is gone, and while the gateway holds its calls; where
the gateway does not say how long it held them, that time counts as work; (2) a deadline is a moment
of the wall clock, and waiting does not move it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeAlias

from jackline.agents.outcome import Ending, Evidence
from jackline.agents.runner import StopAgentError
from jackline.clock import Clock

Held: TypeAlias = Callable[[], Awaitable[float | None]]
"""Gives for how many seconds the gateway has held this agent's calls so far; None: unknown."""

# The gateway looks at its calls once a second: less than that is not worth a request.
_LEAST_UNCHECKED = 1.0
_SHORTEST_LOOK = 0.1
# A wall clock may be set, and a machine may sleep: a deadline is looked at again after a while.
_LONGEST_LOOK = 60.0


class WorkTime:
    """How long one agent has worked, in all processes."""

    def __init__(
        self, clock: Clock, held: Held | None, charge: Callable[[float], None], before: float = 0.0
    ) -> None:
        """`held` is None where no limit of time needs it."""
        self._clock = clock
        self._held = held
        self._charge = charge
        self._since: float | None = None
        self._running = False
        self._waits = 0
        self._runner_waits = False
        self._held_before = 0.0
        self._unchecked = 0.0
        """Of what was worked, how much may still turn out to have been held."""
        self.resume_at(before)

    def resume_at(self, seconds: float) -> None:
        """So much was worked, and charged, in earlier processes."""
        self._worked = self._charged = seconds

    async def begin(self) -> None:
        """A runner runs the agent from now on."""
        # Calls of earlier processes may have been held, too, and were counted there.
        self._held_before = await self._held_so_far() or 0.0
        self._running = True
        self._switch()

    def end(self) -> None:
        """The runner has returned."""
        self._running = False
        self._switch()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within this the agent waits, and does not work."""
        self._waits += 1
        self._switch()
        try:
            yield
        finally:
            self._waits -= 1
            self._switch()

    def set_waiting(self, waiting: bool) -> None:
        """The runner itself waits, or continues."""
        self._runner_waits = waiting
        self._switch()

    async def deduct_held(self) -> None:
        """Request from the gateway how much of the time since the last request was no work."""
        self._add()
        if self._unchecked < _LEAST_UNCHECKED:
            return
        held = await self._held_so_far()
        self._add()
        if held is None:
            return
        # A gateway that was started again counts from nothing.
        new = held - self._held_before if held >= self._held_before else held
        self._worked -= min(new, self._unchecked)
        self._held_before, self._unchecked = held, 0.0

    def count(self) -> float:
        """The seconds worked so far; what is new of them is charged."""
        self._add()
        new = self._worked - self._charged
        if new:
            self._charged = self._worked
            self._charge(new)
        return self._worked

    @property
    def seconds(self) -> float:
        """The seconds worked so far, as far as they are known to be work."""
        self._add()
        return self._worked

    async def _held_so_far(self) -> float | None:
        return None if self._held is None else await self._held()

    def _switch(self) -> None:
        self._add()
        works = self._running and not self._waits and not self._runner_waits
        self._since = self._clock.monotonic() if works else None

    def _add(self) -> None:
        if self._since is None:
            return
        now = self._clock.monotonic()
        self._worked += now - self._since
        self._unchecked += now - self._since
        self._since = now


class Deadline:
    """A moment of the wall clock; implements `agents.runner.TimeLimit`."""

    def __init__(self, clock: Clock, due: float) -> None:
        self._clock = clock
        self._due = due

    @property
    def left(self) -> float:
        """Seconds until then."""
        return self._due - self._clock.wall()

    def stop(self) -> StopAgentError:
        """What ends the agent then."""
        moment = datetime.fromtimestamp(self._due, UTC)
        says = f"The agent's deadline has passed: {moment:%Y-%m-%d %H:%M:%S} UTC."
        return StopAgentError(Ending.DEADLINE, Evidence(says=says))

    async def reached(self) -> StopAgentError:
        """Returns at the deadline."""
        while (left := self.left) > 0:
            await self._clock.sleep(min(left, _LONGEST_LOOK))
        return self.stop()


class TimeLimits:
    """All that limits one agent's time; implements `agents.runner.TimeLimit`."""

    def __init__(
        self, clock: Clock, work: WorkTime, timeout: float | None, deadline: Deadline | None
    ) -> None:
        self._clock = clock
        self._work = work
        self._timeout = timeout
        self.deadline = deadline

    async def over(self) -> StopAgentError | None:
        """What ends the agent now; None while it may continue."""
        if self.deadline is not None and self.deadline.left <= 0:
            return self.deadline.stop()
        if self._timeout is None or self._work.seconds < self._timeout:
            return None
        await self._work.deduct_held()
        if self._work.seconds < self._timeout:
            return None
        says = f"The agent has worked for {self._timeout:g} s, which is all that it may."
        return StopAgentError(Ending.TIMEOUT, Evidence(says=says))

    async def reached(self) -> StopAgentError:
        """Returns when one of the limits is reached."""
        while (stop := await self.over()) is None:
            look = _LONGEST_LOOK
            if self._timeout is not None:
                look = min(look, max(_SHORTEST_LOOK, self._timeout - self._work.seconds))
            if self.deadline is not None:
                look = min(look, self.deadline.left)
            await self._clock.sleep(look)
        return stop
