"""Remember which clients' credentials vendors have accepted or refused.

Rules: (1) a credential is kept as a digest under the state folder's salt, never as itself; (2) one
key is one credential, whatever header and white space it was sent with; (3) the vendor's latest
verdict counts; (4) a refusal counts everywhere, an acceptance at the address alone that gave it:
some accept anybody; (5) accepted ones are remembered over a restart; (6) the memory is bounded: the
one that was not heard of for longest goes first.
Not here: where a call may go (placing.py), what a refusal is (calls/carrier.py).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from jackline.failures import Json

_MOST = 10_000
# Written every few seconds while calls pass: those that were heard of last.
_MOST_EXPORTED = 256
_DIGEST_BYTES = 16
_SCHEME = b"bearer"


class KnownClients:
    """The credentials that vendors have judged, each with the latest verdict."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt[:64]
        self._accepted: OrderedDict[bytes, None] = OrderedDict()
        self._rejected: OrderedDict[bytes, None] = OrderedDict()
        self._doubted: OrderedDict[bytes, None] = OrderedDict()

    def accept(self, url: str, credential: bytes) -> None:
        """The vendor at this address has served this credential, or knows its account."""
        self._rejected.pop(self.digest(credential), None)
        there = self.digest(credential, url)
        self._doubted.pop(there, None)
        _put(self._accepted, there)

    def reject(self, url: str, credential: bytes) -> None:
        """The vendor at this address has refused this credential."""
        self._accepted.pop(self.digest(credential, url), None)
        _put(self._rejected, self.digest(credential))

    def doubt(self, url: str, credential: bytes) -> None:
        """The vendor there works, and has answered this credential without having accepted it."""
        there = self.digest(credential, url)
        if there not in self._accepted:
            _put(self._doubted, there)

    def is_accepted(self, url: str, credential: bytes) -> bool:
        """Whether the vendor at this address has accepted it last."""
        return self.has_accepted(self.digest(credential, url))

    def has_accepted(self, digest: bytes) -> bool:
        """The same of a credential that is known by its digest at an address."""
        return digest in self._accepted

    def is_rejected(self, credential: bytes) -> bool:
        """Whether some vendor has refused it, and none has accepted it since."""
        return bool(self._rejected) and self.digest(credential) in self._rejected

    def is_doubted(self, url: str, credential: bytes) -> bool:
        """Whether the vendor at this address works, and has not accepted it."""
        return bool(self._doubted) and self.digest(credential, url) in self._doubted

    def digest(self, credential: bytes, url: str = "") -> bytes:
        """A name for a credential, everywhere or at one address, that says nothing about it."""
        return hashlib.blake2b(
            b"%b\n%b" % (url.encode(), bare(credential)),
            digest_size=_DIGEST_BYTES,
            key=self._salt,
            person=b"known client",
        ).digest()

    def export(self) -> Json:
        """The accepted ones, to be kept over a restart."""
        return [digest.hex() for digest in list(self._accepted)[-_MOST_EXPORTED:]]

    def restore(self, told: Json) -> None:
        """Take up what was exported; what makes no sense is left out."""
        for each in told if isinstance(told, list) else ():
            try:
                digest = bytes.fromhex(each) if isinstance(each, str) else b""
            except ValueError:
                continue
            if len(digest) == _DIGEST_BYTES:
                _put(self._accepted, digest)


def bare(credential: bytes) -> bytes:
    """The key or token itself, without the scheme and white space around it."""
    credential = credential.strip()
    scheme, _, rest = credential.replace(b"\t", b" ").partition(b" ")
    return rest.strip() if scheme.lower() == _SCHEME else credential


def _put(digests: OrderedDict[bytes, None], digest: bytes) -> None:
    digests[digest] = None
    digests.move_to_end(digest)
    if len(digests) > _MOST:
        digests.popitem(last=False)
