"""End the process after a Ctrl-C, at once and with the exit code that says so.

Laws: (1) what was printed is out before; (2) nothing is waited for: threads that still wait for
something may do so for long.
Not here: stopping what goes on in good order (each verb).
"""

from __future__ import annotations

import os
import sys

_INTERRUPTED = 130


def leave_interrupted() -> None:
    """End here; Python itself would end with another code, or wait for threads."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except OSError:
                continue  # whoever read it has left
    os._exit(_INTERRUPTED)
