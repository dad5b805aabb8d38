"""What `agent(…)` and `step(…)` give: something to await, once or often, anywhere in the flow.

Laws: (1) nothing happens until it is awaited; one that never is, is named at the run's end; (2) to
asyncio it is a coroutine, so that gather, create_task and TaskGroup take it as it is; (3) awaited
again it gives the same again, without another call.
Not here: what happens then (agent_carrying.py, step_carrying.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.errors import StepFailedError
from jackline.flows.agent_carrying import AgentCarrying
from jackline.flows.agent_spec import AgentSpec
from jackline.flows.scope import Scope
from jackline.flows.step_carrying import StepCarrying

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class AgentFailedError(StepFailedError):
    """An agent came to no answer; `outcome` tells how it ended."""

    def __init__(self, outcome: Outcome[Any]) -> None:
        evidence = outcome.evidence
        says = f": {evidence.says}" if evidence.says else ""
        super().__init__(
            f"The agent {outcome.label or outcome.task_id} ended by "
            f"{outcome.terminated_by.value}{says}",
            retry_at=evidence.resets_at,
        )
        self.outcome = outcome


class _Call(Coroutine[Any, Any, T_co], Generic[T_co]):
    """A call that looks like a coroutine to asyncio and can be awaited again."""

    def __init__(self, scope: Scope, name: str) -> None:
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
        """End it where it stands; one that never began just goes."""
        self._run.unawaited.pop(self, None)
        if self._driven is not None:
            self._driven.close()

    def _driver(self) -> Coroutine[Any, Any, T_co]:
        if self._driven is None:
            self._driven = self._value()
        return self._driven


class AgentCall(_Call[T_co]):
    """An agent to be awaited: for its value, or with `.outcome()` for how it ended."""

    def __init__(self, spec: AgentSpec, scope: Scope) -> None:
        super().__init__(scope, spec.label or "agent")
        self._spec = spec
        self._scope = scope
        self._ended: asyncio.Future[Outcome[T_co]] | None = None

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
            outcome = await AgentCarrying(self._spec, self._scope).outcome()
        except asyncio.CancelledError:
            evidence = Evidence(says="Another part of the flow cancelled it.")
            self._ended.set_result(Outcome(Ending.CANCELLED, evidence=evidence))
            raise
        except BaseException:
            # Whoever waits for the same call meets the same trouble by asking anew.
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
        scope: Scope,
        name: str,
    ) -> None:
        super().__init__(scope, name)
        self._function = function
        self._arguments = arguments
        self._scope = scope
        self._name = name
        self._given: asyncio.Future[T_co] | None = None

    async def _value(self) -> T_co:
        self._begin()
        if self._given is not None:
            return await asyncio.shield(self._given)
        given = self._given = asyncio.get_running_loop().create_future()
        try:
            carrying = StepCarrying(self._function, self._arguments, self._scope)
            value = cast("T_co", await carrying.value())
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                given.cancel()
            else:
                given.set_exception(error)
                given.exception()  # looked at: it is raised here, whether others wait or not
            raise
        given.set_result(value)
        return value

    def __repr__(self) -> str:
        return f"<StepCall {self._name}>"
