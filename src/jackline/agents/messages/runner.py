"""Carry one agent to its end: ask the model, run its tools, until the answer is there.

Laws: (1) the loop only ever appends to the notebook, and decides by what is in it; (2) leave is
asked before every turn, and a quota is waited for through it; (3) only a cancellation leaves
`carry`, or a notebook that is lost: every other trouble is an ending with its evidence.
Not here: what comes next (moves.py), tools (tool_turn.py), asking the vendor (gateway_model.py).
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from jackline.agents.endings import ended_by, ending_of
from jackline.agents.messages.conversation import (
    ANSWER,
    ENDED,
    NOTE,
    PROMPT,
    SESSION,
    SHORTENED,
    answer_line,
)
from jackline.agents.messages.defaults import STRUCTURED_OUTPUT, MessagesSettings
from jackline.agents.messages.log import Log
from jackline.agents.messages.mcp_tools import tools_of_servers
from jackline.agents.messages.moves import Ask, Done, Fail, Resolve, Tell, next_move
from jackline.agents.messages.request import all_messages, offered_tool, request_body
from jackline.agents.messages.shortening import shorten
from jackline.agents.messages.structured import StructuredAnswer
from jackline.agents.messages.tool_turn import ToolTurn
from jackline.agents.messages.work_time import TimeUpError, WorkTime
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.ports import (
    Answer,
    Caller,
    Leave,
    Model,
    ModelFailedError,
    Notebook,
    StopAgentError,
)
from jackline.agents.prices import dollars
from jackline.agents.task import AgentTask, JsonObject
from jackline.batches.tool import Tool, ToolContext
from jackline.clock import Clock, SystemClock
from jackline.errors import BadArgumentError, FlowError, JacklineError, UsageError
from jackline.failures import Kind

_CHARACTERS_PER_TOKEN = 4
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
        self._model = model
        self._clock = clock or SystemClock()
        self._settings = settings
        self._tag = tag

    async def carry(self, task: AgentTask, notebook: Notebook, leave: Leave) -> Outcome[object]:
        """How it ended. Goes on where the notebook ends."""
        log = Log(notebook)
        began = self._clock.monotonic()
        try:
            async with AsyncExitStack() as stack:
                agent = await self._prepare(task, log, leave, stack)
                ended = await agent.run()
        except ModelFailedError as error:
            ended = Fail(*ended_by(error), error.text or log.talk.text)
        except StopAgentError as stop:
            ended = Fail(stop.ending, stop.evidence, log.talk.text)
        except TimeUpError:
            says = f"The agent has worked for the {task.timeout:g} seconds that it may."
            ended = Fail(Ending.TIMEOUT, Evidence(says=says), log.talk.text)
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
        return self._outcome(task, log, ended, self._clock.monotonic() - began)

    async def _prepare(
        self, task: AgentTask, log: Log, leave: Leave, stack: AsyncExitStack
    ) -> _Agent:
        wanted = None if task.schema is None else StructuredAnswer(task.schema)
        tools = list(task.tools)
        if task.mcp_servers:
            tools += await stack.enter_async_context(tools_of_servers(task.mcp_servers, task.cwd))
        return _Agent(task, log, leave, self, wanted, _by_name(tools))

    def _outcome(
        self, task: AgentTask, log: Log, ended: Done | Fail, duration: float
    ) -> Outcome[object]:
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

    # --- for the agent ------------------------------------------------------------------------

    @property
    def settings(self) -> MessagesSettings:
        """How it works where a task does not say otherwise."""
        return self._settings

    @property
    def clock(self) -> Clock:
        """The time."""
        return self._clock

    async def ask(self, task: AgentTask, body: JsonObject) -> Answer:
        """One answer of the model."""
        caller = Caller(task.session_id, task.task_id, self._tag, task.class_)
        return await self._model.ask(body, caller)


class _Agent:
    """One agent under way."""

    def __init__(
        self,
        task: AgentTask,
        log: Log,
        leave: Leave,
        runner: MessagesRunner,
        wanted: StructuredAnswer | None,
        tools: dict[str, Tool],
    ) -> None:
        self._task = task
        self._log = log
        self._leave = leave
        self._runner = runner
        self._settings = runner.settings
        self._wanted = wanted
        self._work = WorkTime(runner.clock, task.timeout)
        self._tools = ToolTurn(log, tools, ToolContext(task.cwd), runner.settings, runner.clock)
        self._offered = [offered_tool(tool) for tool in tools.values()]
        if wanted is not None:
            self._offered.append(wanted.tool)
        self._may_force = True

    async def run(self) -> Done | Fail:
        """Go on from where the notebook ends, to the end."""
        await self._open()
        while True:
            move = next_move(self._task, self._log.talk, self._settings, self._wanted)
            match move:
                case Done():
                    return move
                case Fail():
                    line: JsonObject = {"ending": move.ending.value}
                    if move.forget_answer:
                        line["forget_answer"] = True
                    await self._log.write(ENDED, line)
                    return move
                case Tell():
                    await self._log.write(NOTE, move.note)
                case Resolve():
                    await self._work.of(self._tools.resolve(move.faults))
                case Ask():
                    await self._turn()

    # --- beginning, and going on --------------------------------------------------------------

    async def _open(self) -> None:
        talk, task = self._log.talk, self._task
        if talk.task_id != task.task_id:
            if talk.calls:
                await self._tools.give_up_calls()
            await self._tell_seam()
            await self._log.write(SESSION, self._session_line())
        if talk.prompted != task.task_id:
            await self._log.write(PROMPT, {"text": task.prompt})
        else:
            await self._tell_seam()

    async def _tell_seam(self) -> None:
        """Tell what happened in between, once, where the model has not had the last word."""
        talk, told = self._log.talk, self._task.what_happened
        goes_on = talk.task_id != self._task.task_id or talk.calls or talk.replied
        if told and talk.has_begun and goes_on and told not in talk.seams:
            await self._log.write(NOTE, {"text": told, "seam": True})

    def _session_line(self) -> JsonObject:
        task = self._task
        return {
            "session_id": task.session_id,
            "task_id": task.task_id,
            "runner": MessagesRunner.name,
            "model": task.model or self._settings.model,
        }

    # --- one turn -----------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Ask for one answer, however long it takes to get leave, and write it down."""
        await self._leave.before_call()
        await self._keep_under_window()
        while True:
            try:
                answer = await self._work.of(self._runner.ask(self._task, self._body()))
            except ModelFailedError as error:
                await self._meet(error)
                continue
            break
        cost = dollars(answer.model, answer.usage, self._settings.prices)
        await self._log.write(ANSWER, answer_line(answer, cost))
        self._leave.spent(answer.model, answer.usage, cost)

    def _body(self) -> JsonObject:
        return request_body(
            self._task, self._log.talk, self._settings, self._offered, may_force=self._may_force
        )

    async def _meet(self, error: ModelFailedError) -> None:
        """Returns when the same turn may be asked for again; raises what cannot be helped."""
        failure = error.failure
        if ending_of(failure) is Ending.QUOTA:
            await self._leave.wall(failure, error.says)
            return
        if failure.kind is not Kind.INVALID_REQUEST:
            raise error
        if failure.sub == "context_too_long" and await self._shorten(self._settings.window):
            return
        if self._log.talk.wants_structure and self._may_force:
            # Not every model and setting lets itself be forced; the words were said anyway.
            self._may_force = False
            return
        raise error

    async def _keep_under_window(self) -> None:
        talk, settings = self._log.talk, self._settings
        said = sum(len(str(block)) for block in talk.said) // _CHARACTERS_PER_TOKEN
        used = talk.context + said
        if used > settings.full_at * settings.window:
            await self._shorten(used)

    async def _shorten(self, used: int) -> bool:
        talk = self._log.talk
        target = int(self._settings.shorten_to * self._settings.window)
        plan = shorten(all_messages(talk), talk.shortened, tokens=used, target=target)
        if plan is None:
            return False
        await self._log.write(SHORTENED, {**plan.to_json(), "context": target})
        return True


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
