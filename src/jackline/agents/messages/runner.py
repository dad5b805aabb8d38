"""The runner `messages`: call the model, run its tools, send the results, until it has answered.

Rules: (1) the loop only appends to the log and decides by its content; (2) the call gate is awaited
before every turn, and a quota is waited for through it; (3) an answer is durable before the agent
acts on it; (4) an interrupted call is repeated with the same bytes; (5) an answer that is already
in the log is returned without a call; (6) only a cancellation or a lost log leaves `carry`: every
other trouble is an ending with its evidence.
Not here: the next step (next_move.py), tools (tool_turn.py), the vendor call (gateway_model.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from jackline.agents.messages.conversation import (
    ANSWER,
    ENDED,
    NOTE,
    PROMPT,
    SESSION,
    SHORTENED,
    ConversationLog,
    answer_line,
    shorten,
    weight,
)
from jackline.agents.messages.mcp_tools import tools_of_servers
from jackline.agents.messages.next_move import (
    AnswerReady,
    CallModel,
    EndAgent,
    RunTools,
    SendNote,
    next_move,
)
from jackline.agents.messages.request import (
    CHARACTERS_PER_TOKEN,
    STRUCTURED_OUTPUT,
    MessagesSettings,
    all_messages,
    max_tokens_of,
    next_call,
    offered_tool,
    request_body,
)
from jackline.agents.messages.structured_answer import StructuredAnswer
from jackline.agents.messages.tool_turn import ToolTurn
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.prices import dollars
from jackline.agents.runner import (
    AgentLog,
    AgentTask,
    CallGate,
    JsonObject,
    Model,
    ModelCaller,
    ModelFailedError,
    StopAgentError,
    ended_by,
    ending_of,
    within,
)
from jackline.batches.tool import Tool, ToolContext
from jackline.clock import Clock, SystemClock
from jackline.errors import BadArgumentError, FlowError, JacklineError, UsageError
from jackline.failures import Kind


@dataclass(frozen=True, slots=True)
class LoopResources:
    """What all agents of a runner share."""

    model: Model
    clock: Clock
    settings: MessagesSettings


class AgentLoop:
    """One agent under way."""

    def __init__(
        self,
        task: AgentTask,
        log: ConversationLog,
        leave: CallGate,
        means: LoopResources,
        caller: ModelCaller,
        wanted: StructuredAnswer | None,
        tools: Mapping[str, Tool],
    ) -> None:
        self._task = task
        self._log = log
        self._leave = leave
        self._model = means.model
        self._caller = caller
        self._settings = means.settings
        self._wanted = wanted
        self._tools = ToolTurn(
            log, tools, ToolContext(task.cwd), means.settings, means.clock, caller.tools
        )
        self._offered = [offered_tool(tool) for tool in tools.values()]
        if wanted is not None:
            self._offered.append(wanted.tool)
        self._may_force = True

    async def run(self) -> AnswerReady | EndAgent:
        """Go on from where the notebook ends, to the end."""
        await self._open()
        while True:
            move = next_move(self._task, self._log.talk, self._settings, self._wanted)
            match move:
                case AnswerReady():
                    return move
                case EndAgent():
                    line: JsonObject = {"ending": move.ending.value}
                    if move.forget_answer:
                        line["forget_answer"] = True
                    await self._log.write(ENDED, line)
                    return move
                case SendNote():
                    await self._log.write(NOTE, move.note)
                case RunTools():
                    await within(self._leave.time_limit, self._tools.resolve(move.faults))
                case CallModel():
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
        """Tell what happened in between, once, if it has left something that the model must know.

        A call that was in hand is asked for again with the very same bytes instead: so the gateway
        knows it, and keeps its place in line.
        """
        talk, told = self._log.talk, self._task.what_happened
        cut_off = any(call.began and call.ended is None for call in talk.calls)
        goes_on = talk.task_id != self._task.task_id or cut_off
        if told and talk.has_begun and goes_on and told not in talk.seams:
            await self._log.write(NOTE, {"text": told, "seam": True})

    def _session_line(self) -> JsonObject:
        task = self._task
        return {
            "session_id": task.session_id,
            "task_id": task.task_id,
            "runner": "messages",
            "model": task.model or self._settings.model,
        }

    # --- one turn -----------------------------------------------------------------------------

    async def _turn(self) -> None:
        """Ask for one answer, however long it takes to get leave, and write it down."""
        await self._keep_under_window()
        body = self._body()
        max_tokens = max_tokens_of(self._task, self._settings)
        await self._leave.before_call(next_call(body, max_tokens, self._log.talk))
        while True:
            try:
                asking = self._model.ask(body, self._caller)
                answer = await within(self._leave.time_limit, asking)
            except ModelFailedError as error:
                await self._meet(error)
                body = self._body()
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
        said = weight(talk.said) // CHARACTERS_PER_TOKEN
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
        self._means = LoopResources(model, clock or SystemClock(), settings)
        self._tag = tag

    async def carry(self, task: AgentTask, notebook: AgentLog, leave: CallGate) -> Outcome[object]:
        """How it ended. Goes on where the notebook ends."""
        clock = self._means.clock
        log = ConversationLog(notebook)
        began = clock.monotonic()
        try:
            ended = await self._carried(task, log, leave)
        except ModelFailedError as error:
            ended = EndAgent(*ended_by(error), error.text or log.talk.text)
        except StopAgentError as stop:
            ended = EndAgent(stop.ending, stop.evidence, log.talk.text)
        except UsageError as error:
            says = " ".join(part for part in (error.message, error.hint) if part)
            evidence = Evidence(failure=Kind.INVALID_REQUEST.value, says=says)
            ended = EndAgent(Ending.REFUSED, evidence, log.talk.text)
        except FlowError:
            # The notebook is lost, to another process or with its disk: there is no going on, and
            # nowhere to keep an ending.
            raise
        except Exception as error:  # noqa: BLE001 -- the border of one agent: the others go on
            ended = EndAgent(Ending.CRASH, Evidence(says=_crash_in_words(error)), log.talk.text)
        return _outcome(task, log, ended, clock.monotonic() - began)

    async def _carried(
        self, task: AgentTask, log: ConversationLog, leave: CallGate
    ) -> AnswerReady | EndAgent:
        wanted = None if task.schema is None else StructuredAnswer(task.schema, task.check)
        if log.talk.prompted == task.task_id:
            move = next_move(task, log.talk, self._means.settings, wanted)
            if isinstance(move, AnswerReady):
                return move
        async with AsyncExitStack() as stack:
            tools = list(task.tools)
            if task.mcp_servers:
                servers = tools_of_servers(task.mcp_servers, task.cwd, task.task_id)
                tools += await stack.enter_async_context(servers)
            caller = ModelCaller(
                task.session_id, task.task_id, self._tag, task.class_, waits=leave.waits
            )
            loop = AgentLoop(task, log, leave, self._means, caller, wanted, _by_name(tools))
            return await loop.run()


def _outcome(
    task: AgentTask, log: ConversationLog, ended: AnswerReady | EndAgent, duration: float
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
    if isinstance(ended, AnswerReady):
        return replace(outcome, value=ended.value)
    return replace(outcome, terminated_by=ended.ending, evidence=ended.evidence)


def _by_name(tools: list[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in named or tool.name == STRUCTURED_OUTPUT:
            raise BadArgumentError(
                f"Two tools are called {tool.name}, or it is a name that Jackline needs itself.",
                hint="Give each tool a name of its own.",
            )
        named[tool.name] = tool
    return named


def _crash_in_words(error: Exception) -> str:
    if isinstance(error, JacklineError):
        return error.message
    # Its message may hold anything; its type is safe to tell.
    return f"A bug in Jackline or in a tool of this agent: {type(error).__name__}."
