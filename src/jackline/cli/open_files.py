"""Let this process hold as many connections as the system allows it to.

Laws: (1) only the soft limit is raised, never above the hard one; (2) where there is no such limit
(Windows) nothing is done.
Not here: how many connections the gateway takes (gateway/settings.py).
"""

from __future__ import annotations

import sys

# Two sockets for each of the connections that the gateway takes at most, and some for files.
WANTED = 65_536


def raise_limit() -> None:
    """Raise the number of files that may be open, as far as that goes."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 -- there is none on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
