"""Keep a conversation under the model's window: leave out its oldest results, then oldest turns.

Laws: (1) pure, and what was left out stays left out, so that the vendor's cache stays warm between
shortenings; (2) what is left out is said where it is missing; (3) the task itself and the last
turns stay, also the task of an agent that goes on with another's conversation; (4) every tool
result that stays has its call, and the reverse.
Not here: counting tokens (the vendor's count of the last answer is used).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jackline.agents.task import JsonObject

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
class Task:
    """What the agent was asked last, and in which message."""

    text: str = ""
    at: int = 0


NO_TASK = Task()


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
    messages: Sequence[JsonObject], left_out: Shortened, task: Task = NO_TASK
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
