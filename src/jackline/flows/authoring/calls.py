"""The functions a flow is written with, `agent`, `step`, `phase`, `parallel`, and their awaitables.

Rules: (1) an argument that makes no sense is refused where it is written; each function works
only inside a run, and says so elsewhere; (2) nothing happens until a call is awaited; a call that
never is, is named at the run's end; (3) to asyncio a call is a coroutine, so that gather,
create_task and TaskGroup take it as it is; awaited again it returns the same again, without
another call; (4) in `parallel` every call has its own outcome, in call order; none is cancelled
because another failed; cancelling the whole cancels all; (5) a finished step never runs again, and
returns what was saved; one that fails raises what it raised, and runs again when the run is
resumed, as does one that was cut off by a crash: the function must bear that; (6) a blocking
function runs in a thread of its own, and one that never returns prevents no program from ending.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import shlex
from collections import Counter
from collections.abc import (
    AsyncIterable,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import nullcontext
from contextvars import Token
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import StopAgentError
from jackline.batches.threads import contain_exits, in_own_thread
from jackline.budgets.budget import Budget, Duration, seconds_of
from jackline.errors import BadArgumentError, JournalError, LeaseLostError, StepFailedError
from jackline.flows.agent_spec import (
    OWN_LOOP,
    AgentOptions,
    AgentSpec,
    EarlierAgent,
    HookLike,
    ToolLike,
    check_count,
    check_text,
    hooks,
    toolbox,
)
from jackline.flows.execution.agent_execution import AgentExecution
from jackline.flows.execution.execution import CURRENT, FlowScope, scope_for
from jackline.flows.records import CallKind, CallRecord, CallState, call_key
from jackline.flows.run_events import PhaseBegan, PhaseEnded, StepBegan, StepEnded
from jackline.flows.values import Shape, returned_type
from jackline.user_errors import error_texts

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class AgentFailedError(StepFailedError):
    """An agent came to no answer; `outcome` says how it ended."""

    def __init__(self, outcome: Outcome[Any]) -> None:
        evidence = outcome.evidence
        says = f": {evidence.says}" if evidence.says else ""
        super().__init__(
            f"The agent {outcome.label or outcome.task_id} ended by "
            f"{outcome.terminated_by.value}{says}",
            retry_at=evidence.resets_at,
            private=evidence.private,
        )
        self.outcome = outcome


class _Call(Coroutine[Any, Any, T_co], Generic[T_co]):
    """A call that looks like a coroutine to asyncio and can be awaited again."""

    def __init__(self, scope: FlowScope, name: str) -> None:
        self._scope = scope
        self._run = scope.run
        self._driven: Coroutine[Any, Any, T_co] | None = None
        self._run.unawaited[self] = name

    async def _value(self) -> T_co:
        raise NotImplementedError

    def _begin(self) -> None:
        self._run.unawaited.pop(self, None)

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._value().__await__()

    # asyncio.create_task and TaskGroup drive a coroutine through these.

    def send(self, value: Any, /) -> Any:
        """Drive it, as a task does."""
        return self._driver().send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any:
        """Raise something in it, as a task does."""
        error = kind if isinstance(kind, BaseException) else (value or kind())
        if traceback is not None and isinstance(error, BaseException):
            error = error.with_traceback(traceback)
        return self._driver().throw(cast("BaseException", error))

    def close(self) -> None:
        """End it where it is; one that never began just goes."""
        self._run.unawaited.pop(self, None)
        if self._driven is not None:
            self._driven.close()

    def _driver(self) -> Coroutine[Any, Any, T_co]:
        if self._driven is None:
            self._driven = self._value()
        return self._driven


class AgentCall(_Call[T_co]):
    """An agent to be awaited: for its value, or with `.outcome()` for how it ended."""

    def __init__(self, spec: AgentSpec, scope: FlowScope) -> None:
        super().__init__(scope, spec.label or "agent")
        self._spec = spec
        self._ended: asyncio.Future[Outcome[T_co]] | None = None

    def without_edits(self) -> AgentCall[T_co]:
        """The same call, whose runner accepts no edits that nobody permitted."""
        self._spec = replace(self._spec, accepts_edits=False)
        return self

    async def _value(self) -> T_co:
        outcome = await self.outcome()
        if not outcome.ok:
            raise AgentFailedError(outcome)
        return cast("T_co", outcome.value)

    async def outcome(self) -> Outcome[T_co]:
        """How it ended, whatever the end was."""
        self._begin()
        if self._ended is not None:
            return await asyncio.shield(self._ended)
        self._ended = asyncio.get_running_loop().create_future()
        try:
            outcome = await AgentExecution(self._spec, self._scope).outcome()
        except asyncio.CancelledError:
            evidence = Evidence(says="Another part of the flow cancelled it.")
            self._ended.set_result(Outcome(Ending.CANCELLED, evidence=evidence))
            raise
        except BaseException:
            # Whoever waits for the same call meets the same trouble by awaiting it anew.
            ended, self._ended = self._ended, None
            ended.cancel()
            raise
        self._ended.set_result(outcome)
        return outcome

    def __repr__(self) -> str:
        return f"<AgentCall {self._spec.label or 'without a label'}>"


class StepCall(_Call[T_co]):
    """A durable Python call to be awaited for its value."""

    def __init__(
        self,
        function: Callable[..., object],
        arguments: tuple[tuple[object, ...], dict[str, object]],
        scope: FlowScope,
    ) -> None:
        """BadArgumentError for what has no name, or arguments that cannot be saved."""
        name = getattr(function, "__qualname__", None)
        if not isinstance(name, str):
            raise BadArgumentError(
                f"step() needs a function, not a {type(function).__name__}.",
                hint="Write step(fetch, url), not step(fetch(url)).",
            )
        if "<lambda>" in name:
            raise BadArgumentError(
                "A lambda has no name to be known by after a crash.",
                hint="Write a small function, and pass its values as arguments.",
            )
        returned_type(function)
        # The flow's own module has another name each time its file is loaded, and counts as none.
        module = getattr(function, "__module__", None)
        place = "" if module in (None, scope.run.flow_module_name) else f"{module}:"
        self._key = call_key(CallKind.STEP, f"{place}{name}", list(arguments))
        super().__init__(scope, name)
        self._function = function
        self._arguments = arguments
        self._name = name
        self._returned: asyncio.Future[T_co] | None = None

    async def _value(self) -> T_co:
        self._begin()
        if self._returned is not None:
            return await asyncio.shield(self._returned)
        returned = self._returned = asyncio.get_running_loop().create_future()
        try:
            value = cast("T_co", await self._run_once())
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                returned.cancel()
            else:
                returned.set_exception(error)
                returned.exception()  # looked at: it is raised here, whether others wait or not
            raise
        returned.set_result(value)
        return value

    async def _run_once(self) -> object:
        """What the function returned, decoded from what is saved."""
        run, phase_, shape = self._run, self._scope.phase, Shape(returned_type(self._function))
        occurrence, known, task_id = run.identify(self._key)
        if known is not None and run.answers_from_store(known):
            trouble = "" if known.state is CallState.DONE else known.terminated_by
            run.emit(StepEnded(run.clock.wall(), self._name, phase_, trouble, replayed=True))
            if trouble:
                only = shlex.quote(self._name)
                raise StepFailedError(
                    f"The step {self._name} failed before with {trouble}.",
                    hint=f"`jackline resume {run.run_id} --failed --only {only}` runs it again.",
                )
            return shape.decode(known.value or b"null")
        call = CallRecord(
            run.run_id,
            self._key,
            occurrence,
            CallKind.STEP,
            self._name,
            phase_,
            task_id,
            CallState.RUNNING,
            attempts=1 if known is None else known.attempts + 1,
        )
        ticket = run.gate.ticket(may_probe=False)
        try:
            with run.running_call():
                await run.gate.enter(ticket)
                return await self._run_and_save(call, shape)
        except StopAgentError as stop:
            raise StepFailedError(
                f"The step {self._name} was not started: {stop.evidence.says}"
            ) from None
        finally:
            run.gate.done(ticket)

    async def _run_and_save(self, call: CallRecord, shape: Shape) -> object:
        run = self._run
        call = replace(call, started_at=run.clock.wall())
        await run.begin(call)
        run.emit(StepBegan(call.started_at, call.label, call.phase))
        try:
            positional, named = self._arguments
            with contain_exits():
                if inspect.iscoroutinefunction(self._function):
                    returned = await self._function(*positional, **named)
                else:
                    async with run.blocking_steps:
                        function = partial(self._function, *positional, **named)
                        returned = await in_own_thread(function, f"step {self._name}")
                    returned = await returned if inspect.isawaitable(returned) else returned
            data = shape.encode(returned)
            value = shape.decode(data)
            done = replace(call, state=CallState.DONE, value=data, ended_at=run.clock.wall())
        except Exception as error:
            trouble = type(error).__name__
            failed = replace(call, state=CallState.FAILED, value=None, terminated_by=trouble)
            await run.end(replace(failed, ended_at=run.clock.wall()))
            run.emit(StepEnded(run.clock.wall(), call.label, call.phase, trouble, replayed=False))
            raise
        await run.shielded(run.end(done))
        run.emit(StepEnded(run.clock.wall(), call.label, call.phase, "", replayed=False))
        return value

    def __repr__(self) -> str:
        return f"<StepCall {self._name}>"


P = ParamSpec("P")


@overload
def agent(
    prompt: str, *, schema: None = None, **options: Unpack[AgentOptions]
) -> AgentCall[str]: ...


@overload
def agent(prompt: str, *, schema: type[T], **options: Unpack[AgentOptions]) -> AgentCall[T]: ...


@overload
def agent(
    prompt: str, *, schema: Mapping[str, object], **options: Unpack[AgentOptions]
) -> AgentCall[Any]: ...


def agent(  # noqa: PLR0913 -- everything one can say of an agent, all by name and optional
    prompt: str,
    *,
    schema: object = None,
    model: str | None = None,
    tools: Iterable[ToolLike] | None = None,
    system: str | None = None,
    runner: str | None = None,
    label: str = "",
    cwd: str | os.PathLike[str] | None = None,
    budget: Budget | None = None,
    max_tokens: int | None = None,
    timeout: Duration | None = None,
    deadline: datetime | Duration | None = None,
    retries: int = 1,
    resume: str | None = None,
    continue_from: EarlierAgent | None = None,
    on_end: HookLike | Iterable[HookLike] | None = None,
    class_: str | None = None,
) -> AgentCall[Any]:
    """An agent to await: gives text, or what `schema` (a type or a JSON Schema) describes.

    Awaited, it raises `AgentFailedError` when it comes to no answer; `.outcome()` raises nothing.
    `timeout` limits the time of its own work (model calls and tools, without waiting), `deadline`
    is a moment of the wall clock, or a time from the start of the agent, waiting included.
    `max_tokens` limits each answer of our own loop.
    `resume` goes on with a session by its id, `continue_from` with an earlier agent of a flow.
    `on_end` runs at every ending, with the outcome; `retries` counts crashes, tool faults and
    outages. A hook runs at least once per ending, each time with the same idempotency key.
    """
    scope = scope_for("agent()")
    if resume is not None and continue_from is not None:
        raise BadArgumentError(
            "An agent goes on from one place: resume= or continue_from=, not both.",
            hint="Leave one of them out.",
        )
    if isinstance(continue_from, Outcome):
        if not continue_from.task_id:
            raise BadArgumentError(
                "continue_from= needs the outcome of an agent, and this is none.",
                hint="Pass the outcome of `await agent(…).outcome()`.",
            )
        continue_from = continue_from.task_id
    runs_it = runner or scope.run.settings.runner
    if max_tokens is not None and runs_it != OWN_LOOP:
        raise BadArgumentError(
            f"agent(max_tokens=…) cannot be set for the runner {runs_it}, which decides it itself.",
            hint=f'Leave it out, or use runner="{OWN_LOOP}".',
        )
    spec = AgentSpec(
        prompt,
        Shape(schema),
        label=label,
        model=model,
        toolbox=toolbox(tools),
        system=system,
        runner=runner,
        cwd=str(cwd) if isinstance(cwd, os.PathLike) else cwd,
        budget=budget,
        max_tokens=max_tokens,
        timeout=None if timeout is None else seconds_of(timeout),
        deadline=deadline if isinstance(deadline, datetime | None) else seconds_of(deadline),
        retries=retries,
        resume=resume,
        continue_from=continue_from,
        on_end=hooks(on_end, scope.run.flow_module_name),
        class_=class_,
    )
    return AgentCall(spec, scope)


@overload
def step(
    function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
) -> StepCall[T]: ...


@overload
def step(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> StepCall[T]: ...


def step(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> StepCall[Any]:
    """A durable call of any function: it runs once, and a replay gives what it gave.

    Arguments must be plain data; the result what the function's annotation says, or plain data. A
    blocking function runs in a thread. One that was cut off by a crash runs again.
    """
    return StepCall(function, (args, kwargs), scope_for("step()"))


class phase:  # noqa: N801 -- a word of the language, used like a function
    """A named part of a flow, for people: `async with phase("search"): …`; may be nested."""

    def __init__(self, name: str) -> None:
        check_text("phase", name)
        self._name = name
        self._token: Token[FlowScope | None] | None = None
        self._scope: FlowScope | None = None

    async def __aenter__(self) -> None:
        scope = scope_for("phase()")
        path = f"{scope.phase}/{self._name}" if scope.phase else self._name
        self._scope = replace(scope, phase=path)
        self._token = CURRENT.set(self._scope)
        scope.run.emit(PhaseBegan(scope.run.clock.wall(), path))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        scope = cast("FlowScope", self._scope)
        CURRENT.reset(cast("Token[FlowScope | None]", self._token))
        scope.run.emit(PhaseEnded(scope.run.clock.wall(), scope.phase, kind is None))


MOST = 10_000
_LONGEST_PRIVATE = 600


@dataclass(frozen=True, slots=True)
class Batch(Generic[T_co]):
    """How many calls ended, in their order."""

    outcomes: tuple[Outcome[T_co], ...]

    @property
    def values(self) -> list[T_co]:
        """The values of those that are ok, in call order."""
        return [cast("T_co", outcome.value) for outcome in self.outcomes if outcome.ok]

    @property
    def failed(self) -> list[Outcome[T_co]]:
        """The outcomes of those that are not."""
        return [outcome for outcome in self.outcomes if not outcome.ok]

    @property
    def summary(self) -> str:
        """In words: "17 of 20 ok, 3 failed: 2 quota, 1 schema"."""
        failed = Counter(outcome.terminated_by.value for outcome in self.failed)
        whole = f"{len(self.outcomes) - failed.total():,} of {len(self.outcomes):,} ok"
        if not failed:
            return whole
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in failed.most_common())
        return f"{whole}, {failed.total():,} failed: {kinds}"

    def require(self, least: int | None = None) -> Batch[T_co]:
        """The same batch; StepFailedError when fewer than `least` (all by default) are ok."""
        needed = len(self.outcomes) if least is None else least
        if len(self.values) < needed:
            raise StepFailedError(
                f"{needed} were needed: {self.summary}.",
                hint="Look at `.failed` for why.",
                private="; ".join(filter(None, (each.evidence.private for each in self.failed)))[
                    :_LONGEST_PRIVATE
                ],
            )
        return self

    def __len__(self) -> int:
        return len(self.outcomes)

    def __iter__(self) -> Iterator[Outcome[T_co]]:
        return iter(self.outcomes)


async def parallel(
    calls: Iterable[Awaitable[T]] | AsyncIterable[Awaitable[T]], *, limit: int | None = None
) -> Batch[T]:
    """Await all calls (agents, steps, child flows, any awaitable), at most `limit` at a time.

    Siblings go on when one fails; look at the batch for what came of each. Up to 10,000 calls.
    """
    scope_for("parallel()")
    if limit is not None:
        check_count("parallel", "limit", limit, least=1)
    if not isinstance(calls, (Iterable, AsyncIterable)):
        raise BadArgumentError(
            f"parallel() cannot go through a {type(calls).__name__}.",
            hint="Give many calls: parallel(agent(…) for …), or a list of them.",
        )
    collected = await _collect(calls)
    slots = None if limit is None else asyncio.Semaphore(limit)
    tasks = [asyncio.create_task(_outcome_of(call, slots)) for call in collected]
    try:
        if tasks:
            await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    for task in tasks:
        if not task.cancelled():
            task.exception()  # looked at: the first trouble is raised below for all
    cancelled: Outcome[T] = Outcome(Ending.CANCELLED, evidence=Evidence(says="It was cancelled."))
    return Batch(tuple(cancelled if task.cancelled() else task.result() for task in tasks))


async def _collect(
    calls: Iterable[Awaitable[T]] | AsyncIterable[Awaitable[T]],
) -> list[Awaitable[T]]:
    collected: list[Awaitable[T]] = []
    try:
        if isinstance(calls, AsyncIterable):
            async for call in calls:
                collected.append(call)
                _check(collected)
        else:
            for call in calls:
                collected.append(call)
                _check(collected)
    except BaseException:
        for call in collected:
            if isinstance(call, Coroutine):
                call.close()
        raise
    return collected


def _check(collected: list[Awaitable[T]]) -> None:
    call = collected[-1]
    if not isinstance(call, Awaitable):
        raise BadArgumentError(
            f"parallel() cannot await a {type(call).__name__}.",
            hint="Give calls that were not awaited: parallel(agent(…) for …).",
        )
    if len(collected) > MOST:
        raise BadArgumentError(
            f"parallel() takes up to {MOST:,} calls.", hint="Split them into several."
        )


async def _outcome_of(call: Awaitable[T], slots: asyncio.Semaphore | None) -> Outcome[T]:
    async with nullcontext() if slots is None else slots:
        try:
            if isinstance(call, AgentCall):
                return cast("Outcome[T]", await call.outcome())
            return Outcome(Ending.COMPLETION, await call)
        except AgentFailedError as error:
            return cast("Outcome[T]", error.outcome)
        except (LeaseLostError, JournalError):
            raise
        except Exception as error:  # noqa: BLE001 -- the border of one call: its siblings go on
            says, private = error_texts(error)
            return Outcome(Ending.CRASH, evidence=Evidence(says=says, private=private))
