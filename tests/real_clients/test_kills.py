"""`kill -9` of Claude Code, of the service, and of both: all goes on, and nothing runs twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from jackline import event_loop
from jackline.assembly import StateDir
from jackline.clients.plugin import plugin_files
from jackline.drills.power_cut import PaidAnswer, paid_again
from jackline.flows.records import CallState, RunState
from jackline.flows.store import open_run_store, run_store_url
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.ledger import RequestOutcome
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule, Say
from jackline.simulator.server import SimulatorServer
from jackline.simulator.time_model import ServiceSettings, seeded_random
from tests import warm_processes
from tests.agents.process.world import lines_of, until
from tests.own_home import key_folder
from tests.ports import free_port
from tests.real_clients.clients import claude_binary

pytestmark = [
    pytest.mark.real_client,
    pytest.mark.skipif(os.name == "nt", reason="kill -9 and the shell's words are POSIX"),
]
TOOL = "mcp__plugin_jackline_jackline__"
STEPS = 4
SEED = int(os.environ.get("JACKLINE_KILL_SEED", "7"))
MOMENTS = int(os.environ.get("JACKLINE_KILL_MOMENTS", "4"))
"""For each sort of victims; they are spread from the first call to the last answer."""
PATIENCE = 300.0  # only a test that fails ever waits so long
MOST_TRIES = 20
EXIT_CARRIED_ELSEWHERE = 2
LABEL = re.compile(r"(OURS|PARENT|NEXT)-\d+")
CONFIG = """\
[agents]
runner = "messages"
model = "claude-sonnet-4-6"
tools = ["shell"]
"""
SERVICE = ServiceSettings(first_byte=0.05, first_byte_spread=0.0, tokens_per_second=400.0)


def made(label: str, step: int) -> str:
    """What a step prints, and leaves in the file; its command does not hold these words."""
    return f"{label}/step-{step}"


def told_since_spoken(asked: ClientRequest) -> str:
    """What the model was told since it spoke last, results of tools included."""
    fresh: list[Any] = []
    for entry in reversed(asked.body["messages"]):
        if entry["role"] == "assistant":
            break
        fresh.insert(0, entry["content"])
    return json.dumps(fresh).replace('\\"', '"')


def run_in(told: str, label: str) -> str:
    """The run whose agent bears this label, in what `agent_status` or `agent` gave."""
    for part in told.split('"run_id"')[1:]:
        if f'"label": "{label}"' in part or f'"label":"{label}"' in part:
            found = re.match(r': ?"([0-9a-f]+)"', part)
            return "" if found is None else found[1]
    return ""


@dataclass
class KillWorld:
    """A machine with a service on a port of its own, and Claude Code with the plugin behind it."""

    folder: Path
    program: Path
    server: SimulatorServer
    port: int
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Whose request, and the hash of its body, in the order in which the model heard them."""
    told: dict[str, list[str]] = field(default_factory=dict)
    """What each session was told, turn by turn."""
    sessions: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def state(self) -> StateDir:
        return StateDir(self.folder / "state")

    @property
    def steps(self) -> list[str]:
        return list(lines_of(self.folder / "project" / "steps"))

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            **key_folder(),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "ANTHROPIC_API_KEY": "sk-ant-dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "JACKLINE_STATE": str(self.folder / "state"),
            "JACKLINE_CONFIG": str(self.folder / "jackline.toml"),
            "JACKLINE_PORT": str(self.port),
            "JACKLINE_UPSTREAM": self.server.url,
        }

    # --- what the model says --------------------------------------------------------------------

    def reply(self, asked: ClientRequest) -> Reply:
        found = LABEL.search(asked.prompt)
        if found is None or not asked.tools:
            return Say("-")
        label = found[0]
        self.asked.append((label, asked.body_hash))
        return self._ours(label, asked) if "OURS" in label else self._session(label, asked)

    def _ours(self, label: str, asked: ClientRequest) -> Reply:
        if "may or may not have run" in told_since_spoken(asked):
            return Say("I look.", (("shell", {"command": "cat steps"}),))
        results = [m["content"] for m in asked.body["messages"] if m["role"] == "user"]
        known = json.dumps(results)
        step = next((n for n in range(STEPS) if made(label, n) not in known), STEPS)
        if step == STEPS:
            return Say(f"{label} is all done.")
        command = f"printf '%s/%s\\n' {label} step-{step} | tee -a steps"
        return Say("I go on.", (("shell", {"command": command}),))

    def _session(self, label: str, asked: ClientRequest) -> Reply:
        if f"{TOOL}agent" not in asked.tools and "WaitForMcpServers" in asked.tools:
            return Say("I wait.", (("WaitForMcpServers", {}),))
        told = self.told.setdefault(label, [])
        told.append(told_since_spoken(asked))
        ours = label.replace("PARENT", "OURS").replace("NEXT", "OURS")
        if f"{ours} is all done." in told[-1] or len(told) > MOST_TRIES:
            return Say(f"{label}-HEARD" if len(told) <= MOST_TRIES else "I give up.")
        if label.startswith("PARENT") and len(told) == 1:
            return self._start(ours)
        known = run_in(told[-1], ours)
        if known:
            return Say("I wait.", ((f"{TOOL}agent_wait", {"ids": [known]}),))
        if told[-1].count('"runs":') and "went away" not in told[-1]:
            # The list knows of none: the call was cut off before it had begun anything.
            return self._start(ours)
        return Say("I look.", ((f"{TOOL}agent_status", {}),))

    @staticmethod
    def _start(ours: str) -> Reply:
        given = {"prompt": f"{ours}: make all steps.", "label": ours, "tools": ["shell"]}
        return Say("I ask.", ((f"{TOOL}agent", given),))

    # --- processes ------------------------------------------------------------------------------

    async def jackline(self, *words: str, fine: tuple[int, ...] = (0,)) -> str:
        done = await asyncio.to_thread(
            warm_processes.run,
            [sys.executable, "-m", "jackline", *words],
            cwd=self.folder / "project",
            env=self.environment,
            input="",
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode in fine, (words, done.stdout)
        return str(done.stdout)

    async def session(self, prompt: str, *options: str) -> asyncio.subprocess.Process:
        session = await asyncio.create_subprocess_exec(
            *(str(self.program), "-p", prompt, "--model", "claude-sonnet-4-6", *options),
            *("--plugin-dir", str(self.folder / "plugin"), "--allowedTools", TOOL[:-2]),
            cwd=self.folder / "project",
            env={**self.environment, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.port}"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        self.sessions.append(session)
        return session

    async def answer_of(self, session: asyncio.subprocess.Process) -> str:
        async with asyncio.timeout(PATIENCE):
            printed, _ = await session.communicate()
        return printed.decode().strip()

    def kill_service(self) -> None:
        running = self.state.running()
        assert running is not None
        os.kill(running.pid, signal.SIGKILL)

    # --- what is kept ---------------------------------------------------------------------------

    async def runs_of(self, label: str) -> list[tuple[str, RunState, list[CallState]]]:
        """All runs that were ever begun for this agent: there must never be two."""
        engine = open_run_store(run_store_url(self.state.folder))
        try:
            return [
                (run.run_id, run.state, [call.state for call in await engine.calls(run.run_id)])
                for run in await engine.runs()
                if f'"label": "{label}"'.encode() in run.arguments
            ]
        finally:
            await engine.close()

    async def finished(self, label: str) -> None:
        """Its run has come to its good end."""
        good = [(RunState.FINISHED, [CallState.DONE])]
        async with asyncio.timeout(PATIENCE):
            while [run[1:] for run in await self.runs_of(label)] != good:  # noqa: ASYNC110 -- another process's store
                await asyncio.sleep(0.2)

    def answers(self) -> list[PaidAnswer]:
        whose = {body: label for label, body in self.asked}
        return [
            PaidAnswer(place, whose.get(entry.body_hash, ""), entry.body_hash)
            for place, entry in enumerate(self.server.playing.provider.ledger)
            if entry.outcome is RequestOutcome.COMPLETED
        ]


@asynccontextmanager
async def kill_world(folder: Path) -> AsyncIterator[KillWorld]:
    for name in ("home", "project"):
        (folder / name).mkdir()
    (folder / "jackline.toml").write_text(CONFIG)
    for path, text in plugin_files([sys.executable, "-m", "jackline"]).items():
        file = folder / "plugin" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    port = free_port()

    def hear(asked: ClientRequest) -> Reply:
        return world.reply(asked)

    settings = ProviderSettings(service=SERVICE)
    async with SimulatorServer(settings, ReplyScript((Rule(hear),)), port=free_port()) as server:
        world = KillWorld(folder, claude_binary(), server, port)
        await world.jackline("up", "-d")
        try:
            yield world
        finally:
            for session in world.sessions:
                if session.returncode is None:
                    session.kill()
                    await session.communicate()
            await world.jackline("down")


@dataclass(frozen=True)
class Moment:
    """When to kill: after so many requests of the agent, or of its parent's first, and a while."""

    requests: int
    delay: float


def drawn(draw: random.Random) -> list[Moment]:
    """Moments from the very call that starts the agent to its last answer, in any order."""
    share = (STEPS + 1) / max(1, MOMENTS - 1)
    moments = [
        Moment(min(STEPS + 1, round(share * number)), draw.random() * 0.4)
        for number in range(MOMENTS)
    ]
    draw.shuffle(moments)
    return moments


async def cut(
    world: KillWorld, number: int, victims: str, moment: Moment
) -> tuple[int, str, asyncio.subprocess.Process]:
    """Start a session whose agent is at work, and kill at the moment.

    Gives how many requests had come by then, and the session with its id.
    """
    ours, parents = f"OURS-{number}", f"PARENT-{number}"
    session_id = str(uuid4())
    parent = await world.session(f"{parents}: have the work done.", "--session-id", session_id)
    await until(lambda: bool(world.told.get(parents)))
    await until(lambda: sum(label == ours for label, _ in world.asked) >= moment.requests)
    await asyncio.sleep(moment.delay)
    if victims in ("service", "both"):
        world.kill_service()
    if victims in ("client", "both") and parent.returncode is None:
        parent.kill()
        await parent.communicate()
    return len(world.server.playing.provider.ledger), session_id, parent


@pytest.mark.parametrize("victims", ["client", "service", "both"])
def test_after_a_kill_everything_goes_on_and_nothing_finished_runs_twice(
    victims: str, tmp_path: Path
) -> None:
    draw = seeded_random(SEED + len(victims))

    async def main() -> None:
        async with kill_world(tmp_path) as world:
            cuts = []
            for number, moment in enumerate(drawn(draw), 1):
                place, session_id, parent = await cut(world, number, victims, moment)
                cuts.append(place)
                ours = f"OURS-{number}"
                kept = [run[0] for run in await world.runs_of(ours)]
                if kept:
                    assert kept[0] in await world.jackline("ls", "--json")
                if victims == "both" and kept and number % 2:
                    # It starts the service, which may take the run up first: then it says so.
                    await world.jackline("resume", kept[0], fine=(0, EXIT_CARRIED_ELSEWHERE))
                elif victims != "client":
                    await world.jackline("up", "-d")
                if victims != "service":
                    # The parent itself is gone on with, by the client's own means.
                    resumed = ("--resume", session_id)
                    parent = await world.session(f"NEXT-{number}: what became of it?", *resumed)
                received = await world.answer_of(parent)
                assert received == f"PARENT-{number}-HEARD", (moment, world.told)
                await world.finished(ours)
            numbers = range(1, MOMENTS + 1)
            right = [made(f"OURS-{number}", step) for number in numbers for step in range(STEPS)]
            assert sorted(world.steps) == sorted(right)
            beyond, in_hand = paid_again(world.answers(), cuts)
            assert beyond == 0
            # A client that dies takes nothing from its agents, not even the answer in hand.
            assert in_hand <= (0 if victims == "client" else len(cuts))

    event_loop.run(main())
