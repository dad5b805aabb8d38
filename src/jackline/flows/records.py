"""What is kept of runs, their calls, their resources and their clean-up.

Laws: (1) plain values without behaviour; (2) times are seconds since the epoch; (3) `value` and
`outcome` are JSON bytes, so that a store never needs the user's types; (4) `trusted` says whether
this installation wrote the record: a store sets it on reading, and what is made here is our own.
Not here: where they are kept (engine.py and its adapters).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class RunState(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    """Someone carries it, as long as the lease holds."""
    PARKED = "parked"
    """It waits for `wake_at`, or for a person when that is None."""
    STOPPED = "stopped"
    """Interrupted with everything saved: Ctrl-C, or a stop at a turn boundary."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({RunState.FINISHED, RunState.FAILED, RunState.CANCELLED})


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run."""

    run_id: str
    flow: str
    """The function's name."""
    source: str
    """The file it is loaded from again; empty when only its own process can run it."""
    arguments: bytes
    """JSON object of keyword arguments."""
    settings: bytes = b"{}"
    """JSON of RunSettings: budgets, what to do at a quota, how to wake."""
    cwd: str = ""
    state: RunState = RunState.RUNNING
    created_at: float = 0.0
    updated_at: float = 0.0
    ended_at: float | None = None
    why: str = ""
    """Why it is parked, stopped or failed, for a person."""
    wake_at: float | None = None
    outcome: bytes | None = None
    """JSON of the run's Outcome once it ended."""
    forked_from: str | None = None
    owner: str = ""
    """Who carries it now: host, process id and a random part."""
    lease_until: float = 0.0
    epoch: int = 0
    """Grows with each claim; a write with an older one is refused."""
    tokens: int = 0
    cost: float = 0.0
    confirmed: bool = False
    """A person allowed the next waking (`resume.confirm`)."""
    trusted: bool = True


class CallKind(StrEnum):
    """What a keyed call is."""

    AGENT = "agent"
    STEP = "step"
    FLOW = "flow"


class CallState(StrEnum):
    """Where a keyed call stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One keyed call of a run: an agent, a step, or a child flow."""

    run_id: str
    key: str
    occurrence: int
    kind: CallKind
    label: str
    phase: str
    task_id: str
    state: CallState
    value: bytes | None = None
    """JSON of the result; only of a call that is done."""
    outcome: bytes | None = None
    """JSON of an agent's Outcome without its value."""
    attempts: int = 1
    started_at: float = 0.0
    ended_at: float | None = None
    tokens: int = 0
    cost: float = 0.0
    terminated_by: str = ""
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class AgentOrder:
    """A person's order to end single agents of a run, and what came of it."""

    run_id: str
    name: str
    """The label or the task id of those that it means."""
    at: float
    ended: int | None = None
    """How many were ended by it; None until the run's owner has looked, 0 while there is none."""


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """One line of an agent's notebook."""

    task_id: str
    number: int
    """From 1, without a gap."""
    kind: str
    data: bytes
    at: float
    trusted: bool = True


class ResourceState(StrEnum):
    """Where a rented thing stands."""

    HELD = "held"
    RELEASING = "releasing"
    RELEASED = "released"
    FAILED = "failed"
    """Its release failed; it may still cost money, and is tried again."""


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """Something that was rented and must be given back."""

    run_id: str
    name: str
    task_id: str
    """The agent that rented it; empty when the run did."""
    release: str
    """A shell command, or `function NAME` of the flow's file; empty: only listed."""
    release_on_park: bool
    lease_until: float | None
    state: ResourceState
    taken_at: float
    released_at: float | None = None
    tries: int = 0
    trouble: str = ""
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class HookRecord:
    """One clean-up hook for one end of one agent or run."""

    run_id: str
    end_id: str
    """Task id (or run id) and the number of the ending.

    A hook runs at least once per ending, each time with the same idempotency key.
    """
    hook: str
    """A shell command, or `function NAME` of the flow's file."""
    told: bytes
    """JSON given to the hook: the Outcome."""
    state: str = "due"
    """due, running, done, failed."""
    tries: int = 0
    trouble: str = ""
    at: float = 0.0
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class NoteRecord:
    """One line of a run's log."""

    run_id: str
    number: int
    at: float
    what: str
    """Such as started, agent began, agent waits, agent ended, parked, woke, hook failed, ended."""
    label: str = ""
    detail: dict[str, object] = field(default_factory=dict)
