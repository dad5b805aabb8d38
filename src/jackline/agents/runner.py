"""Define what a runner of agents gets and returns: task, log, call gate, model, time limit, ending.

Rules: (1) a task is immutable, and its ids stay the same after a crash, so that a runner finds its
own log again; (2) an entry whose write has returned survives `kill -9`; (3) the gate is awaited
before every model call and may wait for hours: at a parked run, a used-up window, a full budget;
(4) a failed model call is classified once, where the vendor was called, and each kind of failure
has one ending in one table: a throttle is never a quota, nor the reverse; (5) at its time limit the
work is cancelled and has ended before the limit is raised, and a result that came first counts; (6)
the list of finished tools that goes to the gateway holds names, times and success, never content,
and is bounded.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.prices import Price
from jackline.agents.task_meter import TaskReading
from jackline.batches.tool import Tool
from jackline.dialects import TokenUsage
from jackline.failures import Failure, Kind

JsonObject: TypeAlias = dict[str, object]
Check: TypeAlias = Callable[[object], Sequence[tuple[str, str]]]
"""Returns the faults of an answer that fits the schema: where each is, and what is wrong there."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One agent's work."""

    task_id: str
    session_id: str
    prompt: str
    label: str = ""
    schema: JsonObject | None = None
    check: Check | None = field(default=None, compare=False, repr=False)
    """Rules of the user's own type that no JSON Schema can say."""
    model: str | None = None
    """None: the runner's default."""
    system: str | None = None
    tools: tuple[Tool, ...] = ()
    tool_names: tuple[str, ...] | None = None
    """For runners that bring their own tools: which are allowed; None allows the usual ones."""
    mcp_servers: Mapping[str, JsonObject] = field(default_factory=dict)
    """By name, as in `.mcp.json`: {"command": …, "args": […]} or {"type": "http", "url": …}."""
    cwd: Path = field(default_factory=Path.cwd)
    max_tokens: int | None = None
    """Of one answer, for our own loop; None: the runner's default."""
    max_turns: int | None = None
    max_dollars: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict, compare=False, repr=False)
    """The user's own, for runners that do not learn what a call cost."""
    resume_session: str | None = None
    """Continue this session of an earlier agent instead of starting one."""
    what_happened: str = ""
    """What interrupted the last attempt, for the prompt of an agent that must know it."""
    class_: str | None = None
    """The class of traffic, for fallback orders and `never-degrade`."""
    accepts_edits: bool = True
    """Whether Claude Code may edit files in its folder unasked, where no tools are named."""


TASK_VARIABLE = "JACKLINE_TASK"
"""By it, servers that an agent starts know for which one they work (quick/mcp_link.py)."""
TOOLS_HEADER = "x-jackline-tools"
_MOST = 32
_LONGEST = 64


class ToolRun(NamedTuple):
    """One tool that has ended; `ended_by` is a kind such as `timed out`, or empty."""

    name: str
    begins: float
    seconds: float
    ok: bool
    ended_by: str = ""


class ToolRuns:
    """The finished tools of one agent that no header has reported yet."""

    def __init__(self) -> None:
        self._ran: deque[ToolRun] = deque(maxlen=_MOST)

    def add(self, tool: ToolRun) -> None:
        """Add one that has ended."""
        name, ended_by = tool.name[:_LONGEST], tool.ended_by[:_LONGEST]
        times = (round(tool.begins, 3), round(tool.seconds, 3))
        self._ran.append(ToolRun(name, *times, tool.ok, ended_by))

    def take_header(self) -> str:
        """The header's value, once; empty when nothing ran."""
        ran, self._ran = self._ran, deque(maxlen=_MOST)
        return json.dumps(list(ran), separators=(",", ":")) if ran else ""


def parse_tool_runs(value: bytes) -> list[ToolRun]:
    """The tools in a header's value; none where that is invalid."""
    try:
        return [
            ToolRun(str(name)[:_LONGEST], float(begins), float(took), bool(ok), str(by)[:_LONGEST])
            for name, begins, took, ok, by in json.loads(value)[:_MOST]
        ]
    except (ValueError, TypeError, RecursionError):
        return []


WaitListener: TypeAlias = Callable[[str, float | None], None]
"""Gets what is waited for and until when; an empty reason means that work continues."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a log: `kind` is the runner's own word, `data` plain JSON."""

    kind: str
    data: JsonObject
    at: float = 0.0


class AgentLog(Protocol):
    """What one agent has done so far, append-only, saved by task id across processes."""

    @property
    def entries(self) -> Sequence[LogEntry]:
        """All entries so far, the oldest first; those of an earlier process included."""
        ...

    async def write(self, kind: str, data: JsonObject) -> None:
        """Add an entry; it is durable when this returns."""
        ...

    def append_nowait(self, kind: str, data: JsonObject) -> None:
        """Add an entry that need not be waited for (a tool's output so far); durable soon."""
        ...


class StopAgentError(Exception):
    """Raised by the call gate into a runner: this agent must end now, in this way.

    Where it `may_resume`, only its process ends, and it continues behind the gate.
    """

    def __init__(self, ending: Ending, evidence: Evidence, *, may_resume: bool = False) -> None:
        super().__init__(evidence.says)
        self.ending = ending
        self.evidence = evidence
        self.may_resume = may_resume


@dataclass(frozen=True, slots=True)
class NextCall:
    """What is known of a model call before it is made, so that its cost can be reserved."""

    model: str
    max_tokens: int
    input_tokens: Callable[[], int] = field(compare=False)
    """Roughly what it sends; counted only where a budget limits it, since that takes time."""
    most_input: Callable[[], int] = field(compare=False)
    """More than this it cannot be; counted only where a budget is strict."""


class TimeLimit(Protocol):
    """How long an agent may go on."""

    async def reached(self) -> StopAgentError:
        """Returns when its time is up: what to end it with."""
        ...


class CallGate(Protocol):
    """Whether and when an agent may call the model; it also counts what calls cost."""

    @property
    def time_limit(self) -> TimeLimit | None:
        """What ends the agent's work, if anything does; waits here are limited by the gate."""
        ...

    async def before_call(
        self, call: NextCall | None = None, *, works_meanwhile: bool = False
    ) -> None:
        """Returns when the next model call may be made; StopAgentError when it never may.

        At a parked or stopping run this waits, and where calls in flight have reserved what is left
        of a budget; being cancelled while it waits loses nothing. What the call is expected to
        cost stays reserved until `spent`, or until the runner returns. `call` is left out by
        runners that do not know it: programs that call the model by themselves. Such a program
        continues while its runner waits here: `works_meanwhile`, so that its time is counted.
        """
        ...

    def spent(self, model: str, usage: TokenUsage, cost: float | None = None) -> None:
        """A call was answered and paid for; `cost` where the runner knows it."""
        ...

    async def over_budget(self) -> StopAgentError | None:
        """What ends a program whose tokens or dollars are used up; None while they are not.

        It admits no call, and counts no turn: for programs that make calls that nobody admits.
        """
        ...

    async def metered(self, *, fresh: bool = False) -> TaskReading | None:
        """What the gateway has counted for the agent's calls; None when it does not say.

        A `fresh` reading holds all that was over when this was called.
        """
        ...

    async def wall(self, failure: Failure, says: str) -> None:
        """A quota was met: parks the whole run; returns when it is time to repeat the call.

        The same call is then repeated without another `before_call`. StopAgentError when the run
        is to be aborted instead.
        """
        ...

    def waits(self, why: str, until: float | None) -> None:
        """Report what this agent waits for; an empty `why` means that it continues."""
        ...

    def warn(self, says: str) -> None:
        """Show the user something that does not stop the work, once in a run."""
        ...

    def process(self) -> AbstractAsyncContextManager[None]:
        """Within this, one process of an agent program may live; entered when there is room."""
        ...


CUT_CALL = "jackline_cut_call"
"""The type of the block in place of a tool call that the output limit cut off."""


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """One whole answer of a model, in the form of Anthropic's API."""

    content: list[JsonObject]
    stop_reason: str
    usage: TokenUsage
    model: str
    request_id: str | None = None
    lane: str | None = None


class ModelFailedError(Exception):
    """A model call came to no answer; the gateway has tried all that was worth trying."""

    def __init__(self, failure: Failure, evidence: Evidence, text: str = "") -> None:
        super().__init__(evidence.says)
        self.failure = failure
        self.evidence = evidence
        self.text = text
        """Of the answer, as far as it came."""


@dataclass(frozen=True, slots=True)
class ModelCaller:
    """Who calls: becomes the headers by which a gateway knows session, agent and class."""

    session_id: str
    task_id: str
    tag: str | None = None
    class_: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=())
    waits: WaitListener = field(default=lambda _why, _until: None, compare=False)
    """Gets what the call waits for outside of any vendor, such as a gateway that is gone."""
    tools: ToolRuns = field(default_factory=ToolRuns, compare=False)
    """What the agent has run since its last call."""


class Model(Protocol):
    """Calls a model once; waits, retries and other upstreams are behind it."""

    async def ask(self, body: JsonObject, caller: ModelCaller) -> WholeAnswer:
        """The whole answer; ModelFailedError when there is none."""
        ...


class Runner(Protocol):
    """One way to run an agent to its end."""

    name: str

    async def run(self, task: AgentTask, log: AgentLog, gate: CallGate) -> Outcome[object]:
        """How it ended. Continues where the log ends; cancelling it loses at most a turn.

        `Outcome.value` is the answer as plain JSON (or text when there is no schema). Only
        CancelledError leaves it, and the FlowError of a log that cannot be written any more: every
        other trouble is an ending.
        """
        ...


T = TypeVar("T")


async def within(limit: TimeLimit | None, work: Awaitable[T]) -> T:
    """The result of `work`; the limit's StopAgentError when that is reached first."""
    if limit is None:
        return await work
    job = asyncio.ensure_future(work)
    limiting = asyncio.ensure_future(limit.reached())
    try:
        await asyncio.wait([job, limiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_up = limiting.done()
        limiting.cancel()
        if not job.done():
            job.cancel()
            await asyncio.wait([job])
    if job.cancelled() and is_up:
        raise limiting.result()
    return job.result()


ENDINGS: Mapping[Kind, Ending] = {
    Kind.SERVER_THROTTLE: Ending.RATE_LIMIT,
    Kind.RATE_LIMIT: Ending.RATE_LIMIT,
    Kind.ACCOUNT_QUOTA: Ending.QUOTA,
    Kind.BILLING: Ending.QUOTA,
    Kind.OVERLOADED: Ending.OUTAGE,
    Kind.UPSTREAM_5XX: Ending.OUTAGE,
    Kind.NETWORK_EDGE: Ending.OUTAGE,
    Kind.TIMEOUT: Ending.OUTAGE,
    Kind.TRUNCATED_STREAM: Ending.OUTAGE,
    Kind.AUTH: Ending.REFUSED,
    Kind.INVALID_REQUEST: Ending.REFUSED,
    Kind.MODEL_NOT_FOUND: Ending.REFUSED,
    Kind.CONTENT_POLICY: Ending.REFUSED,
    Kind.TOOL_ERROR: Ending.TOOL_ERROR,
    Kind.MISSING_STRUCTURED_OUTPUT: Ending.SCHEMA,
    Kind.CLIENT_CANCEL: Ending.CANCELLED,
    # It ended without an answer, and nothing says why.
    Kind.NOT_A_FAILURE: Ending.CRASH,
}
# Some cancels are limits that the user has set, and have their own names.
_BY_SUB: Mapping[tuple[Kind, str], Ending] = {
    (Kind.CLIENT_CANCEL, "max_turns"): Ending.TURNS,
    (Kind.CLIENT_CANCEL, "budget"): Ending.BUDGET,
}


def ending_of(failure: Failure) -> Ending:
    """What an agent ends with when this failure is final."""
    return _BY_SUB.get((failure.kind, failure.sub or ""), ENDINGS[failure.kind])


def evidence_of(
    failure: Failure,
    *,
    says: str,
    status: int | None = None,
    attempts: int = 0,
    request_id: str | None = None,
) -> Evidence:
    """What an outcome says of the failure."""
    return Evidence(
        status=status,
        failure=failure.kind.value,
        sub=failure.sub,
        says=says,
        attempts=attempts,
        request_id=request_id,
        resets_at=failure.resets_at,
    )
