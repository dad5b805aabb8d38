"""Keep the code of users' flows out of a process that holds everybody's keys.

Rules: (1) the service is such a process: while it lives, no flow's file is loaded and no module is
imported for a function there, whoever ordered it; (2) what needs one is left as it is, for a
process of its own: `jackline … --woken`, which compares it with what a person has started
(kept_sources.py), or the command that a person types; (3) commands and Jackline's own flow need no
code of users.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from jackline.errors import UsageError


class UserCodeError(UsageError):
    """Code of a user's flow was to run in a process that must not run any."""


_numbers = count()
_keeping_out: set[int] = set()
"""Who keeps it out now: several services may live in one process."""


@contextmanager
def no_user_code() -> Iterator[None]:
    """Within this, no code of a flow is loaded anywhere in this process, in no thread."""
    number = next(_numbers)
    _keeping_out.add(number)
    try:
        yield
    finally:
        _keeping_out.discard(number)


def check_user_code(what: str, *, next_step: str = "jackline resources --retry") -> None:
    """UserCodeError if code of users is kept out of this process."""
    if _keeping_out:
        raise UserCodeError(
            f"The service runs no code of flows: {what} is left to you.",
            next=f"In a terminal: {next_step}",
        )
