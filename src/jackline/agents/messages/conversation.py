"""Fold an agent's log into its conversation, and shorten that to fit the model's window.

Rules: (1) pure: the same entries give the same conversation, whichever process wrote them, and the
request follows from it alone; (2) an entry is durable before it counts; (3) turns, tokens and
repeated questions are those of the agent whose `session` entry came last; (4) entries of an unknown
kind change nothing; (5) what was left out stays left out, so that the vendor's cache stays warm,
and a note says what is missing; (6) the task and the last turns always stay, and every tool result
that stays has its call, and the reverse.
Not here: the next step (next_move.py), where logs are saved (flows/).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jackline.agents.answer_stream import CUT_CALL
from jackline.agents.outcome import TokenUsage
from jackline.agents.runner import AgentLog, JsonObject, LogEntry, WholeAnswer

_KEPT_MESSAGES = 4
"""The last turns: two of the model's with what was said to them."""

_SHORT_RESULT = 300
"""Characters; a shorter result is not worth leaving out."""

_PICTURE = 6_000
"""Characters that a picture weighs, whatever its bytes: vendors count about 1,500 tokens."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """What is left out: the results in messages before `results_before`; all messages before
    `turns_before` but the first."""

    results_before: int = 0
    turns_before: int = 0

    def to_json(self) -> JsonObject:
        """As a line of the notebook."""
        return {"results_before": self.results_before, "turns_before": self.turns_before}

    @classmethod
    def from_json(cls, data: JsonObject) -> Shortened:
        """From a line of the notebook."""
        return cls(_number(data, "results_before"), _number(data, "turns_before"))


WHOLE = Shortened()


@dataclass(frozen=True, slots=True)
class CurrentTask:
    """What the agent was asked last, and in which message."""

    text: str = ""
    at: int = 0


NO_TASK = CurrentTask()


def shorten(
    messages: Sequence[JsonObject], now: Shortened, *, tokens: int, target: int
) -> Shortened | None:
    """What to leave out so that about `target` of `tokens` remain; None if nothing more can go."""
    whole = sum(weight(each) for each in rendered(messages, now)) or 1
    surplus = whole * (tokens - target) / max(tokens, 1)
    spared = len(messages) - _KEPT_MESSAGES
    plan = now
    for index in range(now.results_before, spared):
        if surplus <= 0:
            break
        plan = Shortened(index + 1, now.turns_before)
        surplus -= _saved(messages[index])
    if surplus > 0:
        plan = _fewer_turns(messages, plan, surplus)
    return None if plan == now else plan


def rendered(
    messages: Sequence[JsonObject], left_out: Shortened, task: CurrentTask = NO_TASK
) -> list[JsonObject]:
    """The messages as they are sent."""
    if left_out == WHOLE:
        return list(messages)
    kept = []
    for index, message in enumerate(messages):
        if 0 < index < left_out.turns_before:
            continue
        if index < left_out.results_before:
            message = _without_results(message)  # noqa: PLW2901 -- the message as it is shown
        kept.append(message)
    if left_out.turns_before > 1 and kept:
        # Told anew where the rest was left out: its message may hold results whose calls are gone.
        again = task.text if 0 < task.at < left_out.turns_before else ""
        kept[0] = _with_note(kept[0], left_out.turns_before - 1, again)
    return kept


def weight(value: object) -> int:
    """About how many characters a model has to read for this."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        if value.get("type") == "base64":
            return _PICTURE
        return sum(len(str(key)) + weight(each) for key, each in value.items())
    if isinstance(value, list):
        return sum(weight(each) for each in value)
    return len(str(value))


def _fewer_turns(messages: Sequence[JsonObject], plan: Shortened, surplus: float) -> Shortened:
    """Leave out whole turns after the first message, up to where the model speaks."""
    spared = len(messages) - _KEPT_MESSAGES
    first = max(1, plan.turns_before)
    shown = [weight(_without_results(each)) for each in messages]
    best = plan.turns_before
    for index in range(first, spared + 1):
        if surplus <= 0 and best > plan.turns_before:
            break
        # The first message is the user's: the next one kept must be the model's.
        if messages[index].get("role") == "assistant" and index > first:
            best = index
        surplus -= shown[index]
    return Shortened(plan.results_before, best)


def _saved(message: JsonObject) -> int:
    return weight(message) - weight(_without_results(message))


def _without_results(message: JsonObject) -> JsonObject:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_without_result(block) for block in content]}


def _without_result(block: JsonObject) -> JsonObject:
    if block.get("type") != "tool_result":
        return block
    size = weight(block.get("content"))
    if size <= _SHORT_RESULT:
        return block
    left_out = f"[left out to save room: {size:,} characters; call the tool again if you need them]"
    return {**block, "content": left_out}


def _with_note(message: JsonObject, count: int, task: str) -> JsonObject:
    content = message.get("content")
    told = [f"[{count} earlier messages of this conversation were left out to save room]"]
    if task:
        told += ["[Among them was your present task, which is:]", task]
    blocks = content if isinstance(content, list) else []
    return {**message, "content": [*blocks, *({"type": "text", "text": each} for each in told)]}


def _number(data: JsonObject, key: str) -> int:
    value = data.get(key)
    return value if isinstance(value, int) else 0


SESSION = "session"
PROMPT = "prompt"
ANSWER = "answer"
TOOL_BEGAN = "tool_began"
TOOL_OUTPUT = "tool_output"
TOOL_ENDED = "tool_ended"
RESULTS = "results"
NOTE = "note"
SHORTENED = "shortened"
ENDED = "ended"

CUT_OFF = ("max_tokens", "model_context_window_exceeded")
PAUSED = "pause_turn"
CONTINUED = (*CUT_OFF, PAUSED)
"""Reasons to stop after which the same answer goes on."""


@dataclass(slots=True)
class TurnToolCall:
    """One call of the last answer and how far it came."""

    id: str
    name: str
    arguments: JsonObject
    began: bool = False
    output: list[str] = field(default_factory=list)
    ended: JsonObject | None = None


@dataclass(slots=True)
class AgentConversation:
    """Where an agent stands."""

    session_id: str = ""
    task_id: str = ""
    prompted: str = ""
    """The agent whose prompt was said last."""
    task: CurrentTask = NO_TASK
    """That prompt."""
    messages: list[JsonObject] = field(default_factory=list)
    """All whole turns, as they are sent."""
    said: list[JsonObject] = field(default_factory=list)
    """Blocks for the model that it has not answered yet."""
    stop_reason: str | None = None
    """Why the model stopped last; None as long as it has not spoken."""
    calls: list[TurnToolCall] = field(default_factory=list)
    """The tools that the last answer asks for, until their results are said."""
    cut_calls: list[str] = field(default_factory=list)
    """The tools of the last answer whose input was cut off."""
    replied: bool = False
    """Whether something was said since the last answer."""
    parts: list[str] = field(default_factory=list)
    """The words of the last answer, and of those that it goes on from."""
    shortened: Shortened = WHOLE
    usage: TokenUsage = field(default_factory=TokenUsage)
    context: int = 0
    """Tokens of the whole conversation as the vendor counted them last."""
    counted: int = 0
    """The same, but 0 where nobody counted what the next call of this agent sends."""
    cost: float | None = 0.0
    turns: int = 0
    reasks: int = 0
    in_a_row: int = 0
    """Answers in a row that ended at the output limit or in a pause."""
    wants_structure: bool = False
    """Whether the model was just told to give its structured answer, and nothing else."""
    seams: list[str] = field(default_factory=list)
    """What was told since the last answer of an interruption."""
    _goes_on: bool = False

    @property
    def text(self) -> str:
        """What the model said last."""
        return "".join(self.parts)

    @property
    def has_begun(self) -> bool:
        """Whether there is anything at all."""
        return bool(self.messages or self.said)

    def take(self, kind: str, data: JsonObject) -> None:
        """Take note of one line."""
        match kind:
            case "session":
                self._begin_agent(data)
            case "prompt":
                self.task = CurrentTask(_text(data), len(self.messages))
                self._say(_text(data))
                self.prompted = self.task_id
            case "note":
                self._note(data)
            case "answer":
                self._answered(data)
            case "tool_began" | "tool_output" | "tool_ended":
                self._follow_call(kind, data)
            case "results":
                self._seal(data)
            case "shortened":
                self.shortened = Shortened.from_json(data)
                context = data.get("context")
                self.context = context if isinstance(context, int) else self.context
                self.counted = 0
            case "ended":
                self._ended(data)
            case _:
                pass

    def _begin_agent(self, data: JsonObject) -> None:
        self.session_id = str(data.get("session_id", ""))
        task_id = str(data.get("task_id", ""))
        if task_id != self.task_id:
            self.task_id = task_id
            self.usage, self.cost = TokenUsage(), 0.0
            self.turns = self.reasks = self.in_a_row = self.counted = 0

    def _say(self, text: str) -> None:
        self.said.append({"type": "text", "text": text})
        self.replied = True
        self._goes_on = False

    def _note(self, data: JsonObject) -> None:
        self._say(_text(data))
        self._goes_on = bool(data.get("goes_on"))
        if data.get("seam"):
            self.seams.append(_text(data))
        if data.get("reask"):
            self.reasks += 1
            self.wants_structure = bool(data.get("structure"))

    def _answered(self, data: JsonObject) -> None:
        answer = answer_from(data)
        said = [block for block in answer.content if block.get("type") != CUT_CALL]
        self.cut_calls = [str(b.get("name")) for b in answer.content if b.get("type") == CUT_CALL]
        if said:
            # An answer of nothing cannot be sent back: what it was asked stays to be answered.
            if self.said:
                self.messages.append({"role": "user", "content": self.said})
                self.said = []
            self._model_said(said)
        self.calls = [
            TurnToolCall(str(b["id"]), str(b["name"]), _object(b.get("input")))
            for b in said
            if b.get("type") == "tool_use"
        ]
        words = "".join(str(b.get("text", "")) for b in said if b.get("type") == "text")
        pauses = answer.stop_reason in CONTINUED or bool(self.cut_calls)
        self.parts = [*self.parts, words] if self._goes_on else [words]
        self.in_a_row = self.in_a_row + 1 if pauses and not self.calls else 0
        self._goes_on = answer.stop_reason == PAUSED
        self.stop_reason = answer.stop_reason
        self.replied = self.wants_structure = False
        self.seams = []
        self.usage += answer.usage
        self.context = self.counted = answer.usage.total
        self.turns += 1
        cost = data.get("cost")
        if self.cost is not None:
            self.cost = self.cost + cost if isinstance(cost, int | float) else None

    def _model_said(self, said: list[JsonObject]) -> None:
        last = self.messages[-1] if self.messages else {}
        before = last.get("content")
        if last.get("role") == "assistant" and isinstance(before, list):
            # After a pause the vendor goes on with the same turn.
            self.messages[-1] = {"role": "assistant", "content": [*before, *said]}
        else:
            self.messages.append({"role": "assistant", "content": said})

    def _follow_call(self, kind: str, data: JsonObject) -> None:
        call = next((each for each in self.calls if each.id == data.get("id")), None)
        if call is None:
            return  # output that was still on its way when the results were said
        if kind == TOOL_BEGAN:
            call.began = True
        elif kind == TOOL_OUTPUT:
            call.output.append(_text(data))
        else:
            call.ended = data
            self.reasks += bool(data.get("reask"))

    def _seal(self, data: JsonObject) -> None:
        results: list[JsonObject] = []
        for call in self.calls:
            ended = call.ended or {}
            result: JsonObject = {
                "type": "tool_result",
                "tool_use_id": call.id,
                "content": ended.get("content", ""),
            }
            results.append(result if ended.get("ok") else {**result, "is_error": True})
        if summary := str(data.get("summary") or ""):
            results.append({"type": "text", "text": summary})
        # The API wants results before anything else that is said in the same turn.
        self.said = [*results, *self.said]
        self.calls, self.cut_calls = [], []
        self.replied = True
        self._goes_on = False

    def _ended(self, data: JsonObject) -> None:
        self.reasks = self.in_a_row = 0
        if data.get("forget_answer") and self.messages:
            # What was refused once would be refused again for being in the conversation.
            self.messages.pop()
            if self.messages:
                content = self.messages.pop().get("content")
                self.said = [*(content if isinstance(content, list) else ()), *self.said]
            self.replied = True
            self.parts = []


def conversation(entries: Iterable[LogEntry]) -> AgentConversation:
    """Where the agent of this notebook stands."""
    talk = AgentConversation()
    for entry in entries:
        talk.take(entry.kind, entry.data)
    return talk


def answer_line(answer: WholeAnswer, cost: float | None) -> JsonObject:
    """An answer as a line of the notebook."""
    usage = answer.usage
    return {
        "content": answer.content,
        "stop_reason": answer.stop_reason,
        "usage": [
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.cache_write_1h_tokens,
        ],
        "model": answer.model,
        "request_id": answer.request_id,
        "lane": answer.lane,
        "cost": cost,
    }


def answer_from(data: JsonObject) -> WholeAnswer:
    """The answer of a line."""
    content, usage = data.get("content"), data.get("usage")
    request_id, lane = data.get("request_id"), data.get("lane")
    return WholeAnswer(
        content=[_object(block) for block in content] if isinstance(content, list) else [],
        stop_reason=str(data.get("stop_reason", "")),
        usage=TokenUsage(*(int(count) for count in usage))
        if isinstance(usage, list)
        else TokenUsage(),
        model=str(data.get("model", "")),
        request_id=None if request_id is None else str(request_id),
        lane=None if lane is None else str(lane),
    )


def _text(data: JsonObject) -> str:
    return str(data.get("text", ""))


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


class ConversationLog:
    """A notebook and the conversation in it."""

    def __init__(self, notebook: AgentLog) -> None:
        self._notebook = notebook
        self.talk: AgentConversation = conversation(notebook.entries)

    async def write(self, kind: str, data: JsonObject) -> None:
        """Add a line; it is durable, and counts, when this returns."""
        await self._notebook.write(kind, data)
        self.talk.take(kind, data)

    def jot(self, kind: str, data: JsonObject) -> None:
        """Add a line that need not be waited for."""
        self._notebook.jot(kind, data)
        self.talk.take(kind, data)
