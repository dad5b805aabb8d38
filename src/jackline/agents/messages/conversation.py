"""Fold an agent's log into its conversation, and write the model's next request from it.

Rules: (1) pure: the same entries give the same conversation and the same bytes, whichever process
wrote them, so that a gateway recognises a repeated call; (2) an entry is durable before it counts;
(3) turns, tokens and repeated requests are those of the agent whose `session` entry came last; (4)
entries of an unknown kind change nothing; (5) to fit the model's window, the oldest results and
then turns are left out; what was left out stays left out, so that the vendor's cache stays warm,
and a note says what is missing; (6) the task and the last turns always stay, and every tool result
that stays has its call, and the reverse; (7) every default is here, with its reason; (8) at most
four cache marks, on parts that will be sent again unchanged; (9) a tool choice is forced only for a
structured answer that is missing; (10) the vendor's count goes before ours, and the upper bound is
one token per byte, with pictures and hidden tool prompts at their maximum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import astuple

from jackline.agents.prices import Price
from jackline.agents.runner import (
    CUT_CALL,
    AgentLog,
    AgentTask,
    JsonObject,
    LogEntry,
    NextCall,
    WholeAnswer,
)
from jackline.agents.structured_answer import STRUCTURED_OUTPUT
from jackline.dialects import TokenUsage

CHARACTERS_PER_TOKEN = 4
"""Roughly, where the vendor has not counted yet."""

_UNATTENDED = (
    "You carry out one task on your own: nobody watches, and nobody can answer a question. Use "
    "the tools you have, decide open points yourself, and end with the result itself, not with "
    "a report of what you plan to do. Calls in one turn run side by side."
)
_WANTS_STRUCTURE = (
    f"Give your final answer by calling the tool {STRUCTURED_OUTPUT}, once and alone, when "
    "everything else is done. Text outside of that call is not read."
)
_MARK: JsonObject = {"type": "ephemeral"}
# Blocks of thinking take no mark, and none is ever on them: only input of the model has one.
_MARKED_MESSAGES = 2
# Tokens that a vendor adds to every call; Anthropic documents up to 804, for tools.
_HIDDEN = 1_000
# Tokens; Anthropic scales larger pictures down to 4,784.
_PICTURE_TOKENS = 5_000
_LAST_MESSAGES = 4
"""Always sent: the last two turns of the model, each with its input."""

_SHORT_RESULT = 300
"""Characters; a shorter result is not worth leaving out."""

_PICTURE = 6_000
"""Characters that a picture weighs, whatever its bytes: vendors count about 1,500 tokens."""


@dataclass(frozen=True, slots=True)
class MessagesSettings:
    """How the runner works where a task does not say otherwise."""

    model: str = "claude-opus-4-8"
    # All current models take it; answers are streamed, so that length costs no patience.
    max_tokens: int = 32_000
    # What every current model takes without a beta header.
    window: int = 200_000
    # Shortened when so much of the window is used, and then down to the second share at once:
    # every shortening empties the vendor's cache of this conversation, so they should be rare.
    full_at: float = 0.75
    shorten_to: float = 0.4
    # Requests to repeat a missing or invalid answer.
    most_reasks: int = 2
    # Cut off at the output limit, or paused by the vendor, so often in a row.
    most_continuations: int = 5
    # Characters of one tool's result that a model is shown; all results of a turn together get
    # no more than the share of the window that follows.
    longest_result: int = 60_000
    results_share: float = 0.25
    # Tools of one turn that run at once.
    tools_at_once: int = 16
    prices: Mapping[str, Price] = field(default_factory=dict)

    def room_for_result(self, calls: int) -> int:
        """How many characters the result of one of so many calls may have."""
        together = self.results_share * self.window * CHARACTERS_PER_TOKEN
        return min(self.longest_result, int(together / max(1, calls)))


@dataclass(frozen=True, slots=True)
class Shortened:
    """What is left out: the results in messages before `results_before`; all messages before
    `turns_before` but the first."""

    results_before: int = 0
    turns_before: int = 0

    def further(
        self, messages: Sequence[JsonObject], *, tokens: int, target: int
    ) -> Shortened | None:
        """What to leave out so that about `target` of `tokens` remain; None: nothing more can."""
        whole = sum(map(weight, self.render(messages))) or 1
        surplus = whole * (tokens - target) / max(tokens, 1)
        spared = len(messages) - _LAST_MESSAGES
        without = [_without_results(message) for message in messages]
        results = self.results_before
        while results < spared and surplus > 0:
            surplus -= weight(messages[results]) - weight(without[results])
            results += 1
        # Then whole turns after the first message, up to where the model speaks.
        first, turns = max(1, self.turns_before), self.turns_before
        for index in range(first, spared + 1 if surplus > 0 else first):
            if surplus <= 0 and turns > self.turns_before:
                break
            # The first message is the user's: the next one that stays must be the model's.
            if messages[index].get("role") == "assistant" and index > first:
                turns = index
            surplus -= weight(without[index])
        plan = Shortened(results, turns)
        return None if plan == self else plan

    def render(
        self, messages: Sequence[JsonObject], prompt: str = "", prompt_at: int = 0
    ) -> list[JsonObject]:
        """The messages as they are sent; `prompt`, the task, is message number `prompt_at`."""
        shown = [
            _without_results(message) if index < self.results_before else message
            for index, message in enumerate(messages)
            if not 0 < index < self.turns_before
        ]
        if self.turns_before > 1 and shown:
            left_out = self.turns_before - 1
            notes = [
                f"[{left_out} earlier messages of this conversation were left out to save room]"
            ]
            if prompt and 0 < prompt_at < self.turns_before:
                # Repeated here, because its message may hold results whose calls are gone.
                notes += ["[Among them was your present task, which is:]", prompt]
            blocks = [{"type": "text", "text": note} for note in notes]
            shown[0] = {**shown[0], "content": [*_list(shown[0].get("content")), *blocks]}
        return shown


def weight(value: object) -> int:
    """About how many characters a model has to read for this."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        if value.get("type") == "base64":
            return _PICTURE
        return sum(len(str(key)) + weight(each) for key, each in value.items())
    if isinstance(value, list):
        return sum(map(weight, value))
    return len(str(value))


def _without_results(message: JsonObject) -> JsonObject:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    shown = []
    for block in content:
        size = weight(block.get("content")) if block.get("type") == "tool_result" else 0
        note = f"[left out to save room: {size:,} characters; call the tool again if you need them]"
        shown.append({**block, "content": note} if size > _SHORT_RESULT else block)
    return {**message, "content": shown}


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
    """The state of an agent's conversation."""

    session_id: str = ""
    task_id: str = ""
    prompted: str = ""
    """The id of the agent whose prompt came last."""
    prompt: str = ""
    """That prompt."""
    prompt_at: int = 0
    """In which message it is."""
    messages: list[JsonObject] = field(default_factory=list)
    """All whole turns, as they are sent."""
    unanswered: list[JsonObject] = field(default_factory=list)
    """Blocks for the model that it has not answered yet."""
    stop_reason: str | None = None
    """Why the model stopped last; None before its first answer."""
    calls: list[TurnToolCall] = field(default_factory=list)
    """The tool calls of the last answer, until their results are sent."""
    cut_calls: list[str] = field(default_factory=list)
    """The tools of the last answer whose input was cut off."""
    has_input: bool = False
    """Whether there is input for the model since its last answer."""
    parts: list[str] = field(default_factory=list)
    """The text of the last answer, and of those that it continues."""
    shortened: Shortened = field(default_factory=Shortened)
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
    """Whether the last note requests the structured answer, and nothing else."""
    seams: list[str] = field(default_factory=list)
    """The notes about an interruption since the last answer."""
    _continues: bool = False

    @classmethod
    def from_log(cls, entries: Iterable[LogEntry]) -> AgentConversation:
        """The conversation in an agent's log."""
        conversation = cls()
        for entry in entries:
            conversation.add(entry.kind, entry.data)
        return conversation

    @property
    def text(self) -> str:
        """The last answer's text."""
        return "".join(self.parts)

    @property
    def all_messages(self) -> list[JsonObject]:
        """The whole turns, and the input since."""
        if not self.unanswered:
            return self.messages
        return [*self.messages, {"role": "user", "content": self.unanswered}]

    def request_body(
        self,
        task: AgentTask,
        settings: MessagesSettings,
        offered: Sequence[JsonObject],
        *,
        may_force: bool = True,
    ) -> JsonObject:
        """The body of the next call; `offered` are the tools."""
        body: JsonObject = {
            "model": task.model or settings.model,
            "max_tokens": task.max_tokens or settings.max_tokens,
        }
        has_tools = any(tool["name"] != STRUCTURED_OUTPUT for tool in offered)
        system = _UNATTENDED if task.system is None and has_tools else task.system or ""
        if task.schema is not None:
            system = f"{system}\n\n{_WANTS_STRUCTURE}" if system else _WANTS_STRUCTURE
        tools = [dict(tool) for tool in offered]
        if system:
            body["system"] = [{"type": "text", "text": system, "cache_control": _MARK}]
        elif tools:
            tools[-1]["cache_control"] = _MARK
        if tools:
            body["tools"] = tools
        if self.wants_structure and may_force:
            body["tool_choice"] = {"type": "tool", "name": STRUCTURED_OUTPUT}
        messages = self.shortened.render(self.all_messages, self.prompt, self.prompt_at)
        # One turn and out: marking what is never sent again would only cost.
        marks = _MARKED_MESSAGES if has_tools else 0
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            content = message.get("content")
            if marks and message["role"] == "user" and isinstance(content, list) and content:
                last = {**content[-1], "cache_control": _MARK}
                messages[index] = {**message, "content": [*content[:-1], last]}
                marks -= 1
        body["messages"] = messages
        return body

    def next_call(self, body: JsonObject, max_tokens: int) -> NextCall:
        """What is known of the call with this body before it is made."""
        counted = self.counted
        since = self.unanswered if counted else body
        return NextCall(
            str(body["model"]),
            max_tokens,
            lambda: counted + weight(since) // CHARACTERS_PER_TOKEN,
            lambda: _HIDDEN + min(_most_tokens(body), counted + _most_tokens(since)),
        )

    def add(self, kind: str, data: JsonObject) -> None:
        """Add one entry of the log."""
        match kind:
            case "session":
                self._begin_agent(data)
            case "prompt":
                self.prompt, self.prompt_at = _text(data), len(self.messages)
                self._add_input([{"type": "text", "text": self.prompt}])
                self.prompted = self.task_id
            case "note":
                self._add_note(data)
            case "answer":
                self._add_answer(data)
            case "tool_began" | "tool_output" | "tool_ended":
                self._follow_call(kind, data)
            case "results":
                self._add_results(data)
            case "shortened":
                self.shortened = Shortened(
                    _number(data, "results_before"), _number(data, "turns_before")
                )
                self.context = _number(data, "context", self.context)
                self.counted = 0
            case "ended":
                self._end(data)
            case _:
                pass

    def _begin_agent(self, data: JsonObject) -> None:
        self.session_id = str(data.get("session_id", ""))
        task_id = str(data.get("task_id", ""))
        if task_id != self.task_id:
            self.task_id = task_id
            self.usage, self.cost = TokenUsage(), 0.0
            self.turns = self.reasks = self.in_a_row = self.counted = 0

    def _add_input(self, blocks: list[JsonObject], *, continues: bool = False) -> None:
        self.unanswered += blocks
        self.has_input = True
        self._continues = continues

    def _add_note(self, data: JsonObject) -> None:
        note: JsonObject = {"type": "text", "text": _text(data)}
        self._add_input([note], continues=bool(data.get("goes_on")))
        if data.get("seam"):
            self.seams.append(_text(data))
        if data.get("reask"):
            self.reasks += 1
            self.wants_structure = bool(data.get("structure"))

    def _add_answer(self, data: JsonObject) -> None:
        blocks = [_object(block) for block in _list(data.get("content"))]
        content = [block for block in blocks if block.get("type") != CUT_CALL]
        self.cut_calls = [str(b.get("name")) for b in blocks if b.get("type") == CUT_CALL]
        if content:
            # An empty answer cannot be sent back: its input still waits for an answer.
            if self.unanswered:
                self.messages.append({"role": "user", "content": self.unanswered})
                self.unanswered = []
            last = self.messages[-1] if self.messages else {}
            before: list[JsonObject] = []
            if last.get("role") == "assistant":
                # After a pause the vendor continues the same turn.
                before = _list(self.messages.pop().get("content"))
            self.messages.append({"role": "assistant", "content": [*before, *content]})
        self.calls = [
            TurnToolCall(str(b["id"]), str(b["name"]), _object(b.get("input")))
            for b in content
            if b.get("type") == "tool_use"
        ]
        text = "".join(str(b.get("text", "")) for b in content if b.get("type") == "text")
        self.stop_reason = str(data.get("stop_reason", ""))
        pauses = self.stop_reason in (*CUT_OFF, PAUSED) or bool(self.cut_calls)
        self.parts = [*self.parts, text] if self._continues else [text]
        self.in_a_row = self.in_a_row + 1 if pauses and not self.calls else 0
        self._continues = self.stop_reason == PAUSED
        self.has_input = self.wants_structure = False
        self.seams = []
        counts = data.get("usage")
        usage = TokenUsage(*map(int, counts)) if isinstance(counts, list) else TokenUsage()
        self.usage += usage
        self.context = usage.total
        # Our own count is rough, and no bound of what comes next.
        self.counted = 0 if data.get("estimated") else usage.total
        self.turns += 1
        cost = data.get("cost")
        if self.cost is not None:
            self.cost = self.cost + cost if isinstance(cost, int | float) else None

    def _follow_call(self, kind: str, data: JsonObject) -> None:
        call = next((each for each in self.calls if each.id == data.get("id")), None)
        if call is None:
            return  # output that was still on its way when the results were sent
        if kind == TOOL_BEGAN:
            call.began = True
        elif kind == TOOL_OUTPUT:
            call.output.append(_text(data))
        else:
            call.ended = data
            self.reasks += bool(data.get("reask"))

    def _add_results(self, data: JsonObject) -> None:
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
        # The API wants results before any other input of the same turn.
        self.unanswered, after = results, self.unanswered
        self._add_input(after)
        self.calls, self.cut_calls = [], []

    def _end(self, data: JsonObject) -> None:
        self.reasks = self.in_a_row = 0
        if data.get("forget_answer") and self.messages:
            # What was refused once would be refused again for being in the conversation.
            self.messages.pop()
            if self.messages:
                self.unanswered = [*_list(self.messages.pop().get("content")), *self.unanswered]
            self.has_input = True
            self.parts = []


class ConversationLog:
    """An agent's log and the conversation in it."""

    def __init__(self, log: AgentLog) -> None:
        self._log = log
        self.conversation = AgentConversation.from_log(log.entries)

    async def write(self, kind: str, data: JsonObject) -> None:
        """Add an entry; it is durable, and counts, when this returns."""
        await self._log.write(kind, data)
        self.conversation.add(kind, data)

    def append_nowait(self, kind: str, data: JsonObject) -> None:
        """Add an entry that need not be waited for."""
        self._log.append_nowait(kind, data)
        self.conversation.add(kind, data)


def answer_entry(answer: WholeAnswer, cost: float | None, *, estimated: bool = False) -> JsonObject:
    """An answer as an entry of the log; `estimated` where its usage is our own count."""
    entry: JsonObject = {"estimated": True} if estimated else {}
    return entry | {
        "content": answer.content,
        "stop_reason": answer.stop_reason,
        "usage": list(astuple(answer.usage)),
        "model": answer.model,
        "request_id": answer.request_id,
        "lane": answer.lane,
        "cost": cost,
    }


def _most_tokens(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, dict):
        if value.get("type") == "base64" and str(value.get("media_type")).startswith("image/"):
            return _PICTURE_TOKENS
        # Four for the marks around and between the two.
        return sum(_most_tokens(key) + _most_tokens(each) + 4 for key, each in value.items())
    if isinstance(value, list):
        return sum(_most_tokens(each) + 1 for each in value)
    return len(str(value))


def _text(data: JsonObject) -> str:
    return str(data.get("text", ""))


def _number(data: JsonObject, key: str, default: int = 0) -> int:
    value = data.get(key)
    return value if isinstance(value, int) else default


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[JsonObject]:
    return value if isinstance(value, list) else []
