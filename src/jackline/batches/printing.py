"""Remember which calls have printed something, so that their silence is noticed.

Laws: (1) only what was seen in this session counts, and the tool's own word that such a call
usually prints; (2) memory stays bounded; (3) arguments are kept as digests, never as text.
Not here: which commands usually print (usual_commands.py), running a call again (batch.py).
"""

from __future__ import annotations

import json
from hashlib import sha256

from jackline.batches.tool import JsonObject

AGAIN_EMPTY = "came back empty twice, where such a call usually prints something"
AT_FIRST_EMPTY = "was empty at first; this is the second run"
NOT_REPEATED = (
    "came back empty, where such a call usually prints something; "
    "not run again, since it may change things"
)

_KEPT = 10_000


class Printing:
    """What has printed before in this session."""

    def __init__(self) -> None:
        self._printed: dict[bytes, None] = {}

    def note(self, tool: str, arguments: JsonObject) -> None:
        """This call gave some output."""
        self._printed[_digest(tool, arguments)] = None
        if len(self._printed) > _KEPT:
            del self._printed[next(iter(self._printed))]

    def has_printed(self, tool: str, arguments: JsonObject) -> bool:
        """Whether the very same call gave some output before."""
        return _digest(tool, arguments) in self._printed


def _digest(tool: str, arguments: JsonObject) -> bytes:
    told = json.dumps([tool, arguments], sort_keys=True, default=repr)
    return sha256(told.encode("utf-8", "surrogatepass")).digest()
