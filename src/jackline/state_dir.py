"""The state folder: the few files that a gateway leaves for other commands and for its next run.

Rules: (1) folder and files are the user's alone; a file that others could have written raises
`UnsafeFileError`, which says how to mend it, and stops the start; (2) a file that makes no sense
counts as absent; (3) the control token is new with each start, the salt of fingerprints stays;
(4) a folder that cannot be written to is reported once and stops no traffic; (5) a gateway
without the installation key serves, and says that no command can trust it.
Not here: the journal and the runs, which have their own files (journal/, flows/).
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from jackline.errors import UnsafeFileError
from jackline.gateway_proof import is_token, proof
from jackline.local_address import host_and_port
from jackline.private_files import (
    NotPrivateError,
    check_private_file,
    check_private_folder,
    installation_key,
    key_folder,
    make_private_folder,
    open_private,
    read_private,
    write_private,
)
from jackline.task_proof import task_in

SALT_BYTES = 32
_ORDERS = "orders.json"
_RUNNING = "gateway.json"
_SALT = "salt"
# The agreements to projects' files; config/project.py writes them.
_CONSENTS = "trusted-projects.json"
_LARGEST_WORD = 64 * 1024
_DATABASES = ("journal.db", "flows.db")
_OWN_FILES = (
    *(_SALT, _ORDERS, _RUNNING, "connected.json", "hooks-down-reported"),
    *("gateway.log", "woken-runs.log", "ordered-runs.log"),
    *(name + end for name in _DATABASES for end in ("", "-wal", "-shm", "-journal")),
)
"""The files in the folder that are ours; it may hold other things of the user."""


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """The gateway that wrote this: where it is, and the token that orders to it need."""

    pid: int
    url: str
    upstream: str
    version: str
    started: float
    token: str

    def __repr__(self) -> str:
        return f"<Running gateway {self.url}, process {self.pid}>"


@contextmanager
def safe_files() -> Iterator[None]:
    """Turn what is said of a file that is not private into an error that says how to mend it."""
    try:
        yield
    except NotPrivateError as error:
        raise UnsafeFileError(f"{error.filename} {error.problem}", hint=error.fix) from error


class StateDir:
    """One folder of state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.folder / "journal.db"

    @property
    def log(self) -> Path:
        """Where a gateway in the background writes its log."""
        return self.folder / "gateway.log"

    def own_files(self) -> list[Path]:
        """What of ours is in the folder; other things in it are somebody else's."""
        names = (*_OWN_FILES, _CONSENTS, "hooks-told-down")
        damaged = [each for name in _DATABASES for each in self.folder.glob(f"{name}.damaged-*")]
        found = [self.folder / name for name in names] + damaged
        return sorted(each for each in found if each.exists() or each.is_symlink())

    def open_log(self) -> BinaryIO:
        """The log, to be written on at its end, by and for the user alone."""
        with safe_files():
            descriptor = open_private(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return os.fdopen(descriptor, "ab")

    @property
    def _running(self) -> Path:
        return self.folder / _RUNNING

    def make(self) -> None:
        """Create the folder, for the user alone; or check it, and every file of ours in it."""
        with safe_files():
            make_private_folder(self.folder)
            for name in _OWN_FILES:
                check_private_file(self.folder / name)
            # The name of `hooks-down-reported` in earlier versions.
            (self.folder / "hooks-told-down").unlink(missing_ok=True)

    def salt(self) -> bytes:
        """The secret that fingerprints are made with; made on first use."""
        path = self.folder / _SALT
        with safe_files():
            with suppress(FileNotFoundError):
                salt = read_private(path)
                if len(salt) == SALT_BYTES:
                    return salt
            salt = secrets.token_bytes(SALT_BYTES)
            write_private(path, salt)
        return salt

    def orders(self) -> bytes:
        """The orders that people gave to an earlier gateway; empty if none."""
        try:
            with safe_files():
                return read_private(self.folder / _ORDERS)
        except OSError:
            return b"[]"

    def keep_orders(self, orders: bytes) -> None:
        """Save the orders that are in force."""
        write_private(self.folder / _ORDERS, orders)

    def running(self) -> RunningGateway | None:
        """What the last gateway wrote; it may have died since."""
        try:
            with safe_files():
                check_private_folder(self.folder)
                saved = json.loads(read_private(self._running, _LARGEST_WORD))
            url, token = str(saved["url"]), str(saved["token"])
            host_and_port(url)
            if not is_token(token):
                return None
            return RunningGateway(
                pid=int(saved["pid"]),
                url=url,
                upstream=str(saved["upstream"]),
                version=str(saved["version"]),
                started=float(saved["started"]),
                token=token,
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def tell_running(self, running: RunningGateway) -> None:
        """Record the gateway that has started."""
        write_private(self._running, json.dumps(asdict(running)).encode())

    def tell_stopped(self, pid: int) -> None:
        """Remove the record, unless it is another gateway's by now."""
        with suppress(OSError, UnsafeFileError):
            saved = self.running()
            if saved is not None and saved.pid == pid:
                self._running.unlink(missing_ok=True)


_log = logging.getLogger("jackline")


class StateKeeper:
    """The state folder of one service, and its note when that folder fails."""

    def __init__(self, state: StateDir, notes: MutableMapping[str, str]) -> None:
        self._state = state
        self._notes = notes
        self._key: bytes | None = None

    def salt(self) -> bytes:
        """The secret that fingerprints are made with: a temporary one if none can be saved."""
        try:
            self._state.make()
            return self._state.salt()
        except OSError as error:
            self._cannot_keep(error)
            return secrets.token_bytes(SALT_BYTES)

    def look_at_key(self) -> None:
        """Note at once when there is no key to prove ourselves with."""
        with suppress(OSError):
            self._installation_key()

    def proof(self, nonce: str, address: str) -> str:
        """What proves to a client that this is the user's gateway; OSError without a key."""
        return proof(self._installation_key(), nonce, address)

    def task_in(self, value: bytes) -> str | None:
        """The agent that a call's header names, if this user's installation has named it."""
        try:
            return task_in(self._installation_key(), value)
        except OSError:
            return None

    def tell_running(self, running: RunningGateway) -> None:
        """Record the gateway for the user's other commands."""
        try:
            self._state.tell_running(running)
        except OSError as error:
            self._cannot_keep(error)

    def keep_orders(self, orders: bytes) -> None:
        """Save the orders that people gave by hand."""
        try:
            self._state.keep_orders(orders)
        except OSError as error:
            self._cannot_keep(error)

    def _installation_key(self) -> bytes:
        if self._key is None:
            try:
                self._key = installation_key()
            except OSError as error:
                why = (
                    f"{error.filename} {error.problem}; fix: {error.fix}"
                    if isinstance(error, NotPrivateError)
                    else f"{error.strerror or type(error).__name__} in {key_folder()}"
                )
                self._note(
                    "key",
                    "calls are served, but this gateway cannot prove that it is yours, so that no"
                    " command and no hook of Jackline will trust it: there is no installation key"
                    f" ({why})",
                )
                raise
            self._notes.pop("key", None)
        return self._key

    def _cannot_keep(self, error: OSError) -> None:
        self._note(
            "state",
            f"the state folder {self._state.folder} cannot be written to"
            f" ({error.strerror or type(error).__name__}): nothing is remembered over a restart,"
            " and `down` cannot reach this gateway",
        )

    def _note(self, name: str, words: str) -> None:
        if self._notes.get(name) != words:
            self._notes[name] = words
            _log.error("%s", words)
