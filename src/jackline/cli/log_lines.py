"""Write the service's log: text on a terminal, JSON lines elsewhere.

Laws: (1) one line per fact; (2) nothing of prompts, answers or credentials: what is logged comes
from events and errors, which hold none; (3) of an unexpected error its kind and the places in the
code are told, never its message, which may quote what was being read.
Not here: what is logged (assembly/).
"""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import TextIO


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).astimezone()
        word = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        line = f"{moment:%H:%M:%S} {word}{_message(record)}"
        trace = _trace(record)
        return f"{line}\n{trace}" if trace else line


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        told = {
            "at": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": _message(record),
        }
        trace = _trace(record)
        if trace:
            told["trace"] = trace
        return json.dumps(told, ensure_ascii=False)


def log_to(stream: TextIO, level: str) -> None:
    """Send the log of this process to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_TextLines() if stream.isatty() else _JsonLines())
    root = logging.getLogger("jackline")
    root.handlers = [handler]
    root.propagate = False
    root.setLevel(level.upper())
    # The event loop logs what its callbacks raise.
    loop = logging.getLogger("asyncio")
    loop.handlers = [handler]
    loop.propagate = False


def _message(record: logging.LogRecord) -> str:
    if record.name.startswith("jackline"):
        return record.getMessage()
    # Others put objects of ours into theirs, with the data that they hold.
    return record.getMessage().partition("\n")[0]


def _trace(record: logging.LogRecord) -> str:
    """Where an error came from, through all that caused it, without any of their messages."""
    error = record.exc_info[1] if record.exc_info else None
    parts: list[str] = []
    while error is not None and len(parts) < 10:
        frames = "".join(traceback.format_tb(error.__traceback__))
        parts.append(f"{frames}{type(error).__name__}")
        error = error.__cause__ or error.__context__
    return "\ncaused by:\n".join(parts)
