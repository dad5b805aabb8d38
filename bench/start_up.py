"""Measure how soon verbs answer, beside a bare Python that does nothing, `uv` and `litellm`.

    python bench/start_up.py [--quick] [--json]

Rules: (1) all of them are measured in one interleaved run on one machine, against a running
service; what counts is the ratio to the bare interpreter; (2) the time runs from starting the
process to the first whole line of its answer; (3) smallest and middle are told: the first is the
work, the second what a busy machine makes of it; (4) a peer that is not on the PATH is left out,
and named.
Not here: what the verbs answer (tests/quick/).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

TIMES, TIMES_IN_A_HURRY = 40, 10
OPENING = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}
JACKLINE = (sys.executable, "-m", "jackline")
CANDIDATES: Mapping[str, tuple[tuple[str, ...], bytes, bool]] = {
    # What is run, what it is told, and whether its input stays open until it has answered.
    "bare Python": ((sys.executable, "-c", "print(flush=True)"), b"", False),
    "jackline statusline": ((*JACKLINE, "statusline"), b"{}", False),
    "jackline hook": (
        (*JACKLINE, "hook"),
        json.dumps({"hook_event_name": "PostToolUse", "tool_name": "Read"}).encode(),
        False,
    ),
    "jackline mcp, to its welcome": ((*JACKLINE, "mcp"), json.dumps(OPENING).encode(), True),
    "jackline --help": ((*JACKLINE, "--help"), b"", False),
    "jackline status": ((*JACKLINE, "status"), b"", False),
    "jackline ls --json": ((*JACKLINE, "ls", "--json"), b"", False),
    "jackline cost": ((*JACKLINE, "cost"), b"", False),
    "jackline why --text": ((*JACKLINE, "why", "--text", "API Error: 529"), b"", False),
    "jackline config show": ((*JACKLINE, "config", "show"), b"", False),
}
PEERS: Mapping[str, tuple[str, ...]] = {
    "uv --help": ("uv", "--help"),
    "litellm --help": ("litellm", "--help"),
}


@dataclass(frozen=True)
class Measured:
    """One candidate."""

    name: str
    least_ms: float
    median_ms: float
    times_bare: float
    """The ratio of the least times."""


def main() -> int:
    """Start a service, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jackline-bench-") as folder:
        environ = {
            **os.environ,
            "HOME": folder,
            "JACKLINE_STATE": str(Path(folder) / "state"),
            "JACKLINE_PORT": "0",
            "JACKLINE_UPSTREAM": "http://127.0.0.1:9",
        }
        up = subprocess.run([*JACKLINE, "up", "-d"], env=environ, capture_output=True, check=False)
        if up.returncode:
            print(up.stderr.decode(), file=sys.stderr)
            return 1
        try:
            found = _measured(TIMES_IN_A_HURRY if arguments.quick else TIMES, environ)
        finally:
            subprocess.run([*JACKLINE, "down"], env=environ, capture_output=True, check=False)
    if arguments.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
        return 0
    print(f"{'':30} {'least':>9} {'median':>9} {'times bare':>11}")
    for one in found:
        least, median = f"{one.least_ms:.1f} ms", f"{one.median_ms:.1f} ms"
        print(f"{one.name:30} {least:>9} {median:>9} {one.times_bare:>11.1f}")
    return 0


def _measured(times: int, environ: Mapping[str, str]) -> list[Measured]:
    candidates = dict(CANDIDATES)
    for name, command in PEERS.items():
        if shutil.which(command[0]) is None:
            print(f"{command[0]} is not on the PATH: left out", file=sys.stderr)
        else:
            candidates[name] = (command, b"", False)
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    # The first round fills the caches of files and of bytecode.
    for round_ in range(times + 1):
        for name, (command, told, stays) in candidates.items():
            seconds = _once(command, told, environ, stays=stays)
            if round_:
                taken[name].append(seconds)
    bare = min(taken["bare Python"])
    return [
        Measured(name, min(each) * 1e3, statistics.median(each) * 1e3, min(each) / bare)
        for name, each in taken.items()
    ]


def _once(
    command: tuple[str, ...], told: bytes, environ: Mapping[str, str], *, stays: bool
) -> float:
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process was started without its pipes")
        process.stdin.write(told + b"\n")
        process.stdin.flush()
        if not stays:
            process.stdin.close()
        process.stdout.readline()
        seconds = time.perf_counter() - began
        process.stdin.close()
        process.stdout.read()
    return seconds


if __name__ == "__main__":
    sys.exit(main())
