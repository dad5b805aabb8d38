"""Keep the few files that a gateway leaves for its user's other commands, and for its next run.

Laws: (1) only the user can read them; (2) a file that is there but makes no sense is taken as
absent; (3) the control token is new with each start, the salt of fingerprints stays.
Not here: the journal (journal/).
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

SALT_BYTES = 32
_ORDERS = "orders.json"


@dataclass(frozen=True, slots=True)
class Running:
    """The gateway that wrote this: where it is, and the token that orders to it need."""

    pid: int
    url: str
    upstream: str
    version: str
    started: float
    token: str

    def __repr__(self) -> str:
        return f"<Running gateway {self.url}, process {self.pid}>"


class StateDir:
    """One folder of state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.folder / "journal.db"

    @property
    def flows(self) -> Path:
        """Where runs of flows are kept."""
        return self.folder / "flows.db"

    @property
    def log(self) -> Path:
        """Where a gateway in the background writes its log."""
        return self.folder / "gateway.log"

    def open_log(self) -> BinaryIO:
        """The log, to be written on at its end, by and for the user alone."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        return os.fdopen(os.open(self.log, flags, 0o600), "ab")

    @property
    def _running(self) -> Path:
        return self.folder / "gateway.json"

    def make(self) -> None:
        """Create the folder, for the user alone."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def salt(self) -> bytes:
        """The secret that fingerprints are made with; made on first use."""
        path = self.folder / "salt"
        with suppress(OSError):
            salt = path.read_bytes()
            if len(salt) == SALT_BYTES:
                return salt
        salt = secrets.token_bytes(SALT_BYTES)
        self._write(path, salt)
        return salt

    def orders(self) -> bytes:
        """The orders that people gave to an earlier gateway; empty if none."""
        try:
            return (self.folder / _ORDERS).read_bytes()
        except OSError:
            return b"[]"

    def keep_orders(self, orders: bytes) -> None:
        """Keep the orders that are in force."""
        self._write(self.folder / _ORDERS, orders)

    def running(self) -> Running | None:
        """What the last gateway wrote; it may have died since."""
        try:
            told = json.loads(self._running.read_bytes())
            return Running(
                pid=int(told["pid"]),
                url=str(told["url"]),
                upstream=str(told["upstream"]),
                version=str(told["version"]),
                started=float(told["started"]),
                token=str(told["token"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def tell_running(self, running: Running) -> None:
        """Leave word of a gateway that has started."""
        self._write(self._running, json.dumps(asdict(running)).encode())

    def tell_stopped(self, pid: int) -> None:
        """Take the word back, unless another gateway has left its own meanwhile."""
        told = self.running()
        if told is not None and told.pid == pid:
            self._running.unlink(missing_ok=True)

    def _write(self, path: Path, data: bytes) -> None:
        """Write whole and for the user alone: a reader sees the old or the new, never a half."""
        fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(data)
        fresh.replace(path)
