"""What the other side accepts, how its answers shall look, and the fields that follow from it.

Rules: (1) immutable values; the defaults fit the vendor's own endpoints, everything else is for
whoever configures another server; (2) a bound that the target cannot grant is lowered with a
note, numbers stay as written; (3) by default no user id is sent; a long one is sent as a digest,
which stays the same; (4) an encrypted thought belongs to the next tool call of the same answer;
one that no call follows is dropped; it goes back to its server unchanged and never to a client.
Not here: reading options from a file (config/), where thoughts are stored (providers/), effort
(request.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from jackline.dialects.neutral.conversation import ConversationRequest, digest
from jackline.dialects.neutral.fields import TranslationNotes

# Of one answer, until a call follows. A thought has some kilobytes.
_MOST_WAITING = 1_000
_MOST_BYTES = 8 * 1024 * 1024


class StoredThought(NamedTuple):
    """A thought as an input item; `before_words` tells that words stood between it and the call."""

    item: msgspec.Raw
    before_words: bool


Remember: TypeAlias = Callable[[str, Sequence[StoredThought]], None]
Recall: TypeAlias = Callable[[str], Sequence[StoredThought]]


class ReasoningBinder:
    """Follows one answer."""

    __slots__ = ("_before_words", "_bytes", "_remember", "_waiting")

    def __init__(self, remember: Remember | None) -> None:
        self._remember = remember
        self._waiting: list[msgspec.Raw] = []
        self._bytes = 0
        # How many of those that wait were thought before the model last said something.
        self._before_words = 0

    def thought(self, id: str | None, summary: object, encrypted: str | None) -> bool:  # noqa: A002
        """The model has thought; whether this will be kept."""
        if self._remember is None or not encrypted:
            return False
        item = {"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted}
        encoded = msgspec.json.encode(item)
        if len(self._waiting) >= _MOST_WAITING or self._bytes + len(encoded) > _MOST_BYTES:
            return False
        self._waiting.append(msgspec.Raw(encoded))
        self._bytes += len(encoded)
        return True

    def words(self) -> None:
        """The model has said something."""
        self._before_words = len(self._waiting)

    def call(self, id: str) -> None:  # noqa: A002
        """The model has called a tool; `id` is what Anthropic's clients know the call by."""
        if self._waiting and self._remember is not None:
            before = self._before_words
            kept = [StoredThought(item, place < before) for place, item in enumerate(self._waiting)]
            self._waiting, self._before_words, self._bytes = [], 0, 0
            self._remember(id, kept)


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What a server of an OpenAI dialect takes.

    `efforts` are the levels of reasoning it knows, lowest first; empty when it knows none.
    `sampling` is false for models that refuse temperature and top_p. `mid_system` says what becomes
    of system messages inside of the conversation: many chat templates refuse them.
    `reasoning_field` is where a chat server wants earlier reasoning back; `reasoning_items` is for
    Responses servers that take reasoning which they did not make. `user_field` tells the vendor who
    asks; by default nobody is told. `forgo` names request fields that may be left out with a note.
    `recall` gives what a Responses server thought before a call, to be told to it again; with it,
    encrypted thoughts are asked for.
    """

    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    longest_answer: int | None = None
    efforts: tuple[str, ...] = ("low", "medium", "high")
    sampling: bool = True
    images: bool = True
    files: bool = True
    system_role: Literal["system", "developer"] = "system"
    mid_system: Literal["keep", "user"] = "keep"
    reasoning_field: Literal["reasoning_content", "reasoning"] | None = None
    reasoning_items: bool = False
    user_field: Literal["user", "safety_identifier"] | None = None
    prompt_cache_key: str | None = None
    forgo: frozenset[str] = frozenset()
    recall: Recall | None = None


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How a foreign answer is told: `model` as the client asked for it, tools by their real names.

    `show_reasoning` turns reasoning into plain text; otherwise it is left out with a note, because
    a thinking block without Claude's own signature is refused when the conversation returns.
    `remember` takes encrypted thoughts, by the id of the call that followed.
    """

    model: str
    tool_names: Mapping[str, str] = field(default_factory=dict)
    stop_sequences: tuple[str, ...] = ()
    show_reasoning: bool = False
    remember: Remember | None = None


_NO_SAMPLING = "this model takes no sampling settings"


def longest_answer(
    asked: ConversationRequest, target: TargetOptions, notes: TranslationNotes
) -> int | None:
    """How many tokens the answer may have."""
    if asked.max_tokens is None or target.longest_answer is None:
        return asked.max_tokens
    if asked.max_tokens > target.longest_answer:
        notes.add("max_tokens", f"lowered to the {target.longest_answer} that are allowed there")
    return min(asked.max_tokens, target.longest_answer)


def sampling(
    asked: ConversationRequest, target: TargetOptions, notes: TranslationNotes
) -> dict[str, object]:
    """Temperature and top_p, where the model takes them."""
    told: dict[str, object] = {}
    for name, value in (("temperature", asked.temperature), ("top_p", asked.top_p)):
        if value is None:
            continue
        if target.sampling:
            told[name] = value
        else:
            notes.add(name, _NO_SAMPLING)
    return told


_LONGEST_USER = 64
_AT = "metadata.user_id"


def user_id_field(
    user: str | None, target: TargetOptions, notes: TranslationNotes
) -> dict[str, object]:
    """The field that names the user, if it is to be told."""
    if not user:
        return {}
    if target.user_field is None:
        notes.add(_AT, "who asks is not told to another vendor")
        return {}
    if len(user) > _LONGEST_USER:
        notes.add(_AT, "told as a digest, because it is longer than the other side takes")
        user = digest(user)
    return {target.user_field: user}
