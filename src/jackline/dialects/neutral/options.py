"""What a target accepts, how its answers shall look, and the request fields that follow from it.

Rules: (1) immutable options; the defaults fit the vendors' own endpoints, everything else is for
other servers; (2) a limit that the target cannot grant is lowered with a note, numbers stay as
written; (3) no user id is sent; (4) a level of effort that the target does not know becomes the
nearest one below, or the lowest, with a note; (5) encrypted reasoning belongs to the next tool call
of the same answer and is dropped when no call follows; it goes back to its server unchanged and
never to a client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from jackline.dialects.neutral.conversation import (
    FAILED,
    LEVELS,
    ConversationTurn,
    TextPart,
    ThinkingPart,
    ToolDefinition,
    ToolResultPart,
    VisiblePart,
    digest,
    read_conversation,
    tool_name,
)
from jackline.dialects.neutral.fields import TranslatedDocument, TranslationNotes

# Of one answer, until a call follows. A reasoning item has some kilobytes.
_MOST_WAITING = 1_000
_MOST_BYTES = 8 * 1024 * 1024


class StoredReasoning(NamedTuple):
    """Reasoning as an input item; `before_text`: text came between it and the call."""

    item: msgspec.Raw
    before_text: bool


Remember: TypeAlias = Callable[[str, Sequence[StoredReasoning]], None]
Recall: TypeAlias = Callable[[str], Sequence[StoredReasoning]]


class ReasoningBinder:
    """Passes the encrypted reasoning of one answer to `remember`, with the call that follows."""

    __slots__ = ("_before_text", "_bytes", "_remember", "_waiting")

    def __init__(self, remember: Remember | None) -> None:
        self._remember = remember
        self._waiting: list[msgspec.Raw] = []
        self._bytes = 0
        # How many of the waiting items came before the last text.
        self._before_text = 0

    def reasoning(self, id: str | None, summary: object, encrypted: str | None) -> bool:  # noqa: A002
        """Add a reasoning item; False when it will not be stored."""
        if self._remember is None or not encrypted:
            return False
        item = {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted}
        encoded = msgspec.json.encode(item)
        if len(self._waiting) >= _MOST_WAITING or self._bytes + len(encoded) > _MOST_BYTES:
            return False
        self._waiting.append(msgspec.Raw(encoded))
        self._bytes += len(encoded)
        return True

    def text(self) -> None:
        """The model has written text."""
        self._before_text = len(self._waiting)

    def call(self, id: str) -> None:  # noqa: A002
        """The model has called a tool; `id` is the one that Anthropic's clients see."""
        if self._waiting and self._remember is not None:
            before = self._before_text
            items = [StoredReasoning(item, at < before) for at, item in enumerate(self._waiting)]
            self._waiting, self._before_text, self._bytes = [], 0, 0
            self._remember(id, items)


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What a server of an OpenAI dialect accepts.

    `efforts` are the levels of reasoning it knows, lowest first; empty when it knows none.
    `sampling` is false for models that refuse temperature and top_p. `mid_system` is the role of
    system messages inside of the conversation: many chat templates refuse them. `recall` returns
    what a Responses server reasoned before a call, to be sent to it again; with it, encrypted
    reasoning is requested.
    """

    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    longest_answer: int | None = None
    efforts: tuple[str, ...] = ("low", "medium", "high")
    sampling: bool = True
    mid_system: Literal["keep", "user"] = "keep"
    prompt_cache_key: str | None = None
    recall: Recall | None = None


VENDOR = TargetOptions()


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How an answer is written: `model` as the client requested it, tools by their real names.

    `remember` receives encrypted reasoning, by the id of the call that followed.
    """

    model: str
    tool_names: Mapping[str, str] = field(default_factory=dict)
    stop_sequences: tuple[str, ...] = ()
    remember: Remember | None = None


def joined_text(parts: Iterable[object]) -> str:
    """The text of those parts that are text."""
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))


class RequestWriter(ABC):
    """Parses one Anthropic request, and writes what both OpenAI dialects have in common."""

    longest_id: ClassVar[int]

    def __init__(self, body: bytes | bytearray, target: TargetOptions) -> None:
        self.target = target
        self.notes = TranslationNotes()
        self.request = read_conversation(body, self.notes)
        self._real_names: dict[str, str] = {}

    def document(self, fields: Mapping[str, object]) -> TranslatedDocument:
        """The translated request."""
        return TranslatedDocument(
            msgspec.json.encode(fields), self.notes.sentences(), self._real_names
        )

    def call_id(self, known: str, at: str) -> str:
        """The id of a call in the target, the same for the call and for its result."""
        if 0 < len(known) <= self.longest_id:
            return known
        self.notes.add(at, "longer than OpenAI allows; sent as a digest")
        return f"call_{digest(known)}"

    def tool_name(self, name: str, at: str) -> str:
        """The name of a tool in the target."""
        sent = tool_name(name)
        if sent != name:
            self._real_names[sent] = name
            self.notes.add(at, "changed, because OpenAI does not accept the name")
        return sent

    def result(self, part: ToolResultPart) -> tuple[str, list[VisiblePart]]:
        """The id of the call in the target, and its result, which begins with what failed."""
        parts = list(part.parts)
        if part.failed:
            self.notes.add(f"{part.at}.is_error", "sent as text before the result")
            parts.insert(0, TextPart(part.at, FAILED))
        return self.call_id(part.id, f"{part.at}.tool_use_id"), parts

    def leave_out(self, part: ThinkingPart) -> None:
        """Note that thinking stays with the model that thought."""
        self.notes.add(part.at, "thinking of another model is not sent")

    def schema(self) -> dict[str, object] | None:
        """The schema of the answer, as both dialects name it."""
        schema = self.request.schema
        return None if schema is None else {"name": "answer", "schema": schema, "strict": True}

    def shared_fields(self, model: str, max_tokens_field: str) -> dict[str, object]:
        """The fields with the same name in both dialects, and the limit of the answer."""
        request, target, notes = self.request, self.target, self.notes
        fields: dict[str, object] = {"model": model}
        limit, longest = request.max_tokens, target.longest_answer
        if limit is not None and longest is not None and limit > longest:
            notes.add("max_tokens", f"lowered to {longest}, the most that is allowed there")
            limit = longest
        if limit is not None:
            fields[max_tokens_field] = limit
        for name, value in (("temperature", request.temperature), ("top_p", request.top_p)):
            if value is None:
                continue
            if target.sampling:
                fields[name] = value
            else:
                notes.add(name, "this model accepts no sampling settings")
        if request.tools:
            fields |= self._tool_fields()
        if request.user:
            notes.add("metadata.user_id", "the user id is not sent to another vendor")
        if target.prompt_cache_key is not None:
            fields["prompt_cache_key"] = target.prompt_cache_key
        if request.stream:
            fields["stream"] = True
        return fields

    def _tool_fields(self) -> dict[str, object]:
        request = self.request
        fields: dict[str, object] = {"tools": [self._tool(tool) for tool in request.tools]}
        if request.choice == "tool":
            fields["tool_choice"] = self._tool_choice(request.chosen_tool)
        elif request.choice is not None:
            fields["tool_choice"] = "required" if request.choice == "any" else request.choice
        if request.one_call_at_a_time:
            fields["parallel_tool_calls"] = False
        return fields

    def role(self, turn: ConversationTurn) -> str:
        """The role that a turn has in the target."""
        if turn.role == "system" and self.target.mid_system == "user":
            self.notes.add(f"{turn.at}.role", "sent as the user's, as the settings say")
            return "user"
        return turn.role

    def effort(self) -> str | None:
        """The level of effort to send."""
        wish, known = self.request.effort, self.target.efforts
        if wish is None or wish in known:
            return wish
        at = "output_config.effort"
        if not known:
            self.notes.add(at, "the target has no levels of effort")
            return None
        rank = LEVELS.index(wish)
        below = [level for level in known if level in LEVELS and LEVELS.index(level) <= rank]
        nearest = below[-1] if below else known[0]
        self.notes.add(at, f"{wish} is not known there; {nearest} is requested instead")
        return nearest

    @abstractmethod
    def _tool(self, tool: ToolDefinition) -> dict[str, object]: ...

    @abstractmethod
    def _tool_choice(self, name: str) -> dict[str, object]: ...
