"""The drill of eight Claude Code sub-agents, three of which meet a quota wall in mid-task.

Rules: (1) both sides are played by the real client; nothing of the user's home, settings or state
reaches client or service, and the credential is a dummy; (2) the service is a process of its own,
started as a user would start it; whatever was started is stopped, also when the drill is
interrupted; (3) an agent's next step is read in its own conversation, so an agent that does not
know of finished steps repeats them and is counted; the parent continues only with ids that it
received; (4) the wall comes before the second steps of the three, whose first steps wait for each
other; (5) what was sent when, and what was answered twice, is read in the provider's ledger, what
ran twice in a file; an agent is finished only when its parent has its final text.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jackline.clients.plugin import plugin_files
from jackline.clock import SystemClock
from jackline.drills.builtin_client import AgentPlan
from jackline.drills.claude_client import PROMPT, InstalledClaude
from jackline.drills.conversation import MAIN, label_of
from jackline.drills.drill import (
    MINUTE,
    QUICK,
    Drill,
    ProgramFigures,
    ProgramPart,
    ProgramSide,
    Requirement,
    final_text,
    start_agents,
)
from jackline.drills.evaluation import sent_into_the_wall
from jackline.drills.processes import Programs
from jackline.errors import InternalError
from jackline.programs import own_command
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.ledger import LedgerEntry, RequestOutcome
from jackline.simulator.limits import WindowClaim
from jackline.simulator.reply_script import UNDERSTOOD, Reply, Say
from jackline.state_dir import StateDir

SUBAGENT_WALL = "subagent-wall"
STEPS = 3
PLANS = tuple(
    AgentPlan(
        f"PART-{number}",
        f"PART-{number}: review this part of the project in {STEPS} steps.",
        final_text(f"PART-{number}"),
        model="opus" if number > 5 else "sonnet",
    )
    for number in range(1, 9)
)
LABELS = tuple(plan.label for plan in PLANS)
BEFORE_WALL = LABELS[-3:]
"""Those that meet the wall."""
STEP_LINES = "looks"
"""The file in which every step that is really made leaves a line."""
OWN_TOOLS = "mcp__plugin_jackline_jackline__"
# Resets are on the minute; the agents must have been cut off, and their parent informed, before it.
_RESETS_IN_AT_LEAST = 20.0
_TIME_LIMIT_S = 240.0
_DEAD = re.compile(r'continue_from_task_id="([^"]+)"')
# Some versions pass a tool's text to the model, some its data.
_SESSION = re.compile(r'(?:agent\(resume=|"session_id":\s*)"([^"]+)"')
_RUN = re.compile(r'\brun(?: |_id":\s*")([0-9a-f]{6,})')
# A wall is reported at once, and ends the agents that meet it: their parent is to resume them.
_CONFIG = """\
[hold]
quota = "0.5s"
[run]
on_quota = "abort"
[agents]
tools = ["Bash"]
"""


class QuotaWall(NamedTuple):
    """When a wall ends: as Unix time, and by the provider's clock."""

    resets_at: float
    until: float


def step_line(label: str, step: int) -> str:
    """What a step prints; its command does not contain this text."""
    return f"{label}/looked-{step}"


@dataclass(slots=True)
class SubagentScript:
    """Plays the model, for the parent and for its sub-agents."""

    begin_wall: Callable[[], QuotaWall]
    with_jackline: bool
    received: list[str] = field(default_factory=list)
    """What the parent received, turn by turn."""
    results: list[tuple[str, bool]] = field(default_factory=list)
    """The results of the parent's calls, and whether they were marked as errors."""
    agents: dict[str, str] = field(default_factory=dict)
    """The ids under which Claude Code runs its own sub-agents, by label."""
    steps: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Whose step, and which, the request with this hash is for."""
    wall: QuotaWall | None = None
    _replies: dict[str, Reply] = field(default_factory=dict)
    """What the parent was answered: the same request gets the same answer."""

    def reply(self, request: ClientRequest) -> Reply:
        """What the model says."""
        if "Bash" not in request.tools:
            return UNDERSTOOD  # a call for the client itself, such as finding a title
        label = label_of(request)
        if label != MAIN:
            return self._step(label, request)
        if request.body_hash not in self._replies:
            self._replies[request.body_hash] = self._parent(request)
        return self._replies[request.body_hash]

    def _step(self, label: str, request: ClientRequest) -> Reply:
        if request.agent:
            self.agents.setdefault(label, request.agent)
        known = "\n".join(_texts(request.body.get("messages")))
        step = next((n for n in range(STEPS) if step_line(label, n) not in known), STEPS)
        self.steps[request.body_hash] = (label, step)
        if step == STEPS:
            return Say(final_text(label))
        if label in BEFORE_WALL and step == 1 and self.wall is None:
            self.wall = self.begin_wall()  # this request is refused, too
        command = f"printf '%s/%s\\n' {label} looked-{step} | tee -a {STEP_LINES}"
        if label in BEFORE_WALL and step == 0:
            # Nobody goes on before all three have got so far.
            missing = f'"$(ls at-* | wc -l)" -lt {len(BEFORE_WALL)}'
            wait = f"while [ {missing} ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done"
            command = f"touch at-{label}; n=0; {wait}; {command}"
        return Say("Looking.", (("Bash", {"command": command, "description": "A step"}),))

    def _parent(self, request: ClientRequest) -> Reply:
        if self.with_jackline and f"{OWN_TOOLS}agent" not in request.tools:
            # Tools that the client does not offer yet are waited for, or looked up.
            if "WaitForMcpServers" in request.tools:
                return Say("Waiting for the tools.", (("WaitForMcpServers", {}),))
            if "ToolSearch" in request.tools:
                names = f"select:{OWN_TOOLS}agent,{OWN_TOOLS}agent_wait"
                return Say("Looking for the tools.", (("ToolSearch", {"query": names}),))
        fresh: list[dict[str, Any]] = []
        for entry in reversed(request.body.get("messages") or ()):
            if entry.get("role") == "assistant":
                break
            fresh.insert(0, entry)
            content = entry.get("content")
            for block in content if isinstance(content, list) else ():
                if block.get("type") == "tool_result":
                    text = "\n".join(_texts(block.get("content")))
                    self.results.append((text, bool(block.get("is_error"))))
        self.received.append("\n".join(_texts(fresh)))
        if self.with_jackline:
            return self._turn_with_jackline(len(self.received))
        return start_agents(PLANS) if len(self.received) == 1 else Say("All parts are back.")

    def _turn_with_jackline(self, turn: int) -> Reply:
        *others, last = PLANS
        agent, agent_wait = f"{OWN_TOOLS}agent", f"{OWN_TOOLS}agent_wait"
        if turn == 1:
            options = {"prompt": last.prompt, "model": last.model, "label": last.label}
            return Say("Starting one.", ((agent, {**options, "background": True}),))
        if turn == 2:
            return start_agents(others)
        if turn == 3:
            ids = _RUN.findall(self.received[1])[:1]
            return Say("Asking for the first.", ((agent_wait, {"ids": ids}),))
        if turn == 4:
            reset = self.wall.resets_at if self.wall is not None else 0.0
            program = f"import time; time.sleep(max(0, {reset + 1:.0f} - time.time()))"
            command = f"'{sys.executable}' -c '{program}'"
            wait = {"command": command, "description": "Wait for the reset", "timeout": 300_000}
            return Say("Waiting for the reset.", (("Bash", wait),))
        if turn == 5:
            dead = list(dict.fromkeys(_DEAD.findall(self.received[2])))
            sessions = _SESSION.findall(self.received[3])[:1]
            calls = [(agent, {"continue_from_task_id": one}) for one in dead]
            calls += [(agent, {"resume": one}) for one in sessions]
            return Say("Going on with them.", tuple(calls))
        return Say("All parts are back.")

    def figures(self, entries: Sequence[LedgerEntry], lines: Sequence[str]) -> SubagentFigures:
        """The figures of a side, from the ledger's entries and the lines of the steps."""
        received = "\n".join(self.received)
        finished = sum(final_text(label) in received for label in LABELS)
        met = any(entry.wall for entry in entries)
        turns = [
            (*self.steps[entry.body_hash], entry.arrived)
            for entry in entries
            if entry.outcome is RequestOutcome.COMPLETED and entry.body_hash in self.steps
        ]
        until = self.wall.until if self.wall is not None and met else math.inf
        spared = {label for label, step, arrived in turns if step == 1 and arrived < until}
        return SubagentFigures(
            agents=len(LABELS),
            finished=finished,
            requests=len(entries),
            not_cut=len(spared & set(BEFORE_WALL)) if met else len(BEFORE_WALL),
            left_behind=len(LABELS) - finished,
            unreported=sum(not self._was_reported(label, received) for label in BEFORE_WALL),
            taken_for_results=sum(
                "limit · resets" in text and not marked and "not finish" not in text.lower()
                for text, marked in self.results
            ),
            turns_repeated=len(turns) - len({(label, step) for label, step, _ in turns}),
            steps_repeated=len(lines) - len(set(lines)),
            steps_missing=len(LABELS) * STEPS - len(set(lines)),
            sent_into_the_wall=sent_into_the_wall(entries, 1.0),
        )

    def _was_reported(self, label: str, received: str) -> bool:
        """Whether the parent received what cut this agent off, until when, and how to resume it."""
        if self.wall is None:
            return False
        minute = f"{datetime.fromtimestamp(self.wall.resets_at, UTC):%H:%M}"
        agent = self.agents.get(label)
        steps = r"(had finished 1 turns|may or may not have run)"
        by_hook = (
            rf"Sub-agent {agent} did not finish: terminated_by quota "
            rf"[^)]*resets {minute}(:\d\d)? UTC\)"
            rf'[^"]*{steps}[^"]*continue_from_task_id="{agent}"'
        )
        by_tool = (
            rf'"{label}" did not complete: quota\..*It resets at \S+T{minute}\S+.*'
            r'finished turns are \w+.*agent\(resume="'
        )
        return any(re.search(pattern, received, re.DOTALL) for pattern in (by_hook, by_tool))


def _texts(value: object) -> Iterator[str]:
    """Every text of users and of results, but none of the model's own."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, dict) and value.get("role") != "assistant":
        for key in ("text", "content"):
            yield from _texts(value.get(key))


@dataclass(frozen=True, slots=True)
class SubagentFigures(ProgramFigures):
    """One side at the wall."""

    not_cut: int
    """Agents that the wall was for, and that did not meet it."""
    left_behind: int
    unreported: int
    """Agents whose parent did not receive what cut them off, until when, the state of their steps,
    and how to resume them."""
    taken_for_results: int
    """Texts of an agent that was cut off, passed to the parent as if they were its result."""
    turns_repeated: int
    """Turns that were answered in full and requested again."""
    steps_repeated: int
    """Steps that ran again."""
    steps_missing: int
    sent_into_the_wall: int
    """Requests that came when the refusal of an earlier one was known."""


@dataclass(slots=True, eq=False, kw_only=True)
class SubagentSide(ProgramSide):
    """One session of the real client."""

    claude: InstalledClaude
    script: SubagentScript = field(init=False)

    def __post_init__(self) -> None:
        self.script = SubagentScript(self._begin_wall, with_jackline=False)

    def reply(self, request: ClientRequest) -> Reply:
        """What the script says."""
        return self.script.reply(request)

    async def bare(self) -> ProgramFigures:
        """The client with the provider as its base URL."""
        self._make_files()
        return await self._session(self.provider.url)

    async def jackline(self) -> ProgramFigures:
        """The client with the plugin and through the service."""
        self.script.with_jackline = True
        self._make_files()
        async with self._service() as url:
            return await self._session(url, "--plugin-dir", str(self.folder / "plugin"))

    async def _session(self, url: str, *options: str) -> SubagentFigures:
        arguments = ("-p", PROMPT, "--model", "claude-sonnet-4-6", *options)
        arguments += ("--allowedTools", f"Bash,Agent,{OWN_TOOLS[:-2]}")
        environment = {**self._environment(), "ANTHROPIC_BASE_URL": url}
        # What it has not done when the time is up is counted as left behind.
        with suppress(TimeoutError):
            async with asyncio.timeout(_TIME_LIMIT_S):
                await self.claude.run(arguments, self.folder / "project", environment)
        lines = self.lines(f"project/{STEP_LINES}")
        return self.script.figures(list(self.provider.ledger), lines)

    @asynccontextmanager
    async def _service(self) -> AsyncIterator[str]:
        programs = Programs(self.folder, self._environment())
        await programs.output("-m", "jackline", "up", "-d")
        try:
            running = await asyncio.to_thread(StateDir(self.folder / "state").running)
            if running is None:
                raise InternalError(
                    "the service of the drill did not start", hint="jackline up shows why"
                )
            yield running.url
        finally:
            await programs.output("-m", "jackline", "down")

    def _environment(self) -> dict[str, str]:
        """For client and service; agents of the service find `claude` by the PATH."""
        return {
            **self.claude.environment(self.folder / "home"),
            "PATH": f"{self._bin}{os.pathsep}{os.environ.get('PATH', '')}",
            "JACKLINE_STATE": str(self.folder / "state"),
            "JACKLINE_CONFIG": str(self.folder / "jackline.toml"),
            "JACKLINE_PORT": "0",
            "JACKLINE_UPSTREAM": self.provider.url,
        }

    @property
    def _bin(self) -> Path:
        program = self.claude.program
        return program.parent if program.stem == "claude" else self.folder / "bin"

    def _make_files(self) -> None:
        for name in ("home", "project", "bin"):
            (self.folder / name).mkdir()
        (self.folder / "jackline.toml").write_text(_CONFIG, encoding="utf-8")
        if self._bin == self.folder / "bin":
            (self._bin / "claude").symlink_to(self.claude.program)
        for name, text in plugin_files(own_command()).items():
            file = self.folder / "plugin" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def _begin_wall(self) -> QuotaWall:
        now = SystemClock().wall()
        minute = -(-(now + _RESETS_IN_AT_LEAST) // MINUTE) * MINUTE
        # A second more: rounded to whole seconds, it must not be shown as the minute before.
        wall = Fault(
            Effect.QUOTA_WALL,
            until=minute + 1.0 - now,
            model="opus",
            claim=WindowClaim.SEVEN_DAY_OPUS,
        )
        until = self.provider.add_fault(wall)
        return QuotaWall(self.provider.unix_time(until), until)


def subagent_wall(claude: InstalledClaude) -> Drill:
    """The drill, played by this client."""
    part = ProgramPart(
        name="subagent_wall",
        side=partial(SubagentSide, claude=claude),
        requirements=(
            Requirement("three sub-agents meet the wall", "not_cut", most=0),
            Requirement("for each its parent receives the facts", "unreported", most=0),
            Requirement("no error passes for a result", "taken_for_results", most=0),
            Requirement("all eight are complete in the end", "left_behind", most=0),
            Requirement("with every step made", "steps_missing", most=0),
            Requirement("no completed turn is repeated", "turns_repeated", most=0),
            Requirement("and no step runs twice", "steps_repeated", most=0),
            Requirement("nothing is sent into the known wall", "sent_into_the_wall", most=0),
        ),
        rows=(
            ("cut off, parent not informed", "unreported"),
            ("errors taken for results", "taken_for_results"),
            ("left behind", "left_behind"),
            ("completed turns repeated", "turns_repeated"),
            ("steps that ran twice", "steps_repeated"),
            ("sent into a known wall", "sent_into_the_wall"),
        ),
        service=QUICK,
        in_real_time=True,
        client=f"Claude Code {claude.version}",
    )
    about = "three of eight sub-agents meet a wall, and their parent resumes them"
    return Drill(SUBAGENT_WALL, about, (part,))
