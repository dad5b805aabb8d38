"""Turns of a scripted model that use Claude Code's own tools."""

from __future__ import annotations

from collections.abc import Iterable

from jackline.simulator.client_request import JsonObject
from jackline.simulator.reply_script import Say


def fan_out(prompts: Iterable[str], text: str = "Splitting.", *, background: bool = True) -> Say:
    """One `Agent` call per prompt, all in one turn, as Claude Code's sub-agents are started."""
    calls = []
    for number, prompt in enumerate(prompts, 1):
        value: JsonObject = {
            "description": f"Part {number}",
            "prompt": prompt,
            "subagent_type": "general-purpose",
        }
        calls.append(("Agent", value if background else {**value, "run_in_background": False}))
    return Say(text, tuple(calls))


def workflow(script: str, text: str = "Starting.") -> Say:
    """A call of Claude Code's `Workflow` tool with this script."""
    return Say(text, (("Workflow", {"script": script}),))
