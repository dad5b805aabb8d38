"""The runner `messages`: call the model, run its tools, send the results, until it has answered.

Rules: (1) the loop only appends to the log and decides by its content; (2) the call gate is awaited
before every turn, and a quota is waited for through it; (3) an answer is durable before the agent
acts on it; (4) an interrupted call is repeated with the same bytes; (5) an answer that is already
in the log is returned without a call; (6) an answer counts as the result only when it is whole and,
with a schema, valid; a missing or invalid one is requested again a limited number of times, then
the agent ends as `schema` with its last text; (7) continuations and turns are counted, so that
nothing runs for ever; (8) only a cancellation or a lost log leaves `run`: every other trouble is an
ending with its evidence.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import msgspec

from jackline.agents.messages.conversation import (
    ANSWER,
    CHARACTERS_PER_TOKEN,
    CUT_OFF,
    ENDED,
    NOTE,
    PAUSED,
    PROMPT,
    SESSION,
    SHORTENED,
    AgentConversation,
    ConversationLog,
    MessagesSettings,
    answer_entry,
    weight,
)
from jackline.agents.messages.mcp_tools import tools_of_servers
from jackline.agents.messages.tool_turn import ToolTurn, cut_calls_text
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.own_count import own_count, usage_notice
from jackline.agents.prices import dollars_of_answer, in_dollars
from jackline.agents.runner import (
    AgentLog,
    AgentTask,
    CallGate,
    JsonObject,
    Model,
    ModelCaller,
    ModelFailedError,
    StopAgentError,
    ending_of,
    within,
)
from jackline.agents.structured_answer import STRUCTURED_OUTPUT, StructuredAnswer
from jackline.autopsy.figures import counted
from jackline.batches.tool import Tool, ToolContext
from jackline.clock import Clock, SystemClock
from jackline.dialects.sent_prefixes import SentCall, SentPrefixes
from jackline.errors import FlowError, JacklineError, UsageError
from jackline.failures import Kind
from jackline.user_errors import error_texts

_USUAL = MessagesSettings()
_CONTINUE = (
    "Your answer was cut off at the output limit. Go on exactly where it stopped, without "
    "repeating anything."
)
_NO_STRUCTURE = (
    f"You ended without calling {STRUCTURED_OUTPUT}, so there is no answer yet. "
    "Call it now with the final answer."
)


@dataclass(frozen=True, slots=True)
class _End:
    ending: Ending
    text: str
    evidence: Evidence = field(default_factory=Evidence)
    value: object = None
    forget_answer: bool = False


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
        self.model = model
        self.clock = clock or SystemClock()
        self.settings = settings
        self.tag = tag
        self.sent = SentPrefixes()

    async def run(self, task: AgentTask, log: AgentLog, gate: CallGate) -> Outcome[object]:
        """How the agent ended; it continues where the log ends."""
        started = self.clock.monotonic()
        own_log = ConversationLog(log)
        conversation = own_log.conversation
        try:
            end = await _AgentLoop(self, task, own_log, gate).run()
        except ModelFailedError as error:
            text = error.text or conversation.text
            end = _End(ending_of(error.failure), text, error.evidence)
        except StopAgentError as stop:
            end = _End(stop.ending, conversation.text, stop.evidence)
        except UsageError as error:
            says, private = error_texts(error)
            evidence = Evidence(failure=Kind.INVALID_REQUEST.value, says=says, private=private)
            end = _End(Ending.REFUSED, conversation.text, evidence)
        except FlowError:
            # The log is lost, to another process or with its disk: no step and no ending can be
            # saved any more.
            raise
        except Exception as error:  # noqa: BLE001 -- the border of one agent: the others go on
            says, private = error_texts(error)
            if not isinstance(error, JacklineError):
                says = f"A bug in Jackline or in a tool of this agent: {says}."
            evidence = Evidence(says=says, private=private)
            end = _End(Ending.CRASH, conversation.text, evidence)
        return Outcome(
            end.ending,
            end.value,
            end.text,
            end.evidence,
            session_id=task.session_id,
            task_id=task.task_id,
            label=task.label,
            usage=conversation.usage,
            cost=conversation.cost,
            turns=conversation.turns,
            duration=self.clock.monotonic() - started,
        )


class _AgentLoop:
    def __init__(
        self, runner: MessagesRunner, task: AgentTask, log: ConversationLog, gate: CallGate
    ) -> None:
        self._runner = runner
        self._task = task
        self._log = log
        self._gate = gate
        self._model = runner.model
        self._settings = runner.settings
        self._caller = ModelCaller(
            task.session_id, task.task_id, runner.tag, task.class_, waits=gate.waits
        )
        self._tools = ToolTurn(
            log, ToolContext(task.cwd), runner.settings, runner.clock, self._caller.tools
        )
        self._structured: StructuredAnswer | None = None
        if task.schema is not None:
            self._structured = StructuredAnswer(task.schema, task.check)
        self._offered: list[JsonObject] = []
        self._may_force = True

    @property
    def _conversation(self) -> AgentConversation:
        return self._log.conversation

    async def run(self) -> _End:
        """Continue from where the log ends, to the end."""
        if self._conversation.prompted == self._task.task_id and (end := self._finished()):
            return end
        async with AsyncExitStack() as stack:
            task = self._task
            tools: list[Tool] = list(task.tools)
            if task.mcp_servers:
                servers = tools_of_servers(task.mcp_servers, task.cwd, task.task_id)
                tools += await stack.enter_async_context(servers)
            self._offered = self._tools.offer(tools)
            if self._structured is not None:
                self._offered.append(self._structured.tool)
            await self._open()
            while True:
                if end := self._finished():
                    return end
                if end := await self._step():
                    forget: JsonObject = {"forget_answer": True} if end.forget_answer else {}
                    await self._log.write(ENDED, {"ending": end.ending.value, **forget})
                    return end

    # --- start and resume -----------------------------------------------------------------------

    async def _open(self) -> None:
        task, conversation = self._task, self._conversation
        if conversation.task_id != task.task_id:
            if conversation.calls:
                await self._tools.give_up_calls()
            await self._note_interruption()
            session: JsonObject = {
                "session_id": task.session_id,
                "task_id": task.task_id,
                "runner": "messages",
                "model": task.model or self._settings.model,
            }
            await self._log.write(SESSION, session)
        if conversation.prompted != task.task_id:
            await self._log.write(PROMPT, {"text": task.prompt})
        else:
            await self._note_interruption()

    async def _note_interruption(self) -> None:
        """Tell the model what happened in between, once, if that has left something to know.

        A call that was in progress is instead repeated with the very same bytes, by which the
        gateway recognises it and saves its place in the queue.
        """
        conversation, text = self._conversation, self._task.what_happened
        if not text or not conversation.all_messages or text in conversation.seams:
            return
        is_cut = any(call.began and call.ended is None for call in conversation.calls)
        if is_cut or conversation.task_id != self._task.task_id:
            await self._log.write(NOTE, {"text": text, "seam": True})

    # --- decisions ------------------------------------------------------------------------------

    def _finished(self) -> _End | None:
        """The end by completion, once the answer is there and whole."""
        conversation, structured = self._conversation, self._structured
        if structured is not None:
            if any(call.name != STRUCTURED_OUTPUT for call in conversation.calls):
                return None
            for call in conversation.calls:
                if structured.fault(call.arguments) is None:
                    value = structured.value(call.arguments)
                    return _End(Ending.COMPLETION, conversation.text, value=value)
            return None
        is_open = conversation.calls or conversation.has_input or self._is_cut
        if is_open or conversation.stop_reason in (None, "refusal", PAUSED):
            return None
        text = conversation.text
        return _End(Ending.COMPLETION, text, value=text) if text.strip() else None

    @property
    def _is_cut(self) -> bool:
        conversation = self._conversation
        return conversation.stop_reason in CUT_OFF or bool(conversation.cut_calls)

    async def _step(self) -> _End | None:
        """Do what comes next; the agent's end when there is nothing left to do."""
        conversation = self._conversation
        if conversation.calls:
            return await self._resolve_calls()
        if conversation.stop_reason is None or conversation.has_input:
            return await self._call_model()
        if conversation.stop_reason == "refusal":
            says = "The model declined to answer."
            evidence = Evidence(failure=Kind.CONTENT_POLICY.value, says=says, attempts=1)
            return _End(Ending.REFUSED, conversation.text, evidence, forget_answer=True)
        if not self._is_cut and conversation.stop_reason != PAUSED:
            return await self._request_answer()
        if conversation.in_a_row > self._settings.most_continuations:
            times = counted(conversation.in_a_row, "time")
            says = f"The answer was cut off at the output limit {times} in a row."
            return _End(Ending.TURNS, conversation.text, Evidence(says=says))
        if not self._is_cut:
            return await self._call_model()
        note: JsonObject = {"text": _CONTINUE, "goes_on": True}
        if conversation.cut_calls:
            note = {"text": cut_calls_text(conversation.cut_calls)}
        await self._log.write(NOTE, note)
        return None

    async def _resolve_calls(self) -> _End | None:
        conversation, structured = self._conversation, self._structured
        settled: dict[str, JsonObject] = {}
        refusal: JsonObject = {"ok": False, "name": STRUCTURED_OUTPUT, "ended_by": "not taken"}
        answers = [call for call in conversation.calls if call.name == STRUCTURED_OUTPUT]
        if structured is not None and 0 < len(answers) < len(conversation.calls):
            early = f"call {STRUCTURED_OUTPUT} alone, once you have seen the other results."
            for call in answers:
                settled[call.id] = {**refusal, "content": f"Not taken: {early}"}
        elif structured is not None and answers:
            if conversation.reasks >= self._settings.most_reasks:
                last, tries = answers[-1].arguments, conversation.reasks + 1
                says = (
                    f"The structured answer was not valid, {counted(tries, 'time')}; the last "
                    f"faults: {structured.fault_for_people(last)}."
                )
                raw = msgspec.json.encode(structured.value(last)).decode()
                return self._schema_end(raw, "invalid", says, tries)
            for position, call in enumerate(answers):
                fault = structured.fault(call.arguments)
                text = f"Not valid: {fault}. Call it again with these faults corrected."
                # Several at once are one try.
                settled[call.id] = {**refusal, "content": text, "reask": position == 0}
        await within(self._gate.time_limit, self._tools.resolve(settled))
        return None

    async def _request_answer(self) -> _End | None:
        conversation, structured = self._conversation, self._structured
        if conversation.reasks >= self._settings.most_reasks:
            what = "a word" if structured is None else "the structured answer that was requested"
            tries = conversation.reasks + 1
            says = f"The model ended without {what}, {counted(tries, 'time')}."
            return self._schema_end(conversation.text, "absent", says, tries)
        note: JsonObject = {
            "text": "You ended without a word. Give the result of the task now.",
            "reask": True,
        }
        if structured is not None:
            note = {"text": _NO_STRUCTURE, "reask": True, "structure": True}
        await self._log.write(NOTE, note)
        return None

    # --- one model call -------------------------------------------------------------------------

    async def _call_model(self) -> _End | None:
        """Get one answer, however long the gate takes, and log it."""
        task, conversation = self._task, self._conversation
        if task.max_turns is not None and conversation.turns >= task.max_turns:
            turns = counted(task.max_turns, "turn")
            says = f"The agent used its {turns} without coming to an end."
            return _End(Ending.TURNS, conversation.text, Evidence(says=says))
        cost = conversation.cost
        if task.max_dollars is not None and cost is not None and cost >= task.max_dollars:
            may, has = in_dollars(task.max_dollars), in_dollars(cost)
            says = f"The agent may spend {may}, and has spent {has}."
            return _End(Ending.BUDGET, conversation.text, Evidence(says=says))
        used = conversation.context + weight(conversation.unanswered) // CHARACTERS_PER_TOKEN
        if used > self._settings.full_at * self._settings.window:
            await self._shorten(used)
        body = self._body()
        max_tokens = task.max_tokens or self._settings.max_tokens
        await self._gate.before_call(conversation.next_call(body, max_tokens))
        is_limited = task.max_dollars is not None or self._gate.limits_dollars
        while True:
            sent = self._begin(body) if is_limited else None
            try:
                asking = self._model.ask(body, self._caller)
                answer = await within(self._gate.time_limit, asking)
            except ModelFailedError as error:
                await self._recover(error)
                body = self._body()
                continue
            break
        usage = own_count(answer.usage, body, answer.content, max_tokens)
        if sent is not None:
            # What it cannot have read from a cache is charged as fresh, also of our own count.
            found = usage or answer.usage
            capped = self._runner.sent.counted(sent, found, self._runner.clock.monotonic())
            usage = usage if capped == found else capped
        if usage is not None:
            self._gate.warn(usage_notice(answer.lane or task.model or self._settings.model))
        whole = replace(answer, usage=usage or answer.usage)
        requested = str(body.get("model") or "")
        cost = dollars_of_answer(requested, whole.model, whole.usage, self._settings.prices)
        entry = answer_entry(whole, cost, estimated=usage is not None)
        await self._log.write(ANSWER, entry)
        self._gate.spent(whole.model, whole.usage, cost)
        return None

    def _begin(self, body: JsonObject) -> SentCall:
        try:
            encoded = msgspec.json.encode(body)
        except UnicodeEncodeError:
            encoded = json.dumps(body).encode()
        return self._runner.sent.begin(str(body["model"]), encoded, self._runner.clock.monotonic())

    def _body(self) -> JsonObject:
        return self._conversation.request_body(
            self._task, self._settings, self._offered, may_force=self._may_force
        )

    async def _recover(self, error: ModelFailedError) -> None:
        """Returns when the same turn may be requested again; raises what has no remedy."""
        failure = error.failure
        if ending_of(failure) is Ending.QUOTA:
            await self._gate.wall(failure, error.evidence.says)
            return
        if failure.kind is not Kind.INVALID_REQUEST:
            raise error
        if failure.sub == "context_too_long" and await self._shorten(self._settings.window):
            return
        if self._conversation.wants_structure and self._may_force:
            # Not every model and setting can be forced; the note requests it anyway.
            self._may_force = False
            return
        raise error

    async def _shorten(self, used: int) -> bool:
        conversation = self._conversation
        target = int(self._settings.shorten_to * self._settings.window)
        plan = conversation.shortened.further(conversation.all_messages, tokens=used, target=target)
        if plan is None:
            return False
        entry: JsonObject = {
            "results_before": plan.results_before,
            "turns_before": plan.turns_before,
            "context": target,
        }
        await self._log.write(SHORTENED, entry)
        return True

    def _schema_end(self, text: str, sub: str, says: str, tries: int) -> _End:
        kind = Kind.MISSING_STRUCTURED_OUTPUT.value
        evidence = Evidence(failure=kind, sub=sub, says=says, attempts=tries)
        return _End(Ending.SCHEMA, text, evidence)
