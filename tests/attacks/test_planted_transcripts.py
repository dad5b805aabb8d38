"""A transcript that was planted to keep its reader busy, and the service with it.

Rules: those of this package. The time is that of the processor, and far from both sides.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path

from jackline.autopsy import report
from jackline.transcripts import reader
from jackline.transcripts.sources import find_path

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
_BASE = {"sessionId": "0c6a3b5e-0000-4000-8000-000000000001", "cwd": "/work", "version": "2.1.197"}


def _line(number: int, content: object, **more: object) -> str:
    stamp = {"uuid": f"u{number}", "timestamp": "2026-11-18T10:00:01Z", "isSidechain": False}
    return json.dumps({**_BASE, **stamp, **more, "message": {"role": "user", "content": content}})


def _planted(path: Path, reports: int) -> Path:
    """As many failed reports about nobody, each of its own text, and errors that they may quote."""
    lines = [_line(0, "go", type="user")]
    for number in range(1, reports):
        note = (
            f"<task-notification>\n<task-id>a{number:06d}</task-id>\n<status>failed</status>\n"
            f"<summary>Agent {number} failed: API Error {'y' * 500}</summary>\n<result></result>\n"
            "</task-notification>"
        )
        origin = {"kind": "task-notification"}
        lines.append(_line(number, note, type="user", origin=origin))
        own = {**_BASE, "error": {"formatted": f"error {number} of the planted ones"}}
        lines.append(json.dumps({**own, "type": "system", "subtype": "api_error"}))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_thousands_of_failed_reports_are_read_in_seconds(tmp_path: Path) -> None:
    began = time.process_time()
    evidence = reader.read(find_path(_planted(tmp_path / "session.jsonl", 15_000)))
    report.build(evidence, now=NOW)
    assert time.process_time() - began < 40
    (story,) = evidence.stories
    assert len(story.reports) > 1_000


def test_reading_for_a_model_does_not_hold_the_end_of_the_service(tmp_path: Path) -> None:
    """The program ends, though the thread that reads does not."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import asyncio, threading
            from jackline import event_loop
            from jackline.clock import SystemClock
            from jackline.errors import UnreadableError
            from jackline.mcp_server.model_tool import ToolCaller
            from jackline.mcp_server.permissions import AgentSettings
            from jackline.mcp_server import status_tools

            status_tools._autopsy = lambda *_: threading.Event().wait()

            async def main():
                settings = AgentSettings(wait=1)
                _, why = status_tools.status_tools(dict, lambda: settings, SystemClock())
                for _ in range(4):
                    try:
                        await why.run({}, ToolCaller())
                    except UnreadableError as error:
                        print(error.message, threading.active_count())

            event_loop.run(main())
            """
        )
    )
    words = [sys.executable, str(program)]
    done = subprocess.run(words, check=True, timeout=60, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all("too long" in line for line in lines)
    assert int(lines[-1].split()[-1]) <= 3, "no more threads than places"
