"""Decide what a hook is answered: rewrite a false result, or add what the model should know.

Laws: (1) pure: what is known comes in, JSON for the client goes out; (2) a result is rewritten only
on evidence that the sub-agent died, never because its words look like an error; (3) the shape of
what the tool gave back stays, only its words change.
Not here: whether it died (finding_deaths.py), remembering (deaths.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jackline.agents.claude_code.dead_agent import DeadAgent
from jackline.failures.sentences import moment_in_words
from jackline.hooks.asked import HookAsked
from jackline.hooks.deaths import Death

# Events whose answer may add something to what the model reads.
TELLING = frozenset({"PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "SessionStart"})
_MOST_LOST = 3
_LONGEST = 200


def death_words(death: Death, left: DeadAgent | None, now: datetime) -> str:
    """What a parent has to know of a sub-agent that died."""
    resets = death.cause.resets_at
    until = f", resets {moment_in_words(resets, now)}" if resets is not None else ""
    first = (
        f"Sub-agent {death.agent} did not finish: terminated_by {death.terminated_by.value}"
        f" ({death.cause.name}{until}). What it gave back is an error text, not a result."
    )
    words = [first]
    if left is not None and left.turns:
        calls = sum(len(turn.calls) for turn in left.turns)
        words.append(
            f"Before that it had finished {len(left.turns)} turns with {calls} tool calls."
        )
    if left is not None and left.last_words:
        words.append(f"Its last own words: {left.last_words[:_LONGEST]}")
    if left is not None and left.lost:
        names = ", ".join(call.name for call in left.lost[:_MOST_LOST])
        words.append(f"Calls that may or may not have run: {names}.")
    when = "after the reset" if resets is not None and resets > now else "now"
    words.append(
        f"Do not start it again from the beginning: {when}, call the Jackline tool `agent` with"
        f' continue_from_task_id="{death.agent}", which goes on after its last finished turn.'
    )
    return " ".join(words)


def rewritten(asked: HookAsked, words: str) -> dict[str, object]:
    """The answer that replaces what the sub-agent's call gave back."""
    told = asked.tool_response
    new = dict(told) if isinstance(told, dict) else {}
    # Nothing else: the client throws away what is not of its tool's own shape, status included.
    new["content"] = [{"type": "text", "text": words}]
    return {
        "hookSpecificOutput": {
            "hookEventName": asked.hook_event_name,
            "updatedToolOutput": new,
            # Also reaches a client that did not take the new output.
            "additionalContext": words.partition(". ")[0] + ".",
        }
    }


def added(asked: HookAsked, told: Sequence[str]) -> dict[str, object]:
    """The answer that adds these words; empty where nothing is to be said, or can be."""
    if not told or asked.hook_event_name not in TELLING or asked.agent_id is not None:
        return {}
    return {
        "hookSpecificOutput": {
            "hookEventName": asked.hook_event_name,
            "additionalContext": "\n".join(told),
        }
    }
