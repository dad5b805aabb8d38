"""Draw the picture of the README: a fleet across a quota wall, bare and through the gateway.

    python docs/make_timeline.py       # about two minutes; writes docs/timeline.svg

Both sides are played for real: the simulated provider, sixteen clients in threads that make four
calls each, and for the second side a gateway in a process of its own. A bare client gives up at a
quota error, as Claude Code does with a subscription.

Rules: (1) the bars of the second side come from the gateway's journal, those of the first from the
clients' own clocks; nothing is drawn that was not measured; (2) both sides meet the same wall.
Not here: figures that are claimed (bench/).
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

from jackline.assembly import StateDir
from jackline.journal.store import JournalReader
from jackline.simulator.scenario import Scenario
from jackline.simulator.server import ServerThread

FILE = Path(__file__).parent / "timeline.svg"
AGENTS, CALLS = 16, 4
WALL_FROM, WALL_TO = 12.0, 42.0
_PATIENCE = 300.0
_STAGGER = 0.35


@dataclass(frozen=True)
class Stretch:
    """What one agent did from when to when, in seconds of the play."""

    agent: int
    begins: float
    ends: float
    doing: str


def main() -> int:
    """Play both sides and draw them."""
    sides = [("without Jackline", bare()), ("through jackline up", through())]
    FILE.write_text(drawn(sides), "utf-8", newline="\n")
    sys.stderr.write(f"written: {FILE.name}, {FILE.stat().st_size:,} bytes\n")
    return 0


# --- playing --------------------------------------------------------------------------------------


def bare() -> list[Stretch]:
    """Each client for itself."""
    healthy = Scenario.load("healthy")
    with ServerThread(healthy.settings, healthy.script) as provider:
        seen: list[Stretch] = []
        play(provider.url, provider.url, seen)
        return seen


def through() -> list[Stretch]:
    """The same clients behind one gateway; what the journal says of them."""
    healthy = Scenario.load("healthy")
    with (
        ServerThread(healthy.settings, healthy.script) as provider,
        tempfile.TemporaryDirectory() as folder,
    ):
        state = StateDir(Path(folder) / "state")
        names = {"STATE": str(state.folder), "PORT": "0", "UPSTREAM": provider.url}
        environment = {**os.environ, **{f"JACKLINE_{key}": names[key] for key in names}}
        ours = [sys.executable, "-m", "jackline"]
        _run([*ours, "up", "-d"], environment)
        try:
            running = state.running()
            if running is None:
                raise RuntimeError("the gateway left no word of itself")
            began = time.time()
            play(running.url, provider.url, [])
        finally:
            _run([*ours, "down"], environment)
        with JournalReader(state.journal) as journal:
            calls = journal.calls(began, time.time() + 1, AGENTS * CALLS)
        found = []
        for call in calls:
            agent, ends = int(call.agent or "0"), call.at - began
            sent = ends - call.took + call.waited
            found.append(Stretch(agent, ends - call.took, sent, "waiting"))
            found.append(Stretch(agent, sent, ends, "answering"))
        return found


def _run(words: list[str], environment: dict[str, str]) -> None:
    subprocess.run(words, env=environment, check=True, capture_output=True)  # noqa: S603 -- ours


def play(url: str, provider: str, seen: list[Stretch]) -> None:
    """Let all clients work, with the wall in between; what they saw goes into `seen`."""
    began = time.monotonic()
    threads = [
        threading.Thread(target=client, args=(number, url, began, seen)) for number in range(AGENTS)
    ]
    wall = {"effect": "quota_wall", "claim": "five_hour", "reset_announced": "headers"}
    wall_told = json.dumps({**wall, "start": WALL_FROM, "until": WALL_TO}).encode()
    asked(provider, "/_control/faults", wall_told, {})
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def client(number: int, url: str, began: float, seen: list[Stretch]) -> None:
    """One agent: call after call, and the end at the first error."""
    time.sleep(number * _STAGGER)
    body = {"model": "claude-sonnet-4-6", "max_tokens": 500}
    headers = {"x-claude-code-session-id": "timeline", "x-claude-code-agent-id": str(number)}
    for call in range(CALLS):
        words = [{"role": "user", "content": f"part {call} of {number}"}]
        begins = time.monotonic() - began
        status = asked(
            url, "/v1/messages", json.dumps({**body, "messages": words}).encode(), headers
        )
        ends = time.monotonic() - began
        seen.append(Stretch(number, begins, ends, "answering" if status == 200 else "died"))
        if status != 200:
            return
        time.sleep(0.3 + 0.1 * (number % 4))


def asked(url: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    """The status of one request."""
    line = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_PATIENCE)
    try:
        line.request("POST", path, body, {"content-type": "application/json", **headers})
        answer = line.getresponse()
        answer.read()
        return answer.status
    finally:
        line.close()


# --- drawing --------------------------------------------------------------------------------------

_LEFT, _RIGHT, _ROW, _GAP, _WIDTH = 16.0, 16.0, 9.0, 46.0, 860.0
_COLOURS = {"answering": "#2f9e6e", "waiting": "#e0a630", "died": "#d1495b"}
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-weight:600;font-size:14px}"
    "@media(prefers-color-scheme:dark){text{fill:#b7bfc8}.w{fill:#8b949e}}"
)


def drawn(sides: list[tuple[str, list[Stretch]]]) -> str:
    """The picture."""
    longest = max(stretch.ends for _, side in sides for stretch in side)
    scale = (_WIDTH - _LEFT - _RIGHT) / longest
    height = sum(_GAP + AGENTS * _ROW for _ in sides) + 34
    box = f"0 0 {_WIDTH:.0f} {height:.0f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img">',
        f"<title>{AGENTS} agents across a quota wall, bare and through Jackline</title>",
        f"<style>{_STYLE}</style>",
    ]
    top = 0.0
    for name, side in sides:
        parts += _side(name, side, top, scale)
        top += _GAP + AGENTS * _ROW
    parts += [*_legend(top + 22), "</svg>"]
    return "\n".join(parts) + "\n"


def _side(name: str, side: list[Stretch], top: float, scale: float) -> Iterable[str]:
    finished = [
        number
        for number in range(AGENTS)
        if sum(s.agent == number and s.doing == "answering" for s in side) == CALLS
    ]
    says = f"{name}: {len(finished)} of {AGENTS} agents finish"
    yield f'<text class="t" x="{_LEFT}" y="{top + 20:.0f}">{escape(says)}</text>'
    rows = top + 30
    x, width = _LEFT + WALL_FROM * scale, (WALL_TO - WALL_FROM) * scale
    yield (
        f'<rect class="w" x="{x:.1f}" y="{rows:.0f}" width="{width:.1f}"'
        f' height="{AGENTS * _ROW:.0f}" fill="#8b949e" opacity=".18"/>'
    )
    for stretch in sorted(side, key=lambda each: (each.agent, each.begins)):
        died = stretch.doing == "died"
        length = max(4.0 if died else 0.0, (stretch.ends - stretch.begins) * scale)
        if length < 0.5:
            continue
        yield (
            f'<rect x="{_LEFT + stretch.begins * scale:.1f}" y="{rows + stretch.agent * _ROW:.1f}"'
            f' width="{length:.1f}" height="{_ROW - 2:.0f}" fill="{_COLOURS[stretch.doing]}"/>'
        )


def _legend(y: float) -> Iterable[str]:
    words = [
        ("answering", "a model answers"),
        ("waiting", "held by the gateway"),
        ("died", "died of the quota error"),
    ]
    for place, (doing, says) in enumerate(words):
        x = _LEFT + place * 190
        fill = _COLOURS[doing]
        yield f'<rect x="{x:.0f}" y="{y - 10:.0f}" width="12" height="12" fill="{fill}"/>'
        yield f'<text x="{x + 18:.0f}" y="{y:.0f}">{says}</text>'
    wall = f"grey: the wall, {WALL_TO - WALL_FROM:.0f} s"
    yield f'<text x="{_LEFT + 570:.0f}" y="{y:.0f}">{wall}</text>'


if __name__ == "__main__":
    sys.exit(main())
