"""What a drill is: providers that misbehave, a crew of agents, and the requirements.

Rules: (1) frozen values and pure functions, nothing here runs; (2) times are drill seconds;
faults count from the moment they begin, so a client may take its time to start; (3) requirements
are limits on figures, so that a result can be printed beside the measured number; (4) answers
take the same time in every run, so two runs differ only by the faults; (5) a crew is recognised
by its prompts, which every dialect carries.
Not here: the drills (catalogue.py, failover_drills.py), running them (drill_run.py), figures
(evaluation.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from jackline.drills.builtin_client import AgentPlan
from jackline.drills.conversation import ECHO
from jackline.drills.live_view import NOT_WATCHED, LiveView
from jackline.providers.settings import UpstreamKind
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Fault
from jackline.simulator.limits import BucketSettings, ConcurrencySettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule, Say, ToolCall, long_answer
from jackline.simulator.time_model import ServiceSettings


@dataclass(frozen=True, slots=True)
class Requirement:
    """The most that a figure of Jackline's side may be, and the sentence that this stands for."""

    says: str
    figure: str
    most: float
    beyond_bare: bool = False
    """Whether `most` is counted from what the bare side took."""
    machine_slack: float = 0.0
    """Real seconds that a busy machine may add to `most`."""


@dataclass(frozen=True, slots=True)
class BackupProvider:
    """A further provider that Jackline may go to; the bare side does not know of it."""

    name: str
    kind: UpstreamKind = UpstreamKind.ANTHROPIC
    models: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    """They strike together with those of the first provider."""
    buckets: tuple[BucketSettings, ...] = ()
    concurrency: ConcurrencySettings | None = None


@dataclass(frozen=True, slots=True)
class CrewPart:
    """One run of a crew, made twice: bare and through Jackline."""

    name: str
    crew: tuple[AgentPlan, ...]
    mind: ReplyScript
    faults: tuple[Fault, ...]
    strike_after: int
    """So many requests of sub-agents come before the faults begin."""
    demands: tuple[Requirement, ...]
    service: ServiceSettings = field(default_factory=ServiceSettings)
    bystander_model: str = ""
    """A part of the name of the models that no fault strikes."""
    patience: float = 1800.0
    """Who is not done so long after the start counts as unfinished."""
    stand_ins: tuple[BackupProvider, ...] = ()
    waves: int = 1
    """How often the real client is asked; each time its model starts the next share of the crew."""
    rest: float = 0.0
    """How long its user takes to ask again."""
    dialect: UpstreamKind = UpstreamKind.ANTHROPIC
    """What the crew's clients, and so the first provider, speak."""
    status_says: tuple[str, ...] = ()
    """What the gateway's status must have said in its verdict at some moment."""

    @property
    def recovers_after(self) -> float | None:
        """How long after they strike the last fault of the first provider ends, if ever."""
        ends = [fault.until for fault in self.faults]
        return max(ends) if ends and math.isfinite(max(ends)) else None


# --- parts whose crew is a program ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlowFigures:
    """What every program's side is known by; each such part has more of its own."""

    agents: int
    finished: int
    requests: int


@dataclass(frozen=True, slots=True)
class SideContext:
    """What one side of such a part is played with."""

    folder: Path
    """Its own, gone when the drill is over."""
    speed: float
    thorough: bool
    """Whether nobody asked to hurry."""
    watched: LiveView = NOT_WATCHED


Play: TypeAlias = Callable[[SideContext], Awaitable[FlowFigures]]


@dataclass(frozen=True, slots=True)
class FlowPart:
    """One piece of work, done twice: by a program in plain asyncio, and by a flow."""

    name: str
    bare: Play
    jackline: Play
    demands: tuple[Requirement, ...]
    rows: tuple[tuple[str, str], ...]
    """What is shown: labels and figures."""
    least_speed: float = 1.0
    """Hours pass at least so fast: walls are farther away than anyone watches a drill."""

    in_real_time: bool = False
    """Whether its processes live by the machine's own clock, whatever was asked for."""

    client: str = ""
    """Who plays it, where that is neither program nor flow."""

    def speed(self, asked: float) -> float:
        """How fast it is played when this speed was asked for."""
        return 1.0 if self.in_real_time else max(asked, self.least_speed)


@dataclass(frozen=True, slots=True)
class Drill:
    """A rehearsal under a name; its first part is the one that its figures are known by."""

    name: str
    about: str
    parts: tuple[CrewPart | FlowPart, ...]

    @property
    def crews(self) -> tuple[CrewPart, ...]:
        """The parts that are played by clients."""
        return tuple(part for part in self.parts if isinstance(part, CrewPart))

    @property
    def programs(self) -> tuple[FlowPart, ...]:
        """The parts that are played by programs."""
        return tuple(part for part in self.parts if isinstance(part, FlowPart))


NOBODY_MISLED = Requirement("nobody takes a broken answer for a whole one", "misled", most=0)
ALL_FINISH = (Requirement("every agent finishes", "left_behind", most=0), NOBODY_MISLED)
NO_ERROR_SEEN = Requirement("no agent sees an error", "errors_seen", most=0)
ALL_BOUND = Requirement(
    "every tool's result reaches the model under its own call", "misbound", most=0
)


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


def script_for(agents: Sequence[AgentPlan], *, turns: int, tokens: int) -> ReplyScript:
    """A model that starts this crew, lets each look so many times, and then ends its part."""
    looking = Say(long_answer(tokens).text, (LOOK,))
    rules = [
        Rule(_split(agents), sub_agent=False, turn=0, offers="Agent"),
        Rule(Say("All parts are back."), sub_agent=False),
        *(Rule(looking, sub_agent=True, turn=turn) for turn in range(turns)),
        Rule(_end_part, sub_agent=True),
    ]
    return ReplyScript(tuple(rules))


def script_of_rounds(
    agents: Sequence[AgentPlan], *, turns: int, tokens: int, waves: int = 1
) -> ReplyScript:
    """The same for crews that are asked again and again, with two tools at once in every look.

    Each time that the main thread is asked, it starts the next share of the crew.
    """
    share = -(-len(agents) // waves)
    text = long_answer(tokens).text

    def reply(asked: ClientRequest) -> Reply:
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
    main = ReplyScript((*splits, Rule(Say("All parts are back."))))
    return ReplyScript((Rule(reply),))


def label_of(asked: ClientRequest) -> str:
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


def _look(asked: ClientRequest, label: str, side: str) -> ToolCall:
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


def _end_part(asked: ClientRequest) -> Say:
    return Say(_last_words(asked.prompt.partition(":")[0]))


def _last_words(label: str) -> str:
    return f"{label} is done."
