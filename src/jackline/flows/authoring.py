"""The words a flow is written with: agent, step, phase.

Laws: (1) what cannot be meant is said where it is written; (2) each word works only inside a run,
and says so elsewhere.
Not here: many at once (parallel.py), the flow itself (definition.py).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import Token
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack, cast, overload

from jackline.budgets.budget import Budget
from jackline.budgets.durations import Duration
from jackline.errors import BadArgumentError
from jackline.flows.agent_spec import (
    AgentOptions,
    AgentSpec,
    HookGiven,
    Resumed,
    ToolGiven,
    answer_limit,
    continued,
    duration,
    folder,
    hooks,
    limits,
    moment,
    text,
    text_or_none,
    toolbox,
    tries,
)
from jackline.flows.calls import AgentCall, StepCall
from jackline.flows.progress import PhaseBegan, PhaseEnded
from jackline.flows.scope import CURRENT, Scope, scope_for
from jackline.flows.step_carrying import step_key, step_name
from jackline.flows.values import Shape, returned_type

T = TypeVar("T")
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
    tools: Iterable[ToolGiven] | None = None,
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
    continue_from: Resumed | None = None,
    on_end: HookGiven | Iterable[HookGiven] | None = None,
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
            next="Leave one of them out.",
        )
    spec = AgentSpec(
        text("prompt", prompt),
        Shape(schema),
        label=text("label", label),
        model=text_or_none("model", model),
        toolbox=toolbox(tools),
        system=text_or_none("system", system),
        runner=text_or_none("runner", runner),
        cwd=folder(cwd),
        budget=limits(budget),
        max_tokens=answer_limit(max_tokens, runner or scope.run.settings.runner),
        timeout=duration(timeout),
        deadline=moment(deadline),
        retries=tries(retries),
        resume=text_or_none("resume", resume),
        continue_from=continued(continue_from),
        on_end=hooks(on_end, scope.run.flow_module_name),
        class_=text_or_none("class_", class_),
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
    scope = scope_for("step()")
    name = step_name(function)
    returned_type(function)
    step_key(function, (args, kwargs), scope.run.flow_module_name)
    return StepCall(function, (args, kwargs), scope, name)


class phase:  # noqa: N801 -- a word of the language, used like a function
    """A named part of a flow, for people: `async with phase("search"): …`; may be nested."""

    def __init__(self, name: str) -> None:
        self._name = text("phase", name)
        self._token: Token[Scope | None] | None = None
        self._scope: Scope | None = None

    async def __aenter__(self) -> None:
        scope = scope_for("phase()")
        path = f"{scope.phase}/{self._name}" if scope.phase else self._name
        self._scope = replace(scope, phase=path)
        self._token = CURRENT.set(self._scope)
        scope.run.tell(PhaseBegan(scope.run.clock.wall(), path))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        scope = cast("Scope", self._scope)
        CURRENT.reset(cast("Token[Scope | None]", self._token))
        scope.run.tell(PhaseEnded(scope.run.clock.wall(), scope.phase, kind is None))
