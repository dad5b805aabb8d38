"""The three things that a runner is given: a notebook, leave to call, and a model to ask.

Laws: (1) what `Notebook.write` has returned from survives `kill -9`; (2) `Leave.before_call` is
asked before every model call and may wait for hours: at a parked run, a spent window, a gate; (3)
a model's failure is classified once, by whoever asked the vendor.
Not here: who implements them (flows/, gateway_model.py, testing/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from jackline.agents.outcome import Ending, Evidence, Outcome, Usage
from jackline.agents.task import AgentTask, JsonObject
from jackline.agents.tools_ran import ToolsRan
from jackline.failures import Failure

Waits: TypeAlias = Callable[[str, float | None], None]
"""Hears what is waited for and until when; an empty reason says that it goes on."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a notebook: `kind` is the runner's own word, `data` plain JSON."""

    kind: str
    data: JsonObject
    at: float = 0.0


class Notebook(Protocol):
    """What one agent has done so far, append-only, kept by task id across processes."""

    @property
    def entries(self) -> Sequence[Entry]:
        """All lines so far, the oldest first; those of an earlier process included."""
        ...

    async def write(self, kind: str, data: JsonObject) -> None:
        """Add a line; it is durable when this returns."""
        ...

    def jot(self, kind: str, data: JsonObject) -> None:
        """Add a line that need not be waited for (a tool's output so far); durable soon."""
        ...


class StopAgentError(Exception):
    """Raised by `Leave` into a runner: this agent must end now, in this way."""

    def __init__(self, ending: Ending, evidence: Evidence) -> None:
        super().__init__(evidence.says)
        self.ending = ending
        self.evidence = evidence


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


class Leave(Protocol):
    """Whether and when an agent may call the model; it also hears what calls cost."""

    @property
    def time_limit(self) -> TimeLimit | None:
        """What ends the agent's work, if anything does; waiting for leave is limited by `Leave`."""
        ...

    async def before_call(
        self, call: NextCall | None = None, *, works_meanwhile: bool = False
    ) -> None:
        """Returns when the next model call may be made; StopAgentError when it never may.

        At a parked or stopping run this waits, and where calls in flight have reserved what is left
        of a budget; being cancelled while it waits loses nothing. What the call is expected to
        cost stays reserved until `spent`, or until the runner returns. `call` is left out by
        runners that do not know it: programs that call the model by themselves. Such a program
        goes on while its runner waits here: `works_meanwhile`, so that its time is counted.
        """
        ...

    def spent(self, model: str, usage: Usage, cost: float | None = None) -> None:
        """A call was answered and paid for; `cost` where the runner was told it."""
        ...

    async def wall(self, failure: Failure, says: str) -> None:
        """A quota was met: parks the whole run; returns when it is time to ask again.

        The same call is then asked again without another `before_call`. StopAgentError when the
        run is to be aborted instead.
        """
        ...

    def waits(self, why: str, until: float | None) -> None:
        """Report what this agent waits for; an empty `why` says that it goes on working."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer of a model, Anthropic's words."""

    content: list[JsonObject]
    stop_reason: str
    usage: Usage
    model: str
    request_id: str | None = None
    lane: str | None = None


class ModelFailedError(Exception):
    """A model call came to no answer; the gateway has tried all that was worth trying."""

    def __init__(
        self,
        failure: Failure,
        *,
        says: str,
        status: int | None = None,
        request_id: str | None = None,
        attempts: int = 1,
        text: str = "",
    ) -> None:
        super().__init__(says)
        self.failure = failure
        self.says = says
        self.status = status
        self.request_id = request_id
        self.attempts = attempts
        self.text = text


def _nobody_listens(_why: str, _until: float | None) -> None:
    """Nobody wants to know what is waited for."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: becomes the headers by which a gateway knows session, agent and class."""

    session_id: str
    task_id: str
    tag: str | None = None
    class_: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=())
    waits: Waits = field(default=_nobody_listens, compare=False)
    """Hears what the call waits for outside of any vendor, such as a gateway that is gone."""
    tools: ToolsRan = field(default_factory=ToolsRan, compare=False)
    """What the agent has run since its last call."""


class Model(Protocol):
    """Asks a model once; waits, retries and other upstreams are behind it."""

    async def ask(self, body: JsonObject, caller: Caller) -> Answer:
        """The whole answer; ModelFailedError when there is none."""
        ...


class Runner(Protocol):
    """One way to carry an agent to its end."""

    name: str

    async def carry(self, task: AgentTask, notebook: Notebook, leave: Leave) -> Outcome[object]:
        """How it ended. Goes on where the notebook ends; cancelling it loses at most a turn.

        `Outcome.value` is the answer as plain JSON (or text when there is no schema). Only
        CancelledError leaves it, and the FlowError of a notebook that cannot be written any more:
        every other trouble is an ending.
        """
        ...
