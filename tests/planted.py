"""The words that no test may find again in anything that Jackline writes.

Every credential, prompt and answer that the tests send through a gateway holds the one planted word
below. Whatever was written while they ran is searched for it afterwards (tests/conftest.py).

Rules: (1) the word is assembled here, so that the tests' own sources and caches do not hold it; (2)
plain bytes are searched, and what is stored as base64 or gzip is unpacked first.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import os
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

WORD = "PLANTED" + "7f3a"
KEY = f"sk-ant-api03-{WORD}-key-{'A' * 40}"
BEARER = f"sk-ant-oat01-{WORD}-bearer-{'B' * 40}"
TOKEN = f"{WORD}-listen-token"
PROMPT = f"{WORD}-prompt: sum up the secret plan"
ANSWER = f"{WORD}-answer: the plan is this"
TOOL_INPUT = f"{WORD}-tool-input"

# Files that tests themselves write as inputs: what a user keeps, not what Jackline leaves.
KEPT_BY_USERS = "users-own"

# What Jackline itself writes; in these no credential of any test may stand, planted or not.
_OUR_OWN = ("journal.db", "gateway.log", "gateway.json")
_CREDENTIAL = re.compile(rb"sk-ant-[A-Za-z0-9_-]{8}")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{40,}={0,2}")


def leaks(folder: Path) -> list[str]:
    """The files under a folder in which a planted word stands, in whatever packing."""
    return sorted(str(path) for path in _files(folder.absolute()) if _leaks(path))


def _files(folder: Path) -> Iterator[Path]:
    """All but those of users; what goes away meanwhile, as others' processes end, is left out."""
    for place, folders, names in os.walk(folder):
        if KEPT_BY_USERS in folders:
            folders.remove(KEPT_BY_USERS)
        paths = (Path(place, name) for name in names if name != KEPT_BY_USERS)
        yield from (path for path in paths if path.is_file() and not path.is_symlink())


def holds_planted(data: bytes) -> bool:
    """Whether a planted word stands in these bytes, plain or packed."""
    return any(WORD.encode() in each for each in _readings(data))


def _leaks(path: Path) -> bool:
    try:
        data = path.read_bytes()
    except OSError:  # gone since it was listed
        return False
    if path.name.startswith(_OUR_OWN) and _CREDENTIAL.search(data):
        return True
    return holds_planted(data) or (data.startswith(b"SQLite format 3") and _leaks_in_rows(path))


def _leaks_in_rows(path: Path) -> bool:
    """A long value is cut into pages in the file; in its row it is whole."""
    try:
        with closing(
            sqlite3.connect(f"{path.as_uri()}?mode=ro", timeout=5.0, uri=True)
        ) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
            return any(holds_planted(value) for value in _values(database, tables))
    except sqlite3.Error:  # damaged on purpose by a test, or gone by now; its bytes were searched
        return False


def _values(database: sqlite3.Connection, tables: Iterable[str]) -> Iterator[bytes]:
    for table in tables:
        for row in database.execute(f"SELECT * FROM {table!r}"):  # noqa: S608 -- its own names
            for value in row:
                yield value if isinstance(value, bytes) else str(value).encode()


def _readings(data: bytes) -> Iterator[bytes]:
    yield data
    for text in _BASE64.findall(data):
        try:
            yield base64.b64decode(text + b"=" * (-len(text) % 4))
        except binascii.Error:
            continue
    if data[:2] == b"\x1f\x8b":
        try:
            yield gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return
