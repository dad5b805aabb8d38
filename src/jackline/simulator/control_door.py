"""Decide which requests may reach the control endpoint: programs' and the user's own, no page's.

Rules: (1) the request must name this machine as its Host, so that a page whose name was bound anew
to 127.0.0.1 gets nothing; (2) what a browser sends for another site's page is refused; (3) the port
in Host is not looked at: behind a tunnel it is another than ours.
The gateway's doors.py has the same rules for more names. It lies above this package, which may not
import it, and it knows tokens and settings that a simulator has no use for.
Not here: other users of this machine. There is no token; scenario.py bounds what they can ask for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_THIS_MACHINE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?")
# `none` is what a browser says when its user typed the address or opened a bookmark.
_OWN_SITES = frozenset(("same-origin", "none"))


def stranger(headers: Mapping[str, str]) -> str | None:
    """Why a request must be refused because of where it is addressed to or comes from, or None."""
    host = headers.get("host", "").lower()
    if _THIS_MACHINE.fullmatch(host) is None:
        return "requests for the control endpoint must name 127.0.0.1 or localhost as their host"
    origin = headers.get("origin")
    is_own_origin = origin is None or origin.lower() == f"http://{host}"
    if not is_own_origin or headers.get("sec-fetch-site", "none").lower() not in _OWN_SITES:
        return "requests from pages of other sites are refused"
    return None
