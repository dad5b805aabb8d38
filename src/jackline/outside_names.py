"""Keep names that come from outside short: of sessions, agents, tools, classes, requests.

Rules: (1) every such name is cut here and nowhere else before it is kept or shown; (2) two names
that differ still differ after they were cut. The name of a model is never cut, since it decides
about lanes and prices: one that is too long is refused (gateway/desk.py).
"""

from __future__ import annotations

import hashlib

LONGEST_NAME = 200
LONGEST_MODEL = 512
_MARK = "~"
_DIGEST_BYTES = 8


def cut_name(name: str) -> str:
    """The name, or its beginning with a fingerprint of all of it."""
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).hexdigest()
    return name[: LONGEST_NAME - len(digest) - len(_MARK)] + _MARK + digest
