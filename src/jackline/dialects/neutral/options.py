"""Say what the other side can take, and how its answers shall look.

Laws: (1) immutable values; (2) the defaults fit the vendor's own endpoints, everything else is for
whoever configures another server.
Not here: reading these from a file (config/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from jackline.dialects.neutral.reasoning import Recall, Remember


@dataclass(frozen=True, slots=True)
class Target:
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
class AnswerAs:
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
