"""A program that prints what a test has written down, one file for each time it is started.

Run as a script, it notes how it was started and with which prompt, and plays the next file: bytes
as they are, but for the lines `WAIT` (until it is ended) and `EXIT n`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

SHOWN = ("ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "CLAUDECODE", "API_TIMEOUT_MS")


def play(folder: Path, arguments: list[str]) -> int:
    prompt = sys.stdin.buffer.read().decode()
    log = folder / "starts.jsonl"
    number = len(log.read_text().splitlines()) if log.exists() else 0
    files = {
        flag: Path(arguments[arguments.index(flag) + 1]).read_text()
        for flag in ("--append-system-prompt-file", "--mcp-config")
        if flag in arguments
    }
    environ = {name: os.environ.get(name) for name in SHOWN}
    note = {"arguments": arguments, "prompt": prompt, "files": files, "environ": environ}
    with log.open("a") as file:
        file.write(json.dumps(note) + "\n")
    for line in (folder / f"play-{number}").read_bytes().splitlines(keepends=True):
        if line == b"WAIT\n":
            time.sleep(600)
        elif line.startswith(b"EXIT "):
            return int(line[5:])
        else:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(play(Path(__file__).parent, sys.argv[1:]))
