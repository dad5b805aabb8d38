"""Ask the model, run its tools, tell it the results, until the answer is there.

Laws: (1) the loop only ever appends to the notebook, and decides by what is in it; (2) leave is
asked before every turn, and a quota is waited for through it; (3) an answer is written down before
it is acted upon; (4) whatever interrupted a call, it is asked for again in the same bytes.
Not here: what comes next (moves.py), the tools (tool_turn.py), how failures end (runner.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jackline.agents.endings import ending_of
from jackline.agents.messages.call_size import next_call
from jackline.agents.messages.conversation import (
    ANSWER,
    ENDED,
    NOTE,
    PROMPT,
    SESSION,
    SHORTENED,
    answer_line,
)
from jackline.agents.messages.defaults import CHARACTERS_PER_TOKEN, MessagesSettings
from jackline.agents.messages.log import Log
from jackline.agents.messages.moves import Ask, Done, Fail, Resolve, Tell, next_move
from jackline.agents.messages.request import (
    all_messages,
    max_tokens_of,
    offered_tool,
    request_body,
)
from jackline.agents.messages.shortening import shorten, weight
from jackline.agents.messages.structured import StructuredAnswer
from jackline.agents.messages.tool_turn import ToolTurn
from jackline.agents.outcome import Ending
from jackline.agents.ports import Caller, Leave, Model, ModelFailedError
from jackline.agents.prices import dollars
from jackline.agents.task import AgentTask, JsonObject
from jackline.agents.time_limit import within
from jackline.batches.tool import Tool, ToolContext
from jackline.clock import Clock
from jackline.failures import Kind


@dataclass(frozen=True, slots=True)
class Means:
    """What all agents of a runner share."""

    model: Model
    clock: Clock
    settings: MessagesSettings


class Loop:
    """One agent under way."""

    def __init__(
        self,
        task: AgentTask,
        log: Log,
        leave: Leave,
        means: Means,
        caller: Caller,
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
                    await within(self._leave.time_limit, self._tools.resolve(move.faults))
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
