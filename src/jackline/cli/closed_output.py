"""Go on quietly when whoever read our output has left, as `| head` does.

Laws: (1) nothing more is written, and nothing is said about it, also not while Python ends; (2) the
work goes on, and its exit code is what it would have been.
Not here: an output that was closed from the start (main.py).
"""

from __future__ import annotations

import os
import sys


def forget_output() -> None:
    """Send what is still to be printed nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
