"""Remember which clients' credentials a vendor has refused, so that none is served with our key.

Rules: (1) a credential is kept as a digest under a key of this process alone; (2) it is forgotten
as soon as the vendor takes it; (3) the memory is bounded: the longest unheard of goes first.
Not here: where a call may go (placing.py), what a refusal is (calls/carrier.py).
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict

_MOST = 10_000


class RejectedClients:
    """The credentials that were refused last."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def reject(self, credential: bytes) -> None:
        """A vendor has refused this credential."""
        digest = self.digest(credential)
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        if len(self._digests) > _MOST:
            self._digests.popitem(last=False)

    def accept(self, credential: bytes) -> None:
        """A vendor has taken this credential."""
        if self._digests:
            self._digests.pop(self.digest(credential), None)

    def __contains__(self, credential: bytes) -> bool:
        return bool(self._digests) and self.digest(credential) in self._digests

    def digest(self, credential: bytes) -> bytes:
        """A name for a credential that says nothing about it."""
        return hashlib.blake2b(credential, digest_size=16, key=self._key).digest()
