"""Know for how long the calls of each task were held instead of being sent.

Rules: (1) a task is held while it has calls and all of them wait: while one is in flight it works;
(2) calls are looked at when the gateway looks after them anyway, about once a second, so that no
call pays for this and a hold is known to about a second; (3) the tasks held last are remembered, up
to a limit, and a restart forgets all. Who asks is flows/time_limits.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Protocol

MOST_TASKS = 4096


class _Identity(Protocol):
    @property
    def task(self) -> str | None: ...


class _Call(Protocol):
    @property
    def identity(self) -> _Identity: ...

    @property
    def waiting(self) -> bool: ...


class HeldTime:
    """Seconds by task, for tasks that name themselves in `x-jackline-task`."""

    def __init__(self) -> None:
        self._seconds: OrderedDict[str, float] = OrderedDict()
        self._looked_at: float | None = None

    @property
    def by_task(self) -> Mapping[str, float]:
        """For how long each task was held so far."""
        return self._seconds

    def look(self, calls: Iterable[_Call], now: float) -> None:
        """Take what these calls do to be what they did since the last look."""
        passed = 0.0 if self._looked_at is None else max(0.0, now - self._looked_at)
        self._looked_at = now
        held: set[str] = set()
        works: set[str] = set()
        for call in calls:
            task = call.identity.task
            if task is not None:
                (held if call.waiting else works).add(task)
        for task in held - works:
            self._seconds[task] = self._seconds.get(task, 0.0) + passed
            self._seconds.move_to_end(task)
        while len(self._seconds) > MOST_TASKS:
            self._seconds.popitem(last=False)
