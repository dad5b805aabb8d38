"""Say what to do now about a cause, in plain words, the most helpful sentence first.

Laws: (1) pure; (2) advice follows from the failure's own fields, never from its text.
Not here: how to resume (resume.py), whose fault a failure is (failures/sentences.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackline.autopsy.figures import clock
from jackline.failures import Kind
from jackline.failures.sentences import explain

if TYPE_CHECKING:
    from datetime import datetime

    from jackline.autopsy.causes import Cause


def what_to_do(cause: Cause, *, now: datetime) -> tuple[str, ...]:
    """The steps for this cause."""
    what_it_is, what_helps = explain(cause.failure, now)[:2]
    if cause.resets_at is not None and cause.resets_at <= now:
        passed = f"The reset ({clock(cause.resets_at, beside=now)}) has passed: resume now."
        return (passed, what_it_is)
    if cause.resets_at is not None:
        wait = f"Wait until {clock(cause.resets_at, beside=now)}, then resume."
        return (wait, what_helps, what_it_is)
    if cause.failure.kind is Kind.ACCOUNT_QUOTA:
        return ("Wait for the limit to refill; no text said when.", what_helps, what_it_is)
    return (what_helps, what_it_is)
