"""Leave the process after a Ctrl-C, and go on without an output whose reader is gone (`| head`).

Rules: (1) after a Ctrl-C all printed text is flushed, then the process ends at once with exit code
130 and waits for no thread; (2) when stdout is closed, nothing more is written and no error is
printed; the work goes on and its exit code stays the same; (3) only `os` and `sys` are loaded.
"""

from __future__ import annotations

import os
import sys


def exit_interrupted() -> None:
    """Exit now; Python itself would exit with another code, or wait for threads."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except OSError:
                continue  # its reader is gone
    os._exit(130)


def discard_output() -> None:
    """Drop all further output."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
