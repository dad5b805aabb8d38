"""One agent's log in the store, with the run's own lines between the runner's.

Rules: (1) lines are numbered and written in the order in which they came; (2) a runner sees only
its own lines; the run's lines name the session, the agent that it continues, its start, what was
paid and how long it has worked; (3) a line that nobody waits for is written before the agent's
end is saved; (4) a log with a line that this installation did not write is not continued.
Not here: what a runner writes (agents/), the store (run_store.py).
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields

from jackline.agents.outcome import TokenUsage
from jackline.agents.runner import JsonObject, LogEntry
from jackline.budgets.budget import Amount, Unit
from jackline.clock import Clock
from jackline.errors import JacklineError, JournalError
from jackline.flows.records import EntryRecord
from jackline.flows.store.run_store import Claim, RunStore, how_to_accept

_SESSION = "session"
_PAID = "flow:paid"
_WORKED = "flow:worked"
_FOLLOWS = "flow:follows"
_STARTED = "flow:started"
_COUNTS = tuple(count.name for count in fields(TokenUsage))


@dataclass(slots=True)
class AgentUsage:
    """What an agent has used so far, in all processes."""

    usage: TokenUsage = field(default_factory=TokenUsage)
    dollars: float = 0.0
    turns: int = 0
    """Of those that were answered: the one in hand at a crash is asked for again."""
    seconds: float = 0.0

    @property
    def amount(self) -> Amount:
        """The same, as accounts count it."""
        return {
            Unit.TOKENS: self.usage.total,
            Unit.DOLLARS: self.dollars,
            Unit.TURNS: self.turns,
            Unit.SECONDS: self.seconds,
        }

    def take(self, kind: str, data: JsonObject) -> None:
        """Read one of our lines."""
        if kind == _PAID:
            self.usage += TokenUsage(*(int(_amount(data.get(name))) for name in _COUNTS))
            self.dollars += _amount(data.get("dollars"))
            self.turns = int(_amount(data.get("turns"))) or self.turns + 1
        if "seconds" in data:
            # The latest word counts: time may have turned out to be no work.
            self.seconds = _amount(data["seconds"])


@dataclass(frozen=True, slots=True)
class ContinuedAgent:
    """The agent whose conversation another goes on with, and how far it had come then."""

    task_id: str
    lines: int
    """So many of its lines belong to it; what it writes later does not."""


def continued_agent_in(kind: str, data: JsonObject) -> ContinuedAgent | None:
    """Whom a line names as the one gone on from."""
    if kind != _FOLLOWS:
        return None
    return ContinuedAgent(str(data.get("task_id", "")), int(_amount(data.get("lines"))))


def usage_in(lines: Iterable[EntryRecord]) -> AgentUsage:
    """What the lines of a notebook say was used."""
    used = AgentUsage()
    for line in lines:
        if line.kind in (_PAID, _WORKED):
            used.take(line.kind, json.loads(line.data))
    return used


def first_start_in(lines: Iterable[EntryRecord]) -> float | None:
    """When the agent of a notebook was started first, by the wall clock."""
    for line in lines:
        if line.kind == _STARTED:
            return _amount(json.loads(line.data).get("at"))
    return None


class StoredAgentLog:
    """The notebook of one task; implements `agents.ports.Notebook`."""

    def __init__(self, engine: RunStore, claim: Claim, task_id: str, clock: Clock) -> None:
        self._engine = engine
        self._claim = claim
        self._task_id = task_id
        self._clock = clock
        self._entries: list[LogEntry] = []
        self._next = 1
        self._has_session = False
        self._lines: deque[tuple[EntryRecord, asyncio.Future[None] | None]] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._trouble: JacklineError | None = None
        self.used = AgentUsage()
        self.time_used: Callable[[], float] | None = None
        """How long the agent has worked by now; None where nobody counts it."""
        self._started_at: float | None = None
        self.follows: ContinuedAgent | None = None
        """Whom the agent goes on from, as it was when it began."""

    async def open(self, session_id: str = "") -> None:
        """Read what is there, and name the session, if it has one, unless somebody has."""
        for record in await self._engine.entries(self._task_id):
            if not record.trusted:
                raise JournalError(
                    f"The notebook of agent {self._task_id} has lines that were not written by"
                    " this installation: it is not gone on with.",
                    hint=how_to_accept(self._claim.run_id),
                )
            self._next = record.number + 1
            self._read(LogEntry(record.kind, json.loads(record.data), record.at))
        if session_id and not self._has_session:
            self._has_session = True
            await self._give(_SESSION, {"session_id": session_id, "by": "flow"})

    def started(self, at: float) -> None:
        """Keep when the agent was started first, by the wall clock; a deadline counts from then."""
        if self._started_at is None:
            self._started_at = at
            self._queue(_STARTED, {"at": at}, None)

    def follow(self, whom: ContinuedAgent | None, earlier: Sequence[LogEntry]) -> None:
        """Let the lines of an earlier agent stand before this one's own, and keep whose they are.

        Without that, one that goes on from this one would know only the last part.
        """
        self._entries[:0] = earlier
        if whom is not None and self.follows is None:
            self.follows = whom
            self._queue(_FOLLOWS, asdict(whom), None)

    @property
    def entries(self) -> Sequence[LogEntry]:
        """The runner's lines, the oldest first."""
        return self._entries

    async def write(self, kind: str, data: JsonObject) -> None:
        """Add a line; it is durable when this returns."""
        entry = LogEntry(kind, data, self._clock.wall())
        await self._give(kind, data)
        self._entries.append(entry)

    def append_nowait(self, kind: str, data: JsonObject) -> None:
        """Add a line that need not be waited for."""
        self._entries.append(LogEntry(kind, data, self._clock.wall()))
        self._queue(kind, data, None)

    def pay(self, model: str, usage: TokenUsage, cost: float | None, turns: int) -> None:
        """Keep what a call took, so that budgets hold across a crash; `turns`: all so far."""
        line: JsonObject = {"model": model, "dollars": cost or 0.0, **asdict(usage)}
        line |= {"turns": turns, **self._time()}
        self.used.take(_PAID, line)
        self._queue(_PAID, line, None)

    def keep_time(self) -> None:
        """Keep how long the agent has worked, where somebody counts it."""
        line = self._time()
        if line:
            self.used.take(_WORKED, line)
            self._queue(_WORKED, line, None)

    async def settle(self) -> None:
        """Returns when every line is written; raises what went wrong with a jotted one."""
        while self._writer is not None and not self._writer.done():
            await asyncio.wait({self._writer})
        if self._trouble is not None:
            raise self._trouble

    def _read(self, entry: LogEntry) -> None:
        if not is_own_line(entry):
            self._entries.append(entry)
        elif entry.kind == _SESSION:
            self._has_session = True
        elif entry.kind == _FOLLOWS:
            self.follows = continued_agent_in(entry.kind, entry.data)
        elif entry.kind == _STARTED:
            self._started_at = _amount(entry.data.get("at"))
        else:
            self.used.take(entry.kind, entry.data)

    def _time(self) -> JsonObject:
        return {} if self.time_used is None else {"seconds": round(self.time_used(), 3)}

    async def _give(self, kind: str, data: JsonObject) -> None:
        written = asyncio.get_running_loop().create_future()
        self._queue(kind, data, written)
        await written

    def _queue(self, kind: str, data: JsonObject, written: asyncio.Future[None] | None) -> None:
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        payload = text.encode("utf-8", "surrogatepass")
        record = EntryRecord(self._task_id, self._next, kind, payload, self._clock.wall())
        self._next += 1
        self._lines.append((record, written))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write(), name=f"notebook {self._task_id}")

    async def _write(self) -> None:
        while self._lines:
            record, written = self._lines.popleft()
            if self._trouble is None:
                try:
                    await self._engine.write_entry(self._claim, record)
                except JacklineError as error:
                    # Numbers have no gap, so nothing after this one can be written either.
                    self._trouble = error
            if written is None or written.done():
                continue
            if self._trouble is None:
                written.set_result(None)
            else:
                written.set_exception(self._trouble)


def is_own_line(entry: LogEntry) -> bool:
    """Whether a line is the run's, not the runner's."""
    if entry.kind == _SESSION:
        return entry.data.get("by") == "flow"
    return entry.kind in (_PAID, _WORKED, _FOLLOWS, _STARTED)


def _amount(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
