"""Make crews, and what the model says to them.

Laws: (1) values only; (2) answers take the same time in every run, so that two runs differ by what
struck them and by nothing else; (3) a crew is known by its prompts, which every dialect carries.
Not here: what strikes them (catalogue.py, other_upstreams.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jackline.drills.binding import ECHO
from jackline.drills.builtin_client import AgentPlan
from jackline.simulator.conversation import Asked
from jackline.simulator.mind import Mind, Reply, Rule, Say, ToolCall, long_answer
from jackline.simulator.service import ServiceSettings

OPUS, SONNET, HAIKU = "claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5-20251001"
_FAMILIES = ("opus", "sonnet", "haiku")
MINUTE = 60.0
MAIN = "main"
"""The label of the thread that starts the crew."""
_LABEL = re.compile(r"^(PART-\d+): ", re.MULTILINE)
# What Codex calls the tool that runs a command.
CODEX_SHELL = "exec_command"
LOOK = ("Bash", {"command": "echo looked", "description": "Look at the part"})

STEADY = ServiceSettings(first_byte=1.2, first_byte_spread=0.0, tokens_per_second=60.0)


def crew(
    count: int, models: Sequence[str] = (SONNET,), *, rounds: int = 1
) -> tuple[AgentPlan, ...]:
    """So many sub-agents of one session, their models dealt out in turn."""
    return tuple(
        AgentPlan(
            label=f"PART-{number}",
            prompt=f"PART-{number}: review this part of the project.",
            last_words=_last_words(f"PART-{number}"),
            model=models[(number - 1) % len(models)],
            agent=f"drill-agent-{number}",
            rounds=rounds,
        )
        for number in range(1, count + 1)
    )


def mind_for(agents: Sequence[AgentPlan], *, turns: int, tokens: int) -> Mind:
    """A model that starts this crew, lets each look so many times, and then ends its part."""
    looking = Say(long_answer(tokens).text, (LOOK,))
    rules = [
        Rule(_split(agents), sub_agent=False, turn=0, offers="Agent"),
        Rule(Say("All parts are back."), sub_agent=False),
        *(Rule(looking, sub_agent=True, turn=turn) for turn in range(turns)),
        Rule(_end_part, sub_agent=True),
    ]
    return Mind(tuple(rules))


def mind_of_rounds(agents: Sequence[AgentPlan], *, turns: int, tokens: int, waves: int = 1) -> Mind:
    """The same for crews that are asked again and again, with two tools at once in every look.

    Each time that the main thread is asked, it starts the next share of the crew.
    """
    share = -(-len(agents) // waves)
    text = long_answer(tokens).text

    def reply(asked: Asked) -> Reply:
        label, place = label_of(asked), asked.turn % (turns + 1)
        if label == MAIN:
            return main.reply(asked)
        if place == turns:
            return Say(_last_words(label))
        return Say(text, tuple(_look(asked, label, side) for side in ("left", "right")))

    splits = (
        Rule(_split(agents[share * wave : share * (wave + 1)]), turn=2 * wave, offers="Agent")
        for wave in range(waves)
    )
    main = Mind((*splits, Rule(Say("All parts are back."))))
    return Mind((Rule(reply),))


def label_of(asked: Asked) -> str:
    """The agent whose conversation this is, by what its user first asked, in whatever dialect."""
    entries = asked.body.get("messages") or asked.body.get("input") or ()
    for entry in entries:
        if entry.get("role") != "user":
            continue
        content = entry.get("content")
        texts = [content] if isinstance(content, str) else [b.get("text", "") for b in content]
        for text in texts:
            if found := _LABEL.search(text):
                return found[1]
    return MAIN


def _look(asked: Asked, label: str, side: str) -> ToolCall:
    command = f"{ECHO}{label}-{asked.turn}-{side}"
    if CODEX_SHELL in asked.tools:
        return (CODEX_SHELL, {"cmd": command})
    return ("Bash", {"command": command, "description": f"Look {side}"})


def _split(agents: Sequence[AgentPlan]) -> Say:
    return Say("Splitting the work.", tuple(("Agent", _order(plan)) for plan in agents))


def _order(plan: AgentPlan) -> dict[str, object]:
    return {
        "description": f"Review {plan.label}",
        "prompt": plan.prompt,
        "subagent_type": "general-purpose",
        "model": next((word for word in _FAMILIES if word in plan.model), plan.model),
        "run_in_background": False,
    }


def _end_part(asked: Asked) -> Say:
    return Say(_last_words(asked.prompt.partition(":")[0]))


def _last_words(label: str) -> str:
    return f"{label} is done."
