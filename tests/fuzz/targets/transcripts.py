"""The readers of transcripts, behind `jackline why`: any bytes in a file that claims to be one.

Rules: nothing raises, it becomes a trouble; every face can tell what was read; no control character
of the file reaches a terminal.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jackline.autopsy import html_report, text_report
from jackline.autopsy.report import build
from tests.transcripts.transcript_data import DATA, read_place

WORDS = (
    *(
        b"\n",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b'"',
        b"null",
        b"true",
        b"-1",
        b"1e999",
        b"\xff",
        b"\\ud800",
    ),
    *(b'"type":', b'"assistant"', b'"user"', b'"system"', b'"result"', b'"summary"', b'"message":'),
    *(
        b'"sessionId":',
        b'"agentId":',
        b'"session_id":',
        b'"timestamp":',
        b'"isApiErrorMessage":true',
    ),
    *(b'"content":', b'"tool_use"', b'"tool_result"', b'"usage":', b'"payload":', b'"runId":'),
    *(
        b'"workflowProgress":',
        b'"key":',
        b'"started"',
        b"0001-01-01T00:00:00Z",
        b"\\u001b[2J",
        b"\x1b",
    ),
    *(b"9999-12-31T23:59:59+14:00", b"[" * 60, b'{"a":' * 60),
)
_SMALL = 6_000
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MOST_SEEDS = 40


def seeds() -> Iterable[bytes]:
    """The beginnings of real transcripts of every kind."""
    for path in sorted(DATA.rglob("*.json*"))[:_MOST_SEEDS]:
        lines = path.read_bytes().splitlines(keepends=True)
        yield b"".join(line for line in lines[:12] if len(line) < _SMALL)[:_SMALL]
        yield b"".join(line for line in lines[-4:] if len(line) < _SMALL)[:_SMALL]


def check(data: bytes) -> None:
    """Read the bytes as a file, and tell what was read."""
    path = _folder() / "agent-a1.jsonl"
    path.write_bytes(data)
    # The time of the file is used where its lines tell none.
    os.utime(path, (1_794_733_200, 1_794_733_200))
    evidence = read_place(path)
    assert evidence.bytes_read <= len(data)
    report = build(evidence, now=NOW)
    shown = text_report.render(report)
    assert not _CONTROLS.search(shown), "a control character reaches the terminal"
    json.dumps(report.to_json())
    html_report.page(report)


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="jackline-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
