"""Leave the process after a Ctrl-C, and go on without an output whose reader is gone (`| head`).

Rules: (1) after a Ctrl-C all printed text is flushed, then the process ends at once with exit code
130 and waits for no thread; (2) when stdout is closed, nothing more is written and nothing is said
about it; the work goes on and its exit code stays the same; (3) only `os` and `sys` are loaded.
Not here: how each verb stops its work, an output that was closed from the start (main.py).
"""

from __future__ import annotations

import os
import sys

_INTERRUPTED = 130


def exit_interrupted() -> None:
    """End here; Python itself would end with another code, or wait for threads."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except OSError:
                continue  # whoever read it has left
    os._exit(_INTERRUPTED)


def discard_output() -> None:
    """Send what is still to be printed nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
