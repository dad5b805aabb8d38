"""Photograph the page in seven scenes, three widths and two themes, and compose one sheet of them.

    python docs/make_contact_sheet.py               # about ten minutes; writes docs/dashboard.png
    python docs/make_contact_sheet.py --scene wall  # one scene, without a sheet
    python docs/make_contact_sheet.py --shots DIR   # also saves the single pictures there

Each scene is played for real: simulated providers, clients and flows, and a gateway in a process
of its own with a state folder of its own.

Rules: (1) nothing on a picture is drawn that did not happen in its scene; (2) Chromium composes the
sheet from a page of pictures, so that no image library is needed; (3) whatever was started ends.
Not here: whether what is shown is true (tests/dashboard/).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser

from jackline.simulator.client_request import ClientRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.limits import BucketSettings, Counts, QuotaWindowSettings, WindowClaim
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.reply_script import Reply, ReplyScript, Rule, Say, long_answer
from jackline.simulator.time_model import ServiceSettings
from jackline.state_dir import StateDir
from jackline.testing.simulated_provider import SimulatedProvider

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.dashboard.browser import Scheme, chromium, opened

FILE = Path(__file__).parent / "dashboard.png"
WIDTHS = {420: 1500, 1180: 1180, 1600: 1180}
SCHEMES: tuple[Scheme, ...] = ("dark", "light")
OPUS, SONNET, HAIKU = "claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5"
SERVICE = ServiceSettings(median=6.0, shortest=2.0, longest=20.0, first_byte=0.8)
# The widths on the sheet: all columns fit one screen, and the file stays below 1.5 MB.
_SHOWN = {420: 124, 1180: 260, 1600: 330}
_FLOW = '''
from jackline import Budget, agent, flow, parallel, phase


def look(name: str) -> str:
    """Look into one file."""
    return "nothing unusual " * 40


async def crew(names: list[str], model: str) -> None:
    await parallel(
        agent(f"Work on {name}.", label=name, model=model, tools=[look]) for name in names
    )


@flow(budget=Budget(dollars=4.0))
async def migrate_monorepo(names: list[str], model: str) -> str:
    async with phase("port"):
        await crew(names, model)
    async with phase("check"):
        await crew(["tests-a", "tests-b"], model)
    return "ported"


@flow(budget=Budget(dollars=1.5))
async def nightly_triage(names: list[str], model: str) -> str:
    async with phase("read"):
        await crew(names, model)
    return "read"
'''
PORTS = ["plan", "port-auth-and-session-tokens", "port-billing", "port-search", "port-feed"]
ISSUES = [f"issue-{number}" for number in (4112, 4117, 4120, 4121, 4125, 4126)]


@dataclass
class Stage:
    """One gateway in a process of its own, its providers, and whoever calls it."""

    folder: Path
    providers: Sequence[SimulatedProvider]
    url: str = ""
    token: str = ""
    enough: threading.Event = field(default_factory=threading.Event)
    flows: list[subprocess.Popen[bytes]] = field(default_factory=list)
    crowds: list[threading.Thread] = field(default_factory=list)

    @property
    def state(self) -> StateDir:
        """Where the gateway leaves its files."""
        return StateDir(self.folder / "state")

    @property
    def environ(self) -> Mapping[str, str]:
        """For every process of this stage; nothing of the user's own reaches it."""
        own = {name: value for name, value in os.environ.items() if "JACKLINE_" not in name}
        home = str(self.folder / "home")
        return {
            **own,
            "HOME": home,
            "XDG_CONFIG_HOME": home,
            "TZ": "UTC",
            "JACKLINE_PORT": "0",
            "JACKLINE_STATE": str(self.state.folder),
            "ANTHROPIC_API_KEY": "simulated",
        }

    def jackline(self, *words: str) -> subprocess.Popen[bytes]:
        """Start one of our commands."""
        log = (self.folder / "log.txt").open("ab")
        command = [sys.executable, "-m", "jackline", *words]
        return subprocess.Popen(  # noqa: S603 -- our own program
            command, env=self.environ, cwd=self.folder, stdout=log, stderr=log
        )

    def up(self) -> None:
        """Start the gateway, the first provider first in its order."""
        config = self.folder / "jackline.toml"
        names = ("anthropic", "backup")
        lines = [
            f'[[upstream]]\nname = "{name}"\nurl = "{provider.url}"\nkind = "anthropic"\n'
            + ('credential = "env:ANTHROPIC_API_KEY"\n' if name == "backup" else "")
            for name, provider in zip(names, self.providers, strict=False)
        ]
        config.write_text("\n".join(lines), encoding="utf-8")
        if self.jackline("up", "-d", "--config", str(config)).wait():
            raise RuntimeError((self.folder / "log.txt").read_text())
        running = self.state.running()
        if running is None:
            raise RuntimeError("the gateway left no address")
        self.url, self.token = running.url, running.token

    def down(self) -> None:
        """End everything."""
        self.enough.set()
        for flow in self.flows:
            flow.terminate()
        for crowd in self.crowds:
            crowd.join()
        for flow in self.flows:
            flow.wait()
        self.jackline("down").wait()

    def flow(self, name: str, names: Sequence[str], model: str) -> None:
        """Begin a run of one of the flows."""
        file = self.folder / "crews.py"
        file.write_text(_FLOW, encoding="utf-8")
        arguments = json.dumps({"names": list(names), "model": model})
        self.flows.append(self.jackline("run", f"{file}:{name}", arguments, "-q"))

    def crowd(self, session: str, agents: Sequence[str], model: str, calls: int = 9999) -> None:
        """Agents of one session that call again and again."""
        work = self._crowd(session, agents, model, calls)
        crowd = threading.Thread(target=lambda: asyncio.run(work))
        crowd.start()
        self.crowds.append(crowd)

    async def _crowd(self, session: str, agents: Sequence[str], model: str, calls: int) -> None:
        place = urlsplit(self.url)
        draw = random.Random(session)  # noqa: S311 -- repeatable, not secret

        async def one(agent: str, delay: float) -> None:
            await asyncio.sleep(delay)
            for turn in range(calls):
                if self.enough.is_set():
                    return
                body = _body(model, f"{session} {agent} {turn}")
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    reader, writer = await asyncio.open_connection(place.hostname, place.port)
                    writer.write(_request(body, session, agent))
                    while await _unless(self.enough, reader.read(65536)):
                        pass
                    writer.close()
                await asyncio.sleep(draw.uniform(0.2, 3.0))

        await asyncio.gather(*(one(agent, draw.uniform(0, 6)) for agent in agents))


async def _unless(enough: threading.Event, reading: Coroutine[Any, Any, bytes]) -> bytes:
    """What was read; nothing once it is enough."""
    task = asyncio.ensure_future(reading)
    while not task.done():
        if enough.is_set():
            task.cancel()
            return b""
        await asyncio.wait((task,), timeout=0.5)
    return task.result()


def _body(model: str, words: str) -> bytes:
    filler = "The repository and its history. " * 60
    content = [{"role": "user", "content": f"{words}: {filler}"}]
    return json.dumps({"model": model, "max_tokens": 900, "messages": content}).encode()


def _request(body: bytes, session: str, agent: str) -> bytes:
    lines = [
        "POST /v1/messages HTTP/1.1",
        "host: 127.0.0.1",
        "x-api-key: simulated",
        "content-type: application/json",
        f"content-length: {len(body)}",
        f"x-claude-code-session-id: {session}",
        *([f"x-claude-code-agent-id: {agent}"] if agent else []),
        "connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _answers(turns: int) -> ReplyScript:
    """Agents with a tool use it so often, and then answer."""

    def reply(request: ClientRequest) -> Reply:
        length = 120 + int(request.body_hash[:4], 16) % 700
        if "look" in request.tools and request.turn < turns:
            return Say("x" * length * 3, (("look", {"name": f"part {request.turn}"}),))
        return long_answer(length)

    return ReplyScript((Rule(reply),))


# --- scenes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """What happens, and for how many seconds before the picture."""

    name: str
    title: str
    play: Callable[[Stage], None]
    seconds: float
    settings: ProviderSettings = field(default_factory=lambda: ProviderSettings(service=SERVICE))
    backup: bool = False
    turns: int = 60


def _work(stage: Stage) -> None:
    stage.flow("migrate_monorepo", PORTS, SONNET)
    stage.flow("nightly_triage", ISSUES, HAIKU)
    stage.crowd("3f9c2a51-a4b2", ["", "explore", "review-1", "review-2"], OPUS)


def calm(stage: Stage) -> None:
    """Two runs and a session at work."""
    _work(stage)


def storm(stage: Stage) -> None:
    """Many more agents than the limits allow."""
    _work(stage)
    stage.crowd("b01d77e0-52cc", [f"fuzz-{n}" for n in range(24)], SONNET)


def wall(stage: Stage) -> None:
    """In the middle of work the quota is used up."""
    _work(stage)
    time.sleep(45)
    fault = Fault(Effect.QUOTA_WALL, until=814, reset_announced="headers", model="sonnet")
    stage.providers[0].strike(fault)


def outage(stage: Stage) -> None:
    """In the middle of work the first provider fails; with a backup, that answers."""
    _work(stage)
    time.sleep(45)
    stage.providers[0].outage(600)


def finished(stage: Stage) -> None:
    """All work is done."""
    stage.flow("migrate_monorepo", PORTS, SONNET)
    stage.flow("nightly_triage", ISSUES, HAIKU)
    stage.crowd("3f9c2a51-a4b2", ["", "explore"], OPUS, calls=4)
    for flow in stage.flows:
        flow.wait(600)
    for name in ("migrate_monorepo", "nightly_triage"):
        stage.flow(name, ["second-look"], HAIKU)
    for flow in stage.flows:
        flow.wait(600)


def many(stage: Stage) -> None:
    """Five hundred agents, some of which are asked to slow down."""
    stage.flow("migrate_monorepo", PORTS, SONNET)
    for group in range(20):
        model = (OPUS, SONNET, HAIKU)[group % 3]
        stage.crowd(f"fleet-{group:02d}", [f"agent-{number:02d}" for number in range(25)], model)
    time.sleep(50)
    stage.providers[0].throttle(30, share=0.6, retry_after=4, model="sonnet")


_WINDOWS = (
    QuotaWindowSettings(WindowClaim.FIVE_HOUR, 900_000, 550_000),
    QuotaWindowSettings(WindowClaim.SEVEN_DAY, 50_000_000, 21_000_000),
)
_BUCKETS = (
    BucketSettings(Counts.REQUESTS, 400),
    BucketSettings(Counts.INPUT_TOKENS, 600_000),
    BucketSettings(Counts.OUTPUT_TOKENS, 120_000),
)
_NARROW = (
    BucketSettings(Counts.REQUESTS, 90, burst_seconds=20),
    BucketSettings(Counts.INPUT_TOKENS, 60_000, burst_seconds=20),
)
SCENES = (
    Scene("calm", "Calm", calm, 75, ProviderSettings(service=SERVICE, buckets=_BUCKETS)),
    Scene("storm", "Storm", storm, 75, ProviderSettings(service=SERVICE, buckets=_NARROW)),
    Scene("wall", "Quota wall", wall, 30, ProviderSettings(service=SERVICE, windows=_WINDOWS)),
    Scene("outage", "Outage", outage, 40),
    Scene("failover", "Failover", outage, 40, backup=True),
    Scene("finished", "Finished", finished, 6, turns=3),
    Scene("many", "500 agents", many, 30, turns=60),
)


def played(scene: Scene, browser: Browser, shots: Path) -> list[Path]:
    """Play a scene, and photograph it when its time has come."""
    script = _answers(scene.turns)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as held:
        providers = [held.enter_context(SimulatedProvider(scene.settings, script))]
        if scene.backup:
            plain = ProviderSettings(service=SERVICE)
            providers.append(held.enter_context(SimulatedProvider(plain, script)))
        stage = Stage(Path(folder), providers)
        stage.up()
        try:
            scene.play(stage)
            time.sleep(scene.seconds)
            address = f"{stage.url}/#token={stage.token}"
            return list(photographed(browser, address, scene.name, shots))
        finally:
            stage.down()


def photographed(browser: Browser, address: str, name: str, shots: Path) -> Iterator[Path]:
    """The page at three widths in two themes."""
    for scheme in SCHEMES:
        for width, height in WIDTHS.items():
            with opened(browser, address, scheme=scheme, width=width, height=height) as page:
                page.wait_for_timeout(1500)
                file = shots / f"{name}-{width}-{scheme}.png"
                page.screenshot(path=file)
                yield file


# --- the sheet ------------------------------------------------------------------------------------

_STYLE = """
body { margin: 24px; background: #fff; color: #14181f; font: 15px system-ui, sans-serif; }
section { display: flex; gap: 10px; align-items: flex-start; margin: 0 0 22px; }
h2 { font-size: 17px; margin: 0 0 6px; }
img { display: block; border: 1px solid #d0d5dc; max-height: 262px; }
img { object-fit: cover; object-position: top; }
"""


def composed(browser: Browser, shots: Path, file: Path) -> None:
    """One picture of all pictures, a scene in each row."""
    rows = []
    for scene in SCENES:
        cells = []
        for scheme in SCHEMES:
            for width in WIDTHS:
                picture = base64.b64encode(
                    (shots / f"{scene.name}-{width}-{scheme}.png").read_bytes()
                )
                source = f"data:image/png;base64,{picture.decode()}"
                cells.append(f'<img width="{_SHOWN[width]}" src="{source}" alt="">')
        rows.append(f"<h2>{escape(scene.title)}</h2><section>{''.join(cells)}</section>")
    whole = sum(_SHOWN.values()) * len(SCHEMES) + 10 * 6 + 48
    context = browser.new_context(viewport={"width": whole, "height": 1000})
    try:
        page = context.new_page()
        page.set_content(f"<style>{_STYLE}</style>{''.join(rows)}", wait_until="load")
        page.screenshot(path=file, full_page=True)
    finally:
        context.close()


def main() -> int:
    """Play the scenes, and write the sheet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scene", choices=[scene.name for scene in SCENES])
    parser.add_argument("--shots", type=Path, help="a folder for the single pictures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        # The installation key, which tells this process that a gateway is its own.
        os.environ["XDG_STATE_HOME"] = folder
        shots = options.shots or Path(folder)
        shots.mkdir(parents=True, exist_ok=True)
        for scene in SCENES:
            if options.scene in (None, scene.name):
                sys.stderr.write(f"{scene.title} …\n")
                played(scene, browser, shots)
        if options.scene is None:
            composed(browser, shots, FILE)
            sys.stderr.write(f"written: {FILE.name}, {FILE.stat().st_size:,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
