"""The path of hooks, and the token by which a client's HTTP hooks prove to be this user's.

Rules: (1) the token stays the same over restarts, since the plugin's files contain it, and allows
nothing but the news that something has stopped; (2) it cannot be derived from other uses of the
salt.
Not here: the control token, which is new with each start (state_dir.py).
"""

from __future__ import annotations

import hashlib
import hmac

PATH = "/_jackline/hook"
HEADER = "x-jackline-hook"


def hook_token(salt: bytes) -> str:
    """The token of the state folder that holds this salt."""
    return hmac.new(salt, b"hooks over http", hashlib.sha256).hexdigest()[:32]
