"""Keep what a gateway leaves in its state folder, or say that it cannot be kept.

Rules: (1) a folder that cannot be written to is told, once in the same words, and stops no traffic;
(2) one that other users can write to stops the start: `UnsafeFileError` passes through here; (3) a
gateway without the installation key serves, and says that nobody can trust it.
The files themselves are in state_dir.py, what the lanes have learned in remembering.py.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import MutableMapping
from contextlib import suppress

from jackline.assembly.state_dir import SALT_BYTES, Running, StateDir
from jackline.gateway_proof import proof
from jackline.private_files import NotPrivateError, installation_key, key_folder

_log = logging.getLogger("jackline")


class StateKeeping:
    """The state folder of one service, and its note when that folder fails."""

    def __init__(self, state: StateDir, notes: MutableMapping[str, str]) -> None:
        self._state = state
        self._notes = notes
        self._key: bytes | None = None

    def salt(self) -> bytes:
        """The secret that fingerprints are made with: a passing one if none can be kept."""
        try:
            self._state.make()
            return self._state.salt()
        except OSError as error:
            self._cannot_keep(error)
            return secrets.token_bytes(SALT_BYTES)

    def look_at_key(self) -> None:
        """Tell at once when there is no key to prove ourselves with."""
        with suppress(OSError):
            self._installation_key()

    def proof(self, nonce: str, address: str) -> str:
        """What proves to a client that this is the user's gateway; OSError without a key."""
        return proof(self._installation_key(), nonce, address)

    def tell_running(self, running: Running) -> None:
        """Leave word of the gateway for the user's other commands."""
        try:
            self._state.tell_running(running)
        except OSError as error:
            self._cannot_keep(error)

    def keep_orders(self, orders: bytes) -> None:
        """Keep the orders that people gave by hand."""
        try:
            self._state.keep_orders(orders)
        except OSError as error:
            self._cannot_keep(error)

    def _installation_key(self) -> bytes:
        if self._key is None:
            try:
                self._key = installation_key()
            except OSError as error:
                self._note("key", _keyless(error))
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


def _keyless(error: OSError) -> str:
    why = (
        f"{error.filename} {error.problem}; fix: {error.fix}"
        if isinstance(error, NotPrivateError)
        else f"{error.strerror or type(error).__name__} in {key_folder()}"
    )
    return (
        f"calls are served, but this gateway cannot prove that it is yours, so that no command and"
        f" no hook of Jackline will trust it: there is no installation key ({why})"
    )
