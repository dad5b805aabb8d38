"""What every store of runs decides alike: leases in force, what is deleted; times are arguments."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jackline.errors import UnreadableError, UsageError
from jackline.flows.records import (
    ENDED,
    HookRecord,
    ResourceRecord,
    RunRecord,
    RunState,
    shown_action,
)
from jackline.flows.run_owner import owner_in_words

STOP = "stop"
CANCEL = "cancel"
ANSWERS_STOP = ENDED | {RunState.STOPPED}
"""A run that is let go in one of these states has done what a request to stop wants."""
_NAMED_AT_MOST = 5


def lease_holds(until: float, seconds: float, now: float) -> bool:
    """Whether a lease of `seconds` is in force.

    One that seems to last for more than twice its length was made by a clock that has been set
    back since; else a dead owner would hold its run for as long as the clock was wrong. A living
    one that loses its run this way is fenced off by the epoch, like any other.
    """
    return 0 < until - now <= 2 * seconds


def must_be_deletable(
    run: RunRecord,
    *,
    carried: bool,
    held: Sequence[ResourceRecord],
    owed: Sequence[HookRecord] = (),
) -> None:
    """Refuse to delete what someone may still need."""
    if run.state not in ENDED:
        raise UsageError(
            f"Run {run.run_id} has not ended (it is {run.state}).",
            hint=f"End it first: `jackline cancel {run.run_id}`.",
        )
    if carried:
        raise UsageError(
            f"Run {run.run_id} has not ended wholly: {owner_in_words(run.owner)} cleans up"
            " after it.",
            hint=f"Wait for that: `jackline logs {run.run_id} -f`.",
        )
    if held:
        raise UsageError(
            f"Run {run.run_id} still holds {named([one.name for one in held])}.",
            hint="Release it: `jackline resources --retry`; or by hand, then delete with --force.",
        )
    if owed:
        hooks = named([shown_action(one.hook) for one in owed])
        raise UsageError(
            f"Run {run.run_id} still owes its clean-up: {hooks}.",
            hint="Try it again (`jackline resources --retry`), or delete with --force.",
        )


def unknown_run(run_id: str) -> UnreadableError:
    """There is no such run."""
    return UnreadableError(f"There is no run {run_id!r}.", hint="See `jackline ls` for all runs.")


def named(names: Collection[str]) -> str:
    """Some names, and how many more there are."""
    shown = sorted(names)[:_NAMED_AT_MOST]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
