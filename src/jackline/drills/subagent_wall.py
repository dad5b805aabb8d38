"""The drill of eight Claude Code sub-agents, three of which meet a quota wall in mid-task.

Rules: (1) both sides are played by the real client; nothing of the user's home, settings or state
reaches client or service, and the credential is a dummy; (2) the service is a process of its own,
started as a user would start it; whatever was started is stopped, also when the drill is
interrupted; (3) an agent's next step is read in its own conversation, so an agent that does not
know of finished steps repeats them and is counted; the parent continues only with ids that it
received; (4) the wall comes before the second steps of the three, whose first steps wait for each
other; (5) what was sent when, and what was answered twice, is read in the provider's ledger, what
ran twice in a file; an agent is finished only when its parent has its last words.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from jackline.clients.plugin import plugin_files
from jackline.clock import SystemClock
from jackline.drills.claude_client import InstalledClaude
from jackline.drills.drill import (
    MAIN,
    MINUTE,
    Drill,
    FlowFigures,
    FlowPart,
    Requirement,
    SideContext,
    label_of,
)
from jackline.drills.environment import DrillProvider, provider_for
from jackline.drills.evaluation import IN_FLIGHT_S
from jackline.drills.processes import Programs, stop
from jackline.errors import InternalError
from jackline.programs import own_command
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.ledger import LedgerEntry, RequestOutcome
from jackline.simulator.limits import WindowClaim
from jackline.simulator.reply_script import UNDERSTOOD, Reply, Say, ToolCall
from jackline.simulator.time_model import ServiceSettings
from jackline.state_dir import StateDir

LABELS = tuple(f"PART-{number}" for number in range(1, 9))
STRUCK = LABELS[-3:]
BY_SESSION = LABELS[-1]
"""The one that, with Jackline, the parent starts as an agent with a session of its own."""
STEPS = 3
LOOKS = "looks"
"""The file in which every step that is really made leaves a line."""
OURS = "mcp__plugin_jackline_jackline__"
SAFE, STRUCK_MODEL = "sonnet", "opus"
_DEAD = re.compile(r'continue_from_task_id="([^"]+)"')
# Some versions hand a tool's words to the model, some its data.
_SESSION = re.compile(r'(?:agent\(resume=|"session_id":\s*)"([^"]+)"')
_RUN = re.compile(r'\brun(?: |_id":\s*")([0-9a-f]{6,})')


@dataclass(frozen=True, slots=True)
class QuotaWall:
    """When a wall falls."""

    resets_at: float
    """As Unix time."""
    until: float
    """By the provider's clock."""


@dataclass(slots=True)
class SubagentScript:
    """Plays the model; `heard` is what the parent was told, turn by turn."""

    strike: Callable[[], QuotaWall]
    """Puts up the wall."""
    with_jackline: bool
    heard: list[str] = field(default_factory=list)
    results: list[tuple[str, bool]] = field(default_factory=list)
    """The texts that the parent's calls gave back, and whether they were marked as errors."""
    agents: dict[str, str] = field(default_factory=dict)
    """The ids under which Claude Code runs its own sub-agents, by label."""
    steps: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Whose step, and which, the request with this hash asked for."""
    wall: QuotaWall | None = None
    _said: dict[str, Reply] = field(default_factory=dict)
    """What the parent was answered: who asks the same again is told the same."""

    def reply(self, asked: ClientRequest) -> Reply:
        """What the model says."""
        if "Bash" not in asked.tools:
            return UNDERSTOOD  # an errand of the client's own, such as finding a title
        label = label_of(asked)
        if label != MAIN:
            return self._part(label, asked)
        if asked.body_hash not in self._said:
            self._said[asked.body_hash] = self._parent(asked)
        return self._said[asked.body_hash]

    def _part(self, label: str, asked: ClientRequest) -> Reply:
        if asked.agent:
            self.agents.setdefault(label, asked.agent)
        known = "\n".join(_told(asked.body.get("messages")))
        step = next((n for n in range(STEPS) if made(label, n) not in known), STEPS)
        self.steps[asked.body_hash] = (label, step)
        if step == STEPS:
            return Say(last_words(label))
        if label in STRUCK and step == 1 and self.wall is None:
            self.wall = self.strike()  # also for whoever asks for this
        first = label in STRUCK and step == 0
        command = (_together(label) if first else "") + _make(label, step)
        return Say("Looking.", (("Bash", {"command": command, "description": "A step"}),))

    def _parent(self, asked: ClientRequest) -> Reply:
        if self.with_jackline and f"{OURS}agent" not in asked.tools:
            found = _finding_tools(asked)
            if found is not None:
                return found
        fresh = _since_spoken(asked)
        self.heard.append("\n".join(_told(fresh)))
        self.results += _results(fresh)
        if not self.with_jackline:
            return _split(LABELS) if len(self.heard) == 1 else Say("All parts are back.")
        return self._with_jackline(len(self.heard))

    def _with_jackline(self, turn: int) -> Reply:
        if turn == 1:
            given = {**_order(BY_SESSION), "label": BY_SESSION, "background": True}
            return Say("Starting one.", ((f"{OURS}agent", given),))
        if turn == 2:
            return _split([label for label in LABELS if label != BY_SESSION])
        if turn == 3:
            ids = _RUN.findall(self.heard[1])[:1]
            return Say("Asking for the first.", ((f"{OURS}agent_wait", {"ids": ids}),))
        if turn == 4:
            reset = self.wall.resets_at if self.wall is not None else 0.0
            return Say("Waiting for the reset.", (_wait_until(reset),))
        if turn == 5:
            dead = list(dict.fromkeys(_DEAD.findall(self.heard[2])))
            sessions = _SESSION.findall(self.heard[3])[:1]
            calls = [(f"{OURS}agent", {"continue_from_task_id": each}) for each in dead]
            calls += [(f"{OURS}agent", {"resume": each}) for each in sessions]
            return Say("Going on with them.", tuple(calls))
        return Say("All parts are back.")


def last_words(label: str) -> str:
    """What an agent says when it has made all of its steps."""
    return f"{label} is done."


def made(label: str, step: int) -> str:
    """What a step prints; its command does not hold these words."""
    return f"{label}/looked-{step}"


def prompt(label: str) -> str:
    """What an agent is asked."""
    return f"{label}: review this part of the project in {STEPS} steps."


# --- calls -----------------------------------------------------------------------------------


def _order(label: str) -> dict[str, Any]:
    model = STRUCK_MODEL if label in STRUCK else SAFE
    return {"prompt": prompt(label), "model": model}


def _split(labels: Sequence[str]) -> Say:
    usual = {"subagent_type": "general-purpose", "run_in_background": False}
    calls = [("Agent", {"description": f"Review {one}", **_order(one), **usual}) for one in labels]
    return Say("Splitting the work.", tuple(calls))


def _make(label: str, step: int) -> str:
    return f"printf '%s/%s\\n' {label} looked-{step} | tee -a {LOOKS}"


def _together(label: str) -> str:
    """Let nobody go on before all three that the wall is for have got so far."""
    count = f'"$(ls at-* | wc -l)" -lt {len(STRUCK)}'
    waiting = f"while [ {count} ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done"
    return f"touch at-{label}; n=0; {waiting}; "


def _wait_until(moment: float) -> ToolCall:
    program = f"import time; time.sleep(max(0, {moment + 1:.0f} - time.time()))"
    words = {"command": f"'{sys.executable}' -c '{program}'", "description": "Wait for the reset"}
    return ("Bash", {**words, "timeout": 300_000})


def _finding_tools(asked: ClientRequest) -> Say | None:
    """How the model gets at tools that the client has not offered yet."""
    if "WaitForMcpServers" in asked.tools:
        return Say("Waiting for the tools.", (("WaitForMcpServers", {}),))
    if "ToolSearch" in asked.tools:
        names = f"select:{OURS}agent,{OURS}agent_wait"
        return Say("Looking for the tools.", (("ToolSearch", {"query": names}),))
    return None


# --- what was told ---------------------------------------------------------------------------


def _since_spoken(asked: ClientRequest) -> list[dict[str, Any]]:
    fresh: list[dict[str, Any]] = []
    for entry in reversed(asked.body.get("messages") or ()):
        if entry.get("role") == "assistant":
            break
        fresh.insert(0, entry)
    return fresh


def _told(value: object) -> Iterator[str]:
    """Every text of users and of results, but none of what the model itself has said."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _told(each)
    elif isinstance(value, dict) and value.get("role") != "assistant":
        for key in ("text", "content"):
            yield from _told(value.get(key))


def _results(entries: Sequence[dict[str, Any]]) -> Iterator[tuple[str, bool]]:
    for entry in entries:
        content = entry.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_result":
                yield "\n".join(_told(block.get("content"))), bool(block.get("is_error"))


PROMPT = "TASK: have every part of this project reviewed, all at the same time."
PATIENCE_S = 240.0
_OWN = ("-m", "jackline")
# On Windows a program does not start without these.
_NEEDED_BY_SYSTEM = ("SYSTEMROOT", "TEMP", "TMP", "COMSPEC", "PATHEXT")
# A wall is told at once, and ends the agents that meet it: their parent is to go on with them.
_CONFIG = """\
[hold]
quota = "0.5s"
[run]
on_quota = "abort"
[agents]
tools = ["Bash"]
"""


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """Where a client works, and by what."""

    folder: Path
    claude: InstalledClaude
    upstream: str

    @property
    def project(self) -> Path:
        """The folder that the client works in."""
        return self.folder / "project"

    @property
    def environment(self) -> Mapping[str, str]:
        """For client and service alike."""
        path = f"{self._bin}{os.pathsep}{os.environ.get('PATH', '')}"
        return {
            **{name: os.environ[name] for name in _NEEDED_BY_SYSTEM if name in os.environ},
            "PATH": path,
            "HOME": str(self.folder / "home"),
            "USERPROFILE": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-drill",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "JACKLINE_STATE": str(self.folder / "state"),
            "JACKLINE_CONFIG": str(self.folder / "jackline.toml"),
            "JACKLINE_PORT": "0",
            "JACKLINE_UPSTREAM": self.upstream,
        }

    @property
    def _bin(self) -> Path:
        """Where `claude` is the client: agents of the service find theirs by the PATH."""
        program = self.claude.program
        return program.parent if program.stem == "claude" else self.folder / "bin"

    def lay_out(self) -> None:
        """Make the folders and files."""
        for name in ("home", "project", "bin"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "jackline.toml").write_text(_CONFIG, encoding="utf-8")
        if self._bin == self.folder / "bin":
            (self._bin / "claude").symlink_to(self.claude.program)
        for name, text in plugin_files(own_command()).items():
            file = self.folder / "plugin" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")


async def bare_session(place: SessionFolder) -> None:
    """Run the client to its end, straight against the provider."""
    await asyncio.to_thread(place.lay_out)
    await _run(place, place.upstream)


async def session_with_jackline(place: SessionFolder) -> None:
    """Run the client to its end, with the plugin and through the service."""
    await asyncio.to_thread(place.lay_out)
    async with _service(place) as url:
        await _run(place, url, "--plugin-dir", str(place.folder / "plugin"))


@asynccontextmanager
async def _service(place: SessionFolder) -> AsyncIterator[str]:
    programs = Programs(place.folder, place.environment)
    await programs.output(*_OWN, "up", "-d")
    try:
        running = await asyncio.to_thread(StateDir(place.folder / "state").running)
        if running is None:
            raise InternalError(
                "the service of the drill did not start", next="jackline up shows why"
            )
        yield running.url
    finally:
        await programs.output(*_OWN, "down")


async def _run(place: SessionFolder, url: str, *options: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(str(place.claude.program), "-p", PROMPT, "--model", "claude-sonnet-4-6", *options),
        *("--allowedTools", f"Bash,Agent,{OURS[:-2]}"),
        cwd=place.project,
        env={**place.environment, "ANTHROPIC_BASE_URL": url},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()
    except TimeoutError:
        return  # what it has not done by then is left behind
    finally:
        await stop(process)


SUBAGENT_WALL = "subagent-wall"
# Resets are on the minute; the agents must have been cut off, and their parent told, before it.
RESETS_IN_AT_LEAST = 20.0
_QUICK = ServiceSettings(first_byte=0.05, first_byte_spread=0.0, tokens_per_second=400.0)


@dataclass(frozen=True, slots=True)
class SubagentFigures(FlowFigures):
    """One side at the wall."""

    not_cut: int
    """Agents that the wall was for, and that did not meet it."""
    left_behind: int
    untold: int
    """Agents whose parent was not told what cut them off, until when, what had become of their
    steps, and how to go on with them."""
    taken_for_results: int
    """Words of an agent that was cut off, handed to the parent as if they were its result."""
    turns_repeated: int
    """Turns that were answered in full and asked for again."""
    steps_repeated: int
    """Steps that ran again."""
    steps_missing: int
    sent_into_the_wall: int
    """Requests that came when the refusal of an earlier one was known."""


def subagent_wall(claude: InstalledClaude) -> Drill:
    """The drill, played by this client."""
    part = FlowPart(
        name="subagent_wall",
        bare=partial(_play, claude, bare_session, with_jackline=False),
        jackline=partial(_play, claude, session_with_jackline, with_jackline=True),
        demands=(
            Requirement("three sub-agents meet the wall", "not_cut", most=0),
            Requirement("for each its parent is told the truth", "untold", most=0),
            Requirement("no error passes for a result", "taken_for_results", most=0),
            Requirement("all eight are complete in the end", "left_behind", most=0),
            Requirement("with every step made", "steps_missing", most=0),
            Requirement("no completed turn is repeated", "turns_repeated", most=0),
            Requirement("and no step runs twice", "steps_repeated", most=0),
            Requirement("nothing is sent into the known wall", "sent_into_the_wall", most=0),
        ),
        rows=(
            ("cut off, parent not told so", "untold"),
            ("errors taken for results", "taken_for_results"),
            ("left behind", "left_behind"),
            ("completed turns repeated", "turns_repeated"),
            ("steps that ran twice", "steps_repeated"),
            ("sent into a known wall", "sent_into_the_wall"),
        ),
        in_real_time=True,
        client=f"Claude Code {claude.version}",
    )
    about = "three of eight sub-agents meet a wall, and their parent goes on with them"
    return Drill(SUBAGENT_WALL, about, (part,))


async def _play(
    claude: InstalledClaude,
    session: Callable[[SessionFolder], Awaitable[None]],
    scene: SideContext,
    *,
    with_jackline: bool,
) -> FlowFigures:
    def hear(asked: ClientRequest) -> Reply:
        return script.reply(asked)

    async with provider_for(hear, _QUICK) as provider:
        script = SubagentScript(partial(_put_up_wall, provider), with_jackline=with_jackline)
        place = SessionFolder(scene.folder / "side", claude, provider.url)
        await session(place)
        lines = await asyncio.to_thread(_lines, place.project / LOOKS)
        return figures_of(script, list(provider.ledger), lines)


def _put_up_wall(provider: DrillProvider) -> QuotaWall:
    now = SystemClock().wall()
    minute = -(-(now + RESETS_IN_AT_LEAST) // MINUTE) * MINUTE
    # A second more: rounded to whole seconds, it must not be told as the minute before.
    wall = Fault(
        Effect.QUOTA_WALL,
        until=minute + 1.0 - now,
        model=STRUCK_MODEL,
        claim=WindowClaim.SEVEN_DAY_OPUS,
    )
    handle = provider.playing.add_fault(wall)
    there = provider.playing.provider
    until = next(one.fault.until for one in there.faults if one.handle == handle)
    return QuotaWall(there.settings.calendar.epoch_seconds(until), until)


def _lines(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines() if file.exists() else []


# --- what came of it -------------------------------------------------------------------------


def figures_of(
    script: SubagentScript, entries: Sequence[LedgerEntry], lines: Sequence[str]
) -> SubagentFigures:
    """What a side came to: the ledger's entries, and the lines that steps have left."""
    heard = "\n".join(script.heard)
    finished = sum(last_words(label) in heard for label in LABELS)
    met = [entry for entry in entries if entry.wall]
    known = min((e.ended for e in met if e.ended is not None), default=math.inf)
    turns = [
        (*script.steps[entry.body_hash], entry.arrived)
        for entry in entries
        if entry.outcome is RequestOutcome.COMPLETED and entry.body_hash in script.steps
    ]
    until = script.wall.until if script.wall is not None and met else math.inf
    spared = {label for label, step, arrived in turns if step == 1 and arrived < until}
    return SubagentFigures(
        agents=len(LABELS),
        finished=finished,
        requests=len(entries),
        not_cut=len(spared & set(STRUCK)) if met else len(STRUCK),
        left_behind=len(LABELS) - finished,
        untold=sum(not _was_told(label, script) for label in STRUCK),
        taken_for_results=sum(_passes_for_result(words, bad) for words, bad in script.results),
        turns_repeated=len(turns) - len({(label, step) for label, step, _ in turns}),
        steps_repeated=len(lines) - len(set(lines)),
        steps_missing=len(LABELS) * STEPS - len(set(lines)),
        sent_into_the_wall=sum(entry.arrived > known + IN_FLIGHT_S for entry in met),
    )


def _was_told(label: str, script: SubagentScript) -> bool:
    """Whether the parent knows what cut this agent off, until when, and how to go on with it."""
    if script.wall is None:
        return False
    minute = f"{datetime.fromtimestamp(script.wall.resets_at, UTC):%H:%M}"
    agent = script.agents.get(label)
    steps = r"(had finished 1 turns|may or may not have run)"
    of_claude = (
        rf"Sub-agent {agent} did not finish: terminated_by quota [^)]*resets {minute}(:\d\d)? UTC\)"
        rf'[^"]*{steps}[^"]*continue_from_task_id="{agent}"'
    )
    of_ours = (
        rf'"{label}" did not complete: quota\..*It resets at \S+T{minute}\S+.*'
        r'finished turns are kept.*agent\(resume="'
    )
    heard = "\n".join(script.heard)
    return any(re.search(words, heard, re.DOTALL) for words in (of_claude, of_ours))


def _passes_for_result(words: str, marked_as_error: bool) -> bool:
    tells = "not finish" in words.lower()
    return "limit · resets" in words and not marked_as_error and not tells
