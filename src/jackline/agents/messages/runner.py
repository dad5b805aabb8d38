"""Carry one agent to its end, whatever comes, and say how it ended.

Laws: (1) only a cancellation leaves `carry`, or a notebook that is lost: every other trouble is an
ending with its evidence; (2) what is finished in the notebook is given without asking anybody.
Not here: the loop itself (loop.py), asking the vendor (gateway_model.py).
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from jackline.agents.endings import ended_by
from jackline.agents.messages.defaults import STRUCTURED_OUTPUT, MessagesSettings
from jackline.agents.messages.log import Log
from jackline.agents.messages.loop import Loop, Means
from jackline.agents.messages.mcp_tools import tools_of_servers
from jackline.agents.messages.moves import Done, Fail, next_move
from jackline.agents.messages.structured import StructuredAnswer
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.ports import Caller, Leave, Model, ModelFailedError, Notebook, StopAgentError
from jackline.agents.task import AgentTask
from jackline.batches.tool import Tool
from jackline.clock import Clock, SystemClock
from jackline.errors import BadArgumentError, FlowError, JacklineError, UsageError
from jackline.failures import Kind

_USUAL = MessagesSettings()


class MessagesRunner:
    """The runner `messages`; one serves any number of agents at once.

    `tag` is the word by which a gateway counts and limits the calls: a run's id, say.
    """

    name = "messages"

    def __init__(
        self,
        model: Model,
        *,
        clock: Clock | None = None,
        settings: MessagesSettings = _USUAL,
        tag: str | None = None,
    ) -> None:
        self._means = Means(model, clock or SystemClock(), settings)
        self._tag = tag

    async def carry(self, task: AgentTask, notebook: Notebook, leave: Leave) -> Outcome[object]:
        """How it ended. Goes on where the notebook ends."""
        clock = self._means.clock
        log = Log(notebook)
        began = clock.monotonic()
        try:
            ended = await self._carried(task, log, leave)
        except ModelFailedError as error:
            ended = Fail(*ended_by(error), error.text or log.talk.text)
        except StopAgentError as stop:
            ended = Fail(stop.ending, stop.evidence, log.talk.text)
        except UsageError as error:
            says = " ".join(part for part in (error.message, error.next) if part)
            evidence = Evidence(failure=Kind.INVALID_REQUEST.value, says=says)
            ended = Fail(Ending.REFUSED, evidence, log.talk.text)
        except FlowError:
            # The notebook is lost, to another process or with its disk: there is no going on, and
            # nowhere to keep an ending.
            raise
        except Exception as error:  # noqa: BLE001 -- the border of one agent: the others go on
            ended = Fail(Ending.CRASH, Evidence(says=_crash_in_words(error)), log.talk.text)
        return _outcome(task, log, ended, clock.monotonic() - began)

    async def _carried(self, task: AgentTask, log: Log, leave: Leave) -> Done | Fail:
        wanted = None if task.schema is None else StructuredAnswer(task.schema, task.check)
        if log.talk.prompted == task.task_id:
            move = next_move(task, log.talk, self._means.settings, wanted)
            if isinstance(move, Done):
                return move
        async with AsyncExitStack() as stack:
            tools = list(task.tools)
            if task.mcp_servers:
                servers = tools_of_servers(task.mcp_servers, task.cwd)
                tools += await stack.enter_async_context(servers)
            caller = Caller(
                task.session_id, task.task_id, self._tag, task.class_, waits=leave.waits
            )
            loop = Loop(task, log, leave, self._means, caller, wanted, _by_name(tools))
            return await loop.run()


def _outcome(task: AgentTask, log: Log, ended: Done | Fail, duration: float) -> Outcome[object]:
    talk = log.talk
    outcome: Outcome[object] = Outcome(
        terminated_by=Ending.COMPLETION,
        text=ended.text,
        session_id=task.session_id,
        task_id=task.task_id,
        label=task.label,
        usage=talk.usage,
        cost=talk.cost,
        turns=talk.turns,
        duration=duration,
    )
    if isinstance(ended, Done):
        return replace(outcome, value=ended.value)
    return replace(outcome, terminated_by=ended.ending, evidence=ended.evidence)


def _by_name(tools: list[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in named or tool.name == STRUCTURED_OUTPUT:
            raise BadArgumentError(
                f"Two tools are called {tool.name}, or it is a name that Jackline needs itself.",
                next="Give each tool a name of its own.",
            )
        named[tool.name] = tool
    return named


def _crash_in_words(error: Exception) -> str:
    if isinstance(error, JacklineError):
        return error.message
    # Its message may hold anything; its type is safe to tell.
    return f"A bug in Jackline or in a tool of this agent: {type(error).__name__}."
