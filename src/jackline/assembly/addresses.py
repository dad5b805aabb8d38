"""Say at which address a gateway is found from this machine.

Laws: (1) an address that means "every one" is told as the loopback: no client can connect to it.
Not here: listening (gateway/listening.py).
"""

from __future__ import annotations

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- compared with, not bound


def local_url(host: str, port: int) -> str:
    """The base URL for clients on this machine."""
    host = _LOOPBACK.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
