"""The path of hooks, and the token by which a client's HTTP hooks show that they are this user's.

Laws: (1) it stays the same over restarts of the service, since it stands in the plugin's files, and
opens nothing but the news that something has stopped; (2) it cannot be told from the salt's other
uses.
Not here: the control token, which is new with each start (assembly/state_dir.py).
"""

from __future__ import annotations

import hashlib
import hmac

PATH = "/_jackline/hook"
HEADER = "x-jackline-hook"


def hook_token(salt: bytes) -> str:
    """The token of the state folder that holds this salt."""
    return hmac.new(salt, b"hooks over http", hashlib.sha256).hexdigest()[:32]
