"""Keep what a gateway leaves in its state folder, or say that it cannot be kept.

Laws: (1) a folder that cannot be written to is told, once in the same words, and stops no traffic.
Not here: the files themselves (state_dir.py), what the lanes have learned (remembering.py).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import MutableMapping

from jackline.assembly.state_dir import SALT_BYTES, Running, StateDir

_log = logging.getLogger("jackline")


class StateKeeping:
    """The state folder of one service, and its note when that folder fails."""

    def __init__(self, state: StateDir, notes: MutableMapping[str, str]) -> None:
        self._state = state
        self._notes = notes

    def salt(self) -> bytes:
        """The secret that fingerprints are made with: a passing one if none can be kept."""
        try:
            self._state.make()
            return self._state.salt()
        except OSError as error:
            self._cannot_keep(error)
            return secrets.token_bytes(SALT_BYTES)

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

    def _cannot_keep(self, error: OSError) -> None:
        words = (
            f"the state folder {self._state.folder} cannot be written to"
            f" ({error.strerror or type(error).__name__}): nothing is remembered over a restart,"
            " and `down` cannot reach this gateway"
        )
        if self._notes.get("state") != words:
            self._notes["state"] = words
            _log.error("%s", words)
