"""The contract of a store of runs, and what every store decides alike.

Rules: (1) a write is durable when it returns; (2) every write of a run's owner carries its
`Claim`; after another process has claimed the run it is refused with `errors.LeaseLostError`; (3)
a done call is never overwritten, only forgotten by an explicit order; (4) reading needs no claim;
(5) a store that cannot be read or written raises `errors.JournalError` within a limited time; (6)
a write whose caller is cancelled is made nevertheless, in its order; (7) a record that is not
ours is listed, but nothing that it names is loaded, run, removed or woken until a person has
accepted the whole run; records from before signatures count as somebody else's; (8) opening a
store, and asking for its `change_mark`, makes nothing.
Stores are opened by `flows.store.open_run_store`; tests/flows/store has the suite for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jackline.errors import UnreadableError, UsageError
from jackline.flows.records import (
    ENDED,
    AgentOrder,
    CallRecord,
    EntryRecord,
    HookRecord,
    NoteRecord,
    ResourceRecord,
    RunRecord,
    RunState,
    shown_action,
)
from jackline.flows.run_owner import owner_in_words

LOCK_SECONDS = 15.0
"""One try waits so long for another program's lock."""
RUN_PATIENCE = 600.0
"""A run waits so long for it, or for its disk, before it is paused: what was paid for is worth more
than minutes."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to carry a run, until the lease ends."""

    run_id: str
    owner: str
    epoch: int


class RunStore(Protocol):
    """Saves runs."""

    # --- runs ---------------------------------------------------------------------------------

    async def create(self, run: RunRecord, *, owner: str, lease: float) -> Claim:
        """Save a new run, claimed by `owner` for `lease` seconds; UsageError if its id is taken.

        Owner, lease and epoch come from here, whatever the record says of them.
        """

    async def claim(
        self, run_id: str, *, owner: str, lease: float, instead_of: str = ""
    ) -> Claim | None:
        """Take a run over; None while another owner's lease holds, or when it is unknown.

        `instead_of` names an owner that is known to be dead: its lease counts for nothing.

        Its state stays what it was until `change`. A request to `stop` is dropped, since somebody
        wants the run to go on; a `cancel` stays. An owner may claim again what it holds.
        """

    async def renew(self, claim: Claim, *, lease: float) -> None:
        """Hold the run for longer; also one whose lease ran out, unless it was taken over."""

    async def let_go(self, claim: Claim, run: RunRecord) -> None:
        """Save the run's new state and give up the lease.

        With a state that ended or stopped, a request to stop is answered and dropped.
        """

    async def change(self, claim: Claim, run: RunRecord) -> None:
        """Save the run's new state and hold the lease.

        That is: settings, state, updated_at, ended_at, why, wake_at, outcome, tokens, cost. All
        else stays. The store resets `confirmed` when the run leaves `parked`.
        """

    async def allow_waking(self, run_id: str) -> None:
        """A person confirms the next waking of a parked run; UsageError when it is not parked."""

    async def request_stop(self, run_id: str, how: str) -> None:
        """Save a request to the owner, who may be another process: `stop` or `cancel`.

        The stronger one stays. A run that has ended and is carried by nobody has nothing to stop.
        """

    async def stop_request(self, run_id: str) -> str:
        """What was requested, or an empty string."""

    async def run(self, run_id: str) -> RunRecord | None:
        """The run, by its id or an unambiguous beginning of it; UsageError names several."""

    async def runs(
        self, *, states: Collection[RunState] | None = None, limit: int = 200
    ) -> Sequence[RunRecord]:
        """Runs, the newest first."""

    async def fork(
        self,
        run_id: str,
        new: RunRecord,
        *,
        owner: str,
        lease: float,
        without: Collection[tuple[str, int]],
    ) -> Claim:
        """A new run that begins with the other's done calls, except those named.

        They keep their task ids, so that their sessions can be continued, and count no tokens
        or dollars: the other run has paid them.
        """

    async def delete_run(self, run_id: str, *, force: bool = False) -> None:
        """Drop an ended run and all that is saved of it.

        UsageError while it has not ended, is carried, holds resources or owes a hook; with `force`
        the last two are forgotten, not done. What it has spent still counts in `spent_since`.
        """

    async def wipe(self) -> bool:
        """Overwrite what was deleted, also in files beside the store; False: others use it now."""

    # --- keyed calls --------------------------------------------------------------------------

    async def calls(self, run_id: str, *, values: bool = True) -> Sequence[CallRecord]:
        """All calls of a run, in the order they were begun.

        Without `values` they have neither value nor outcome, and count as trusted unchecked.
        """

    async def begin_call(self, claim: Claim, call: CallRecord) -> None:
        """Save that a call was begun (again); its place in the order stays."""

    async def end_call(self, claim: Claim, call: CallRecord) -> None:
        """Save how a call ended, begun before or not; done ones are final."""

    async def forget_calls(
        self,
        claim: Claim,
        calls: Collection[tuple[str, int]],
        *,
        leaving: Sequence[EntryRecord] = (),
    ) -> None:
        """Drop the results of these calls, so that they run again, with a new log.

        The lines of `leaving` are added to other logs in the same write.
        """

    # --- orders to single agents --------------------------------------------------------------

    async def order_end(self, order: AgentOrder) -> None:
        """Save the order to end the agents of this name, in place of an earlier one; no claim."""

    async def ordered_ends(self, run_id: str) -> Sequence[AgentOrder]:
        """The orders to agents of a run, the oldest first; also those that were carried out."""

    async def answer_order(self, claim: Claim, order: AgentOrder) -> None:
        """Save the result of an order, unless the order was withdrawn or replaced meanwhile."""

    async def withdraw_order(self, run_id: str, name: str) -> bool:
        """Drop the order of this name, carried out or not; False when there is none."""

    # --- agents' logs -------------------------------------------------------------------------

    async def entries(self, task_id: str, *, kinds: Collection[str] = ()) -> Sequence[EntryRecord]:
        """An agent's log, the oldest line first; with `kinds` only lines of these."""

    async def write_entry(self, claim: Claim, entry: EntryRecord) -> None:
        """Add a line to a log; its number must be the next one, the first being 1."""

    async def find_session(self, session_id: str) -> CallRecord | None:
        """The agent call that uses this session, of whatever run; the latest if several do.

        Its log has a line of kind `session` whose data has it as `session_id`.
        """

    async def find_task(self, task_id: str) -> CallRecord | None:
        """The agent call with this task id."""

    # --- resources, hooks, log ----------------------------------------------------------------

    async def save_resource(self, resource: ResourceRecord) -> None:
        """Save a resource's state, by run and name; needs no claim, so that a reaper can."""

    async def resources(self, *, held_only: bool = True) -> Sequence[ResourceRecord]:
        """What was rented, the oldest first; `held_only` leaves out what was released."""

    async def begin_hook(self, hook: HookRecord, *, again: bool = False) -> bool:
        """Mark a hook as running; False when this end's hook has run, or runs, already.

        With `again`, one that failed, or whose process died while it ran, may be begun anew: pass
        the record as `hooks` returned it. The store counts `tries`, and of several callers that
        saw the same number only one may begin.
        """

    async def end_hook(self, hook: HookRecord) -> None:
        """Save how it ended (or, as `due`, that it has to run); `tries` stays as counted."""

    async def hooks(self, run_id: str) -> Sequence[HookRecord]:
        """All hooks of a run and how they ended."""

    async def owing_hooks(self) -> Sequence[str]:
        """The ids of the runs with a hook that is not done, in whatever state they are."""

    async def note(
        self, run_id: str, at: float, what: str, label: str, detail: dict[str, object]
    ) -> None:
        """Add a line to the run's log; `detail` is plain JSON."""

    async def notes(self, run_id: str, *, after: int = 0) -> Sequence[NoteRecord]:
        """The run's log after the line of that number; the first is 1."""

    # --- whose records they are -----------------------------------------------------------------

    async def agent_logs(self, run_id: str) -> Sequence[str]:
        """The ids of the agents whose logs this run has written, with a call or without."""

    async def untrusted_rows(self, run_id: str) -> int:
        """How many calls of this run, or lines that unfinished ones continue, are not ours."""

    async def digest(self, run_id: str) -> str:
        """A hash of all that is saved of this run and leads to code; it changes when that does."""

    async def accept(self, run_id: str, digest: str) -> None:
        """Count all records of this run as ours; UsageError when they changed since `digest`."""

    async def spent_since(self, at: float) -> tuple[int, float]:
        """Tokens and dollars of all runs' calls that ended since then, forgotten ones too.

        What is dated later than the wall clock was spent while that was ahead: it is dated anew
        when a run is created or claimed.
        """

    # --- the store itself -----------------------------------------------------------------------

    async def count_runs(self) -> Mapping[RunState, tuple[int, int]]:
        """How many runs are in each state, and how many of them have no time to wake."""

    async def change_mark(self) -> object:
        """Something that differs after each write; None while nothing was ever saved."""

    async def size(self) -> int:
        """The bytes that the store takes on the disk, as far as it knows."""

    def on_wait(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Have `listener` called, in any thread, with the reason when the store makes us wait.

        That is another program's lock, or a disk that is full or fails. Returns what undoes that. A
        write that waits too long is refused with `errors.StoreUnavailableError`, and nothing of it
        is saved.
        """

    def hurry(self) -> None:
        """Wait for no lock and no disk any longer than a single try takes."""

    async def close(self) -> None:
        """Finish writing and close the store."""


NOT_OURS = "not written by this installation: not run"


def how_to_accept(run_id: str) -> str:
    """The next step for a person who knows where the run comes from."""
    return f"see what it would run, and accept it if it is yours: jackline show {run_id} --trust"


def must_be_trusted(run: RunRecord) -> None:
    """Refuse a run that this installation did not write."""
    if not run.trusted:
        what = f"{run.source} is not loaded" if run.source else "it is not continued"
        raise UsageError(
            f"The run {run.run_id} was not written by this installation: {what}.",
            hint=how_to_accept(run.run_id),
        )


async def must_be_trusted_wholly(store: RunStore, run: RunRecord) -> None:
    """Refuse a run if it, or a result or an agent's log that it would use, is not ours."""
    must_be_trusted(run)
    if rows := await store.untrusted_rows(run.run_id):
        raise UsageError(
            f"Of what is saved of the run {run.run_id}, {rows} records were not written by this"
            " installation: it is not continued.",
            hint=how_to_accept(run.run_id),
        )


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
