"""Write what a webhook gets, and sign it so that its receiver can tell whose it is.

Laws: (1) pure; (2) the signature covers the very bytes and the time, so that an old message cannot
be sent again; (3) the secret appears nowhere.
Not here: sending (ways.py).
"""

from __future__ import annotations

import hashlib
import hmac
import json

from jackline.notifications.incidents import Message

SCHEMA = "jackline.notification/1"
HEADER = "x-jackline-signature"


def body_of(message: Message) -> bytes:
    """The JSON document that is sent; `text` alone is what Slack and its like show."""
    return json.dumps(
        {
            "schema": SCHEMA,
            "about": message.about.value,
            "at": round(message.at, 3),
            "title": message.title,
            "text": f"{message.title}\n{message.text}",
        },
        ensure_ascii=False,
    ).encode()


def signature(secret: str, at: int, body: bytes) -> str:
    """The header's value: when it was sent, and HMAC-SHA256 over `<at>.<body>` in hex."""
    return f"t={at},v1={_digest(secret, at, body)}"


def is_signed(secret: str, header: str, body: bytes, *, now: int, patience: int = 300) -> bool:
    """Whether a message is ours and fresh: for receivers, and for tests of ours."""
    parts = dict(part.partition("=")[::2] for part in header.split(","))
    at = parts.get("t", "")
    if not at.isdecimal() or len(at) > 12 or abs(now - int(at)) > patience:
        return False
    return hmac.compare_digest(
        parts.get("v1", "").encode(), _digest(secret, int(at), body).encode()
    )


def _digest(secret: str, at: int, body: bytes) -> str:
    return hmac.new(secret.encode(), b"%d.%b" % (at, body), hashlib.sha256).hexdigest()
