"""Take what would end the whole program for a failure of the one call that raised it.

Laws: (1) a cancellation, and Ctrl-C on the main thread, pass; (2) everything else that is no
ordinary exception (`sys.exit()`, a panic of a library in Rust) becomes one, named in words.
Not here: what a failed call costs (batch.py, flows/).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST = 200


class LeavingError(Exception):
    """A call raised what is meant to end the program."""


@contextmanager
def failing_at_most() -> Iterator[None]:
    """Within this, nothing is raised but ordinary exceptions and what really ends the program."""
    try:
        yield
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except SystemExit as left:
        raise LeavingError(f"it tried to end the whole program ({left})") from left
    except KeyboardInterrupt as error:
        # Ctrl-C is told to the main thread alone: in another, somebody has raised it by hand.
        if threading.current_thread() is threading.main_thread():
            raise
        raise LeavingError("it raised KeyboardInterrupt") from error
    except BaseException as error:
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise LeavingError(f"it raised {said[:_LONGEST]}") from error
