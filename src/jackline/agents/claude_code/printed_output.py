"""Parse what `claude -p --output-format stream-json` prints, and judge the run.

Rules: (1) pure, and the same result however the bytes are cut; (2) an incomplete or unknown line
and a block of unknown shape are skipped; (3) a tool call is identified by its id; (4) the last
result counts, because a run with background work prints several; (5) an agent that Claude Code
started and stopped without a request is lost, whatever the result says; (6) without a result there
is no completion; `is_error` and a synthetic error decide, never `subtype`; (7) a "success" without
a stop reason, without the answer that the schema requires, or with lost agents is a failure; (8)
only `failures` interprets texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from jackline.agents.outcome import Ending
from jackline.agents.process.program import (
    AnswerPart,
    Done,
    Failed,
    Incomplete,
    ProcessCost,
    ProcessExit,
    ProgramEvent,
    ProgramOutput,
    SessionOpened,
    ToolResulted,
    Verdict,
)
from jackline.dialects import TokenUsage
from jackline.failures import Json, Kind, Observation, Where
from jackline.transcripts.conversation import PROVIDER, STRUCTURED_OUTPUT_TOOL, SYNTHETIC
from jackline.transcripts.records import (
    PRINTED_LINES,
    QUOTAS,
    TEXT,
    TEXTS,
    ModelUsage,
    PrintedLine,
    QuotaLimits,
    TranscriptMessage,
    blocks_of,
    decode,
    text_of,
)
from jackline.transcripts.saved_conversation import SavedConversation, TranscriptToolCall

_STARTED_AGENTS = frozenset({"local_agent", "local_workflow", "remote_agent"})
_CUT_STATES = frozenset({"stopped", "killed"})
_STOPPING_TOOLS = frozenset({"TaskStop", "KillShell", "AgentStop"})
_MODEL_USAGES = msgspec.json.Decoder(dict[str, ModelUsage])
_ANY = msgspec.json.Decoder()
_NO_ANSWER = "it gave no structured answer"


def reask_prompt(fault: str | None) -> str:
    """What to say to an agent without a structured answer, or with one that has this fault."""
    if fault is None:
        return (
            "Your work has ended without its answer. Call the tool StructuredOutput now, with the "
            "answer of the task in the form that its schema asks for. Do none of the work again."
        )
    return (
        f"The answer that you gave is not what its schema asks for: {fault}. Call the tool "
        "StructuredOutput again with the corrected answer. Do none of the work again."
    )


class ClaudeOutput(ProgramOutput):
    """The state of one run, from what it has printed so far.

    `before` is what the session had cost when the process was started.
    """

    reports_each_answer = True

    def __init__(
        self, model: str = "", *, schema: bool = False, before: SavedConversation | None = None
    ) -> None:
        super().__init__()
        self._named = model
        """The model that the agent is to use, as it was named."""
        self._schema = schema
        self._before = before or SavedConversation()
        self._model: str | None = None
        self._last_request_id: str | None = None
        self._retries = 0
        """Attempts of the client itself since the last answer."""
        self.error: PrintedLine | None = None
        """The error in place of the agent's own answer, when nothing came after it."""
        self._quota: QuotaLimits | None = None
        self._offered = ""
        """The structured answer that the agent tried last, as it came."""
        self.result: PrintedLine | None = None
        self._agents: dict[str, str] = {}
        """The agents that it started and that have not ended: their names, by task id."""
        self._lost: dict[str, str] = {}
        self._stopped_by_hand: set[str] = set()

    def _read(self, line: bytes) -> Sequence[ProgramEvent]:
        record = decode(PRINTED_LINES, line)
        if record is None:
            return ()
        if record.type == "system":
            return self._read_notice(record)
        if record.type == "assistant" and record.message is not None:
            return self._read_answer(record, record.message)
        if record.type == "user" and record.message and record.parent_tool_use_id is None:
            return [
                ToolResulted(block.tool_use_id, text_of(block.content), block.is_error is True)
                for block in blocks_of(record.message.content)
                if block.type == "tool_result" and block.tool_use_id is not None
            ]
        if record.type == "result":
            self.result = record
        elif record.type == "rate_limit_event" and record.rate_limit_info:
            self._quota = decode(QUOTAS, record.rate_limit_info) or self._quota
        return ()

    def _read_notice(self, record: PrintedLine) -> Sequence[ProgramEvent]:
        task = record.task_id
        if record.subtype == "init" and record.session_id is not None:
            self._model = record.model or self._model
            return (SessionOpened(record.session_id, record.model),)
        if record.subtype == "api_retry":
            self._retries += 1
        elif task is None:
            return ()
        elif record.subtype == "task_started" and record.task_type in _STARTED_AGENTS:
            self._agents[task] = record.description or task
        elif record.subtype == "task_notification" and task in self._agents:
            name = self._agents.pop(task)
            if record.status in _CUT_STATES and task not in self._stopped_by_hand:
                self._lost[task] = name
        return ()

    def _read_answer(
        self, record: PrintedLine, message: TranscriptMessage
    ) -> Sequence[ProgramEvent]:
        is_main = record.parent_tool_use_id is None
        blocks = blocks_of(message.content)
        # The client's own words have this model, and never call a tool; an upstream may write it.
        if message.model == SYNTHETIC and not any(each.type == "tool_use" for each in blocks):
            if is_main and record.error:
                self.error = record
            return ()
        if is_main:
            self.error, self._retries = None, 0
        self._last_request_id = record.request_id or self._last_request_id
        calls = []
        for block in blocks:
            if block.name == STRUCTURED_OUTPUT_TOOL:
                if is_main:
                    self._offered = bytes(block.input).decode("utf-8", "replace")
            elif block.type == "tool_use":
                calls.append(TranscriptToolCall.of(block))
        for call in calls:
            if call.name in _STOPPING_TOOLS and isinstance(call.input, dict):
                named = call.input.values()
                self._stopped_by_hand |= {each for each in named if isinstance(each, str)}
        return (
            AnswerPart(
                message.id,
                (None if message.model == SYNTHETIC else message.model) or self._model or "",
                message.usage.tokens if message.usage else TokenUsage(),
                "\n".join(block.text for block in blocks if block.type == "text" and block.text),
                tuple(calls),
                record.request_id,
                record.parent_tool_use_id,
            ),
        )

    def judge(self, ended: ProcessExit, *, now: datetime) -> Verdict:
        """The run's verdict."""
        result = self.result
        if result is None:
            if self.error is None:
                return ended.broken("Claude Code", "before it gave a result")
            return self._failed(self._observed(), now)
        if result.is_error is not False or self.error is not None:
            return self._judge_error(result, ended, now)
        if ended.exit_code != 0:
            return ended.broken("Claude Code", "after its result")
        answer = decode(_ANY, result.structured_output) if result.structured_output else None
        if self._schema and answer is None:
            return Incomplete(reask_prompt(None), _NO_ANSWER)
        if not self._schema and result.stop_reason == "refusal":
            body: Json = {"message": {"stop_reason": result.stop_reason}}
            return self._failed(Observation(Where.TRANSCRIPT, PROVIDER, 200, {}, body), now)
        if not self._schema and result.stop_reason in (None, "max_tokens"):
            # The client takes a stream that ended in order for whole, also when its end is missing.
            return self._failed(Observation.of_stream(b"", provider=PROVIDER), now)
        lost = {**self._lost, **self._agents}
        if lost:
            names = ", ".join(sorted(lost))
            return Incomplete(
                "Agents that you had started in the background were stopped before they had "
                f"finished, and their results are lost: {names}. Look at what they have done, "
                "finish their work (an agent can be gone on with by SendMessage to its id), and "
                "then give your answer again.",
                f"{len(lost)} of its own agents were stopped before they had finished",
                Ending.TOOL_ERROR,
            )
        return Done(self._result_text(result), answer)

    def _judge_error(self, result: PrintedLine, ended: ProcessExit, now: datetime) -> Verdict:
        is_error = result.is_error is not False
        if is_error and result.subtype == "error_max_structured_output_retries":
            return Incomplete(reask_prompt(None), _NO_ANSWER, raw=self._offered)
        verdict = self._failed(self._observed(), now)
        if verdict.failure.kind is Kind.NOT_A_FAILURE:
            return ended.broken("Claude Code", "with an error that it did not explain")
        return verdict

    def _result_text(self, result: PrintedLine) -> str:
        text = decode(TEXT, result.result) if result.result else None
        errors = decode(TEXTS, result.errors) if result.errors else None
        return text or "\n".join(errors or ())

    def _observed(self) -> Observation:
        error, result = self.error, self.result
        text, headers = "", {}
        body: Json = None
        if error is not None and error.message is not None:
            text = text_of(error.message.content)
            body = None if text else {"error": decode(TEXT, error.error)}
        elif result is not None:
            text = self._result_text(result)
            body = {"type": "result", "subtype": result.subtype or "", "is_error": True}
        # The window that refused, if one did; one that only warns is not why this run ended.
        if self._quota is not None and self._quota.status == "rejected":
            headers = self._quota.as_headers()
        status = None if result is None else result.api_error_status
        return Observation(Where.TRANSCRIPT, PROVIDER, status, headers, body, text or None)

    def _failed(self, seen: Observation, now: datetime) -> Failed:
        own = None if self.error is None else self.error.request_id
        request_id = own or self._last_request_id
        return Failed.of(
            seen,
            now,
            model=self._named,
            attempts=self._retries + 1,
            request_id=request_id,
        )

    def cost(self) -> ProcessCost:
        """What this process cost: newer clients report it for the whole session."""
        result, before = self.result, self._before
        usages = (
            decode(_MODEL_USAGES, result.model_usage) if result and result.model_usage else None
        )
        if result is None or not usages:
            return ProcessCost()
        usage = []
        for model, each in usages.items():
            total = each.tokens
            earlier = TokenUsage()
            if model in before.tokens:
                earlier = before.tokens[model]
            usage.append((model, total if total.total < earlier.total else total - earlier))
        cost = result.total_cost_usd
        if cost is not None and cost >= before.cost:
            cost -= before.cost
        return ProcessCost(tuple(usage), cost)
