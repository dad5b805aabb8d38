"""Fetch the real Claude Code, and run it against a simulated provider in an empty home.

Rules: (1) the binary comes from the package index by name and is kept in .cache, so that a second
run is quick; (2) nothing of the developer's own home or environment reaches the client; (3) what
cannot be had fails loudly: a skipped test proves nothing.
Not here: what the provider answers (the simulator), what is asserted (the tests).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jackline.simulator.ledger import RequestLedger
from jackline.simulator.reply_script import ReplyScript
from jackline.testing import Fault, Rule, SimulatedProvider
from tests.own_home import key_folder

# The wheel carries the Claude Code 2.1.325 binary, which needs no Node.
WHEEL = "claude-agent-sdk==0.2.182"
CACHE = Path(__file__).parents[2] / ".cache" / "real_clients" / WHEEL.replace("==", "-")
PATIENCE = 300
NOWHERE = "http://127.0.0.1:1"


def claude_binary() -> Path:
    """The real client, downloaded on first use."""
    name = "claude.exe" if os.name == "nt" else "claude"
    binary = CACHE / "claude_agent_sdk" / "_bundled" / name
    if not binary.exists():
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
            fresh = Path(folder) / "wheel"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
            subprocess.run([*command, str(fresh), WHEEL], check=True)
            # Moved as a whole, so that two test processes cannot see each other's half a client.
            with suppress(OSError):
                fresh.rename(CACHE)
        if not binary.exists():
            raise FileNotFoundError(f"{WHEEL} brought no {binary}")
    return binary


@dataclass(frozen=True)
class Run:
    """A finished run of the client: its exit code, its log, the home it wrote to, and the truth."""

    code: int
    log: Path
    home: Path
    ledger: RequestLedger


def run_claude(
    place: Path,
    rules: Sequence[Rule],
    *,
    arguments: Sequence[str] = (),
    subscription: bool = False,
    refuse: bool = False,
    fault: Fault | None = None,
) -> Run:
    """Run one prompt to its end; `refuse` points the client at a port where nobody listens."""
    home, project = place / "home", place / "project"
    home.mkdir()
    project.mkdir()
    with SimulatedProvider(script=ReplyScript(tuple(rules))) as provider:
        if fault is not None:
            provider.strike(fault)
        done = subprocess.run(
            [
                str(claude_binary()),
                *("-p", "TASK: review the three modules of this project."),
                *("--output-format", "stream-json", "--verbose"),
                *("--allowedTools", "Bash,Agent,Workflow,StructuredOutput"),
                *arguments,
            ],
            cwd=project,
            env=environment(home, NOWHERE if refuse else provider.url, subscription=subscription),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        ledger = provider.ledger
    log = place / "stream.jsonl"
    log.write_bytes(done.stdout)
    return Run(done.returncode, log, home, ledger)


def environment(home: Path, url: str, *, subscription: bool = False) -> Mapping[str, str]:
    """All that the client gets to see of its surroundings: an empty home and a dummy credential."""
    credential = "CLAUDE_CODE_OAUTH_TOKEN" if subscription else "ANTHROPIC_API_KEY"
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        **key_folder(),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "ANTHROPIC_BASE_URL": url,
        credential: "sk-ant-dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "2",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }
