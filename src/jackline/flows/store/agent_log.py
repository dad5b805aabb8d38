"""One agent's log in the store, with the run's own lines between the runner's.

Rules: (1) lines are numbered and written in the order in which they came; (2) a runner sees only
its own lines; the run's lines name the session, the agent that it continues, its start, what was
paid and how long it has worked; (3) a line that nobody waits for is written before the agent's
end is saved; (4) a log with a line that this installation did not write is not continued; (5)
`pending_calls` reads logs as a resumed agent would: alone, and after the lines of every agent that
they say they continue. Logs count by their run, not by its calls: the agent's id follows from the
flow, so that a log is found without a call. A log that cannot be read whole is refused, since
nobody can be shown what it contains.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

from msgspec import structs

from jackline.agents.runner import JsonObject, LogEntry
from jackline.budgets.budget import Amount, Unit
from jackline.clock import Clock
from jackline.dialects import TokenUsage
from jackline.errors import JacklineError, JournalError, UsageError
from jackline.flows.records import EntryRecord
from jackline.flows.store.run_store import Claim, RunStore, how_to_accept

_SESSION = "session"
PAID = "flow:paid"
WORKED = "flow:worked"
_FOLLOWS = "flow:follows"
_STARTED = "flow:started"
_COUNTS = TokenUsage.__struct_fields__
# More than anybody writes by hand; beyond it a chain is a circle.
_LONGEST_CHAIN = 1000
_ALL = sys.maxsize


@dataclass(slots=True)
class AgentUsage:
    """What an agent has used so far, in all processes."""

    usage: TokenUsage = field(default_factory=TokenUsage)
    dollars: float = 0.0
    turns: int = 0
    """Of those that were answered: the one in hand at a crash is requested again."""
    seconds: float = 0.0
    unpriced: int = 0
    """Tokens of answers whose price was not known."""

    @property
    def amount(self) -> Amount:
        """The same, in the units of a budget."""
        return {
            Unit.TOKENS: self.usage.total,
            Unit.DOLLARS: self.dollars,
            Unit.TURNS: self.turns,
            Unit.SECONDS: self.seconds,
        }

    @classmethod
    def of_log(cls, lines: Iterable[EntryRecord]) -> Self:
        """What the lines of a log say was used."""
        used = cls()
        for line in lines:
            if line.kind in (PAID, WORKED):
                used.add(line.kind, json.loads(line.data))
        return used

    def add(self, kind: str, data: JsonObject) -> None:
        """Add what one of our lines says."""
        if kind == PAID:
            self.usage += TokenUsage(*(int(_amount(data.get(name))) for name in _COUNTS))
            self.dollars += _amount(data.get("dollars"))
            self.unpriced += int(_amount(data.get("unpriced")))
            self.turns = int(_amount(data.get("turns"))) or self.turns + 1
        if "seconds" in data:
            # The latest line counts: time may have turned out to be no work.
            self.seconds = _amount(data["seconds"])


@dataclass(frozen=True, slots=True)
class ContinuedAgent:
    """The agent whose conversation another continues, and how many lines it had then."""

    task_id: str
    lines: int

    @classmethod
    def named_in(cls, line: LogEntry) -> ContinuedAgent | None:
        """The agent that a line names as the continued one."""
        if line.kind != _FOLLOWS:
            return None
        return cls(str(line.data.get("task_id", "")), int(_amount(line.data.get("lines"))))


def first_start_in(lines: Iterable[EntryRecord]) -> float | None:
    """When the agent of a log was started first, by the wall clock."""
    for line in lines:
        if line.kind == _STARTED:
            return _amount(json.loads(line.data).get("at"))
    return None


class StoredAgentLog:
    """The log of one task; implements `agents.runner.AgentLog`."""

    def __init__(self, store: RunStore, claim: Claim, task_id: str, clock: Clock) -> None:
        self._store = store
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
        """How long the agent has worked by now; None where that is not counted."""
        self._started_at: float | None = None
        self.follows: ContinuedAgent | None = None
        """The agent that this one continues, as it was when it began."""

    async def open(self, session_id: str = "") -> None:
        """Read what is saved, and save the session, if it has one, unless a line names one."""
        for record in await self._store.entries(self._task_id):
            if not record.trusted:
                raise JournalError(
                    f"The log of agent {self._task_id} has lines that were not written by"
                    " this installation: it is not continued.",
                    hint=how_to_accept(self._claim.run_id),
                )
            self._next = record.number + 1
            entry = LogEntry(record.kind, json.loads(record.data), record.at)
            if not _is_own_line(entry):
                self._entries.append(entry)
            elif entry.kind == _SESSION:
                self._has_session = True
            elif entry.kind == _FOLLOWS:
                self.follows = ContinuedAgent.named_in(entry)
            elif entry.kind == _STARTED:
                self._started_at = _amount(entry.data.get("at"))
            else:
                self.used.add(entry.kind, entry.data)
        if session_id and not self._has_session:
            self._has_session = True
            await self._write(_SESSION, {"session_id": session_id, "by": "flow"})

    def started(self, at: float) -> None:
        """Save when the agent was started first, by the wall clock; a deadline counts from then."""
        if self._started_at is None:
            self._started_at = at
            self._queue(_STARTED, {"at": at})

    def follow(self, whom: ContinuedAgent | None, earlier: Sequence[LogEntry]) -> None:
        """Put the lines of an earlier agent before this one's own, and save whose they are.

        Without that, an agent that continues this one would know only the last part.
        """
        self._entries[:0] = earlier
        if whom is not None and self.follows is None:
            self.follows = whom
            self._queue(_FOLLOWS, asdict(whom))

    @property
    def entries(self) -> Sequence[LogEntry]:
        """The runner's lines, the oldest first."""
        return self._entries

    async def write(self, kind: str, data: JsonObject) -> None:
        """Add a line; it is durable when this returns."""
        entry = LogEntry(kind, data, self._clock.wall())
        await self._write(kind, data)
        self._entries.append(entry)

    def append_nowait(self, kind: str, data: JsonObject) -> None:
        """Add a line that need not be waited for."""
        self._entries.append(LogEntry(kind, data, self._clock.wall()))
        self._queue(kind, data)

    def pay(self, model: str, usage: TokenUsage, cost: float | None, turns: int) -> None:
        """Save what a call took, so that budgets hold across a crash; `turns`: all so far."""
        line: JsonObject = {"model": model, "dollars": cost or 0.0, **structs.asdict(usage)}
        line |= {"unpriced": usage.total} if cost is None else {}
        line |= {"turns": turns, **self._time()}
        self.used.add(PAID, line)
        self._queue(PAID, line)

    def keep_time(self) -> None:
        """Save how long the agent has worked, where that is counted."""
        line = self._time()
        if line:
            self.used.add(WORKED, line)
            self._queue(WORKED, line)

    async def settle(self) -> None:
        """Returns when every line is written; raises the error of a line that could not be."""
        while self._writer is not None and not self._writer.done():
            await asyncio.wait({self._writer})
        if self._trouble is not None:
            raise self._trouble

    def _time(self) -> JsonObject:
        return {} if self.time_used is None else {"seconds": round(self.time_used(), 3)}

    async def _write(self, kind: str, data: JsonObject) -> None:
        written = asyncio.get_running_loop().create_future()
        self._queue(kind, data, written)
        await written

    def _queue(
        self, kind: str, data: JsonObject, written: asyncio.Future[None] | None = None
    ) -> None:
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        payload = text.encode("utf-8", "surrogatepass")
        record = EntryRecord(self._task_id, self._next, kind, payload, self._clock.wall())
        self._next += 1
        self._lines.append((record, written))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(
                self._write_queued(), name=f"log of agent {self._task_id}"
            )

    async def _write_queued(self) -> None:
        while self._lines:
            record, written = self._lines.popleft()
            if self._trouble is None:
                try:
                    await self._store.write_entry(self._claim, record)
                except JacklineError as error:
                    # Numbers have no gap, so nothing after this one can be written either.
                    self._trouble = error
            if written is None or written.done():
                continue
            if self._trouble is None:
                written.set_result(None)
            else:
                written.set_exception(self._trouble)


def _is_own_line(entry: LogEntry) -> bool:
    """Whether a line is the run's, not the runner's."""
    if entry.kind == _SESSION:
        return entry.data.get("by") == "flow"
    return entry.kind in (PAID, WORKED, _FOLLOWS, _STARTED)


def _amount(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


@dataclass(frozen=True, slots=True)
class PendingToolCall:
    """A tool call of an answer that has no result yet."""

    task_id: str
    name: str
    arguments: str
    """As JSON, whole."""


@dataclass(frozen=True, slots=True)
class PendingSession:
    """A session of an agent's program that would be resumed."""

    task_id: str
    session_id: str


async def pending_calls(store: RunStore, run_id: str) -> list[PendingToolCall | PendingSession]:
    """What a run would do from its logs before the model is called again.

    UsageError when one of them cannot be read.
    """
    # Flows do not need these at their start.
    from jackline.agents.messages.conversation import AgentConversation  # noqa: PLC0415
    from jackline.agents.process.resume import History  # noqa: PLC0415

    found: dict[PendingToolCall | PendingSession, None] = {}  # a set with an order
    for task_id in await store.agent_logs(run_id):
        try:
            own, follows = await _lines(store, ContinuedAgent(task_id, _ALL))
            chains = [await conversation(store, each) for each in follows]
            for before in ([], *chains):
                for call in AgentConversation.from_log([*before, *own]).calls:
                    if call.ended is None:
                        arguments = json.dumps(call.arguments, ensure_ascii=False)
                        found[PendingToolCall(task_id, call.name, arguments)] = None
            session = History.from_log(own).session_id
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UsageError(
                f"The log of agent {task_id} of run {run_id} cannot be read, so that nobody can"
                " see what it would run; nothing was accepted.",
                hint=f"delete the run: jackline rm {run_id} --force",
            ) from error
        if session is not None:
            found[PendingSession(task_id, session)] = None
    return list(found)


async def conversation(
    store: RunStore, whom: ContinuedAgent, *, trusted_only: bool = False
) -> list[LogEntry]:
    """The lines of this agent and of all that it continued, the oldest first.

    ValueError when they continue one another in a circle, or when some, with `trusted_only`, are
    not ours.
    """
    parts: list[list[LogEntry]] = []
    before: ContinuedAgent | None = whom
    while before is not None:
        part, follows = await _lines(store, before, trusted_only=trusted_only)
        parts.append(part)
        if len(parts) > _LONGEST_CHAIN:
            raise ValueError("the agents continue one another in a circle")
        before = follows[0] if follows else None
    return [line for part in reversed(parts) for line in part]


async def _lines(
    store: RunStore, whom: ContinuedAgent, *, trusted_only: bool = False
) -> tuple[list[LogEntry], Sequence[ContinuedAgent]]:
    """The runner's lines of one log, and the agents that it says it continues."""
    records = (await store.entries(whom.task_id))[: whom.lines]
    if trusted_only and not all(record.trusted for record in records):
        raise ValueError("the log has lines that are not ours")
    lines = [LogEntry(each.kind, json.loads(each.data), each.at) for each in records]
    follows = [found for line in lines if (found := ContinuedAgent.named_in(line))]
    return [line for line in lines if not _is_own_line(line)], follows
