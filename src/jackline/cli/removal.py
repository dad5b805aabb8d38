"""`jackline rm` and `jackline purge`: delete runs, their logs and notebooks, for good.

Rules: (1) a run is not deleted while a process runs it, before it has ended, or while it holds a
rented resource; (2) a name that means no run, or several, stops the command before anything is
deleted; of several runs, those that may be deleted are, and each other one is reported; (3) a
person confirms at a terminal, a script with --yes; (4) deleted data is overwritten on the disk,
also in the log files beside the store; the sums of what was spent stay; (5) a clock by which
everything is old may be wrong: then somebody has to name its date.
Which runs may be deleted: flows/store/run_store.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import click

from jackline import event_loop
from jackline.agents.process.child import remove_left_files
from jackline.assembly import StateDir
from jackline.assembly.gateway_process import find, status_of
from jackline.assembly.saved_runs import open_quiet_host
from jackline.budgets.budget import seconds_of
from jackline.cli.arguments import run_ids
from jackline.cli.gateway_flags import configured
from jackline.cli.run import AS_JSON, STATE
from jackline.cli.run_text import has_live_owner, no_runs
from jackline.cli.terminal import say
from jackline.clock import SystemClock
from jackline.config import Config
from jackline.control.text import counted
from jackline.errors import JacklineError, JournalError, UsageError
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import cancel_run, known_run
from jackline.flows.records import ENDED, RunRecord, RunState
from jackline.flows.store import run_store_exists, run_store_url
from jackline.flows.store.run_store import must_be_deletable
from jackline.journal import JournalReader
from jackline.journal.sqlite_file import COMPANIONS
from jackline.journal.store import DAY, forget_runs
from jackline.outside_names import printable
from jackline.private_files import open_private, quoted

_ALL = 1_000_000
_LOGS = ("woken-runs.log", "ordered-runs.log")

DRY_RUN = click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
YES = click.option("--yes", is_flag=True, help="Delete without asking.")


@click.command()
@click.argument("names", metavar="ID...", nargs=-1, required=True, shell_complete=run_ids)
@click.option(
    "--force",
    is_flag=True,
    help="Also delete runs whose clean-up failed; their resources are not released.",
)
@DRY_RUN
@YES
@AS_JSON
@STATE
def rm(
    names: tuple[str, ...], force: bool, dry_run: bool, yes: bool, as_json: bool, state: str | None
) -> int:
    """Delete runs with their results, saved turns and logs, for good.

    ID is a run's id, or its beginning. Only ended runs are deleted: `jackline cancel` ends one. A
    fork keeps what it shares with the run it came from. Spent tokens and dollars stay in the sums.

    Exit codes: 0 all deleted, 1 some were not, 2 an id fits no run or several: nothing deleted.
    """
    config = configured({"state": state}, with_secrets=False)

    async def choose(host: FlowHost) -> list[RunRecord]:
        found = [await known_run(host, name) for name in names]
        return list({run.run_id: run for run in found}.values())

    if not run_store_exists(run_store_url(config.state_dir)):
        raise no_runs(config.state_dir)
    removal = _Removal(config, force=force, dry_run=dry_run, yes=yes, as_json=as_json)
    return removal.run(choose)


@click.command()
@click.option(
    "--older",
    metavar="TIME",
    default="30d",
    show_default=True,
    help="Delete runs that ended at least this long ago: 12h, 30d, 8w.",
)
@click.option(
    "--parked",
    is_flag=True,
    help="Also cancel and delete runs that wait, were stopped or cut off, untouched for this time.",
)
@click.option(
    "--today",
    metavar="DATE",
    help="The date (2027-01-31): needed where nothing is new, because the clock may be wrong.",
)
@DRY_RUN
@YES
@AS_JSON
@STATE
def purge(
    older: str,
    parked: bool,
    today: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    state: str | None,
) -> int:
    """Delete all runs that ended long ago, as `jackline rm` does.

    With --parked, it also deletes runs that have not ended and that no process has touched for this
    time. It cancels them first, with their clean-up.

    Exit codes: 0 all were deleted, or there were none; 1 some were not; 2 the clock may be wrong,
    and nothing was deleted.
    """
    config = configured({"state": state}, with_secrets=False)
    period, now = seconds_of(older), SystemClock().wall()

    async def choose(host: FlowHost) -> list[RunRecord]:
        runs = await host.engine.runs(limit=_ALL)
        believed, newest = await asyncio.to_thread(_believed_and_newest, config, now)
        newest = max(newest, *(max(run.updated_at, run.ended_at or 0.0) for run in runs), 0.0)
        before = believed - period
        chosen = [
            run
            for run in runs
            if (run.ended_at or run.updated_at or run.created_at) <= before
            and (run.state in ENDED or (parked and not has_live_owner(run, now)))
        ]
        # Of all that is there (0s), nothing is deleted by the clock.
        nothing_is_new = period > 0 and newest <= min(before, believed - DAY)
        if chosen and nothing_is_new and today != _date(now):
            removal.doubt = (
                f"the clock says {_date(now)}, and the newest run or record is of {_date(newest)};"
                " if the clock is wrong, these runs are not old"
            )
        return chosen

    removal = _Removal(config, dry_run=dry_run, yes=yes, as_json=as_json, cancels=parked)
    return removal.run(choose)


def _believed_and_newest(config: Config, now: float) -> tuple[float, float]:
    """The time that the gateway believes, and when it was last at work, as far as is known."""
    state, newest = StateDir(config.state_dir), 0.0
    with suppress(JournalError), JournalReader(state.journal) as reader:
        newest = reader.newest() or 0.0
    with suppress(JacklineError):
        running = find(state, config.gateway.listen)
        if running is not None:
            newest = max(newest, running.started)
            believed = status_of(running).get("believed_at")
            if isinstance(believed, float):
                now = min(now, believed)
    return now, newest


def _date(at: float) -> str:
    return f"{SystemClock().in_host_zone(datetime.fromtimestamp(at, UTC)):%Y-%m-%d}"


@dataclass
class _Removal:
    """One command's deletion and its result."""

    config: Config
    dry_run: bool
    yes: bool
    as_json: bool
    force: bool = False
    cancels: bool = False
    doubt: str = ""
    """Why the clock may be wrong by which these runs are old."""
    removed: list[str] = field(default_factory=list)
    refused: list[tuple[str, UsageError]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    freed: int = 0

    def run(self, choose: Callable[[FlowHost], Awaitable[list[RunRecord]]]) -> int:
        """Delete the runs that `choose` returns; returns the exit code."""
        state = StateDir(self.config.state_dir)
        if not self.dry_run:
            remove_left_files()
        if not run_store_exists(run_store_url(state.folder)):
            self._report()
            return 0

        async def main() -> None:
            async with open_quiet_host(self.config) as host:
                runs = await choose(host)
                if self.dry_run:
                    self.notes += filter(None, (self.doubt,))
                    for run in runs:
                        await self._preview(host, run)
                if self.dry_run or not runs:
                    return
                self._confirm(runs)
                before = await host.engine.size()
                for run in runs:
                    await self._remove(host, run)
                if self.removed:
                    await self._wipe(host, state)
                    self.freed = max(0, before - await host.engine.size())

        event_loop.run(main())
        self._report()
        return 1 if self.refused else 0

    def _confirm(self, runs: Sequence[RunRecord]) -> None:
        asks = not (self.yes or self.as_json) and sys.stdin.isatty()
        if self.doubt and not asks:
            raise UsageError(
                f"nothing is deleted: {self.doubt}",
                hint="look at the clock; if it is right, add --yes --today "
                + _date(SystemClock().wall()),
            )
        if self.yes:
            return
        what = counted(len(runs), "run")
        if not asks:
            raise UsageError(
                f"nobody has confirmed that {what} may be deleted for good",
                hint="see them with --dry-run, then add --yes",
            )
        for run in runs:
            say(printable(f"{run.run_id}  {run.flow}  {run.state.value}"), err=True)
        if self.doubt:
            say(f"note:  {self.doubt}", err=True)
        if not click.confirm(f"Delete {what} for good?", default=False, err=True):
            raise click.exceptions.Exit(1)

    async def _preview(self, host: FlowHost, run: RunRecord) -> None:
        """Note what `_remove` would do."""
        cancelled = replace(run, state=RunState.CANCELLED)
        would_be = cancelled if self.cancels and run.state not in ENDED else run
        held = [row for row in await host.engine.resources() if row.run_id == run.run_id]
        hooks = [row for row in await host.engine.hooks(run.run_id) if row.trusted]
        owed = [row for row in hooks if row.state != "done"]
        lenient = self.force or would_be is cancelled
        try:
            must_be_deletable(
                would_be,
                carried=has_live_owner(run, SystemClock().wall()),
                held=[] if lenient else held,
                owed=[] if lenient else owed,
            )
        except UsageError as error:
            self.refused.append((run.run_id, error))
        else:
            self.removed.append(run.run_id)

    async def _remove(self, host: FlowHost, run: RunRecord) -> None:
        try:
            if self.cancels and run.state not in ENDED:
                await cancel_run(host, run.run_id)
            await host.engine.delete_run(run.run_id, force=self.force)
        except UsageError as error:
            self.refused.append((run.run_id, error))
        else:
            self.removed.append(run.run_id)

    async def _wipe(self, host: FlowHost, state: StateDir) -> None:
        if not await host.engine.wipe():
            self.notes.append(
                "another process uses the store: what was deleted is overwritten when it is closed"
            )
        try:
            forgotten = await asyncio.to_thread(forget_runs, state.journal, self.removed)
        except JournalError as error:
            self.notes.append(f"{error.message}: nothing in it was deleted. {error.hint}")
        else:
            if forgotten is None:
                self.notes.append("the journal is in use: it still has the figures of their calls")
        self.notes += [
            f"{old} is a damaged journal that was put aside, and may still have figures of their"
            f" calls; if you need nothing of it: rm {quoted(str(old))}*"
            for old in sorted(state.folder.glob(f"{state.journal.name}.damaged-*"))
            if not old.name.endswith(COMPANIONS)
        ]
        for name in _LOGS:
            await asyncio.to_thread(self._forget_lines, state.folder / name)

    def _forget_lines(self, log: Path) -> None:
        """Overwrite the lines that name a removed run with blanks.

        Others append to the log meanwhile: nothing in it is moved, and nothing cut off.
        """
        if not log.is_file():
            return
        with os.fdopen(open_private(log, os.O_RDWR), "r+b") as file:
            either = "|".join(re.escape(run_id) for run_id in self.removed if run_id)
            named = re.compile(rf"(?<![\w-])(?:{either})(?![\w-])".encode())
            start = 0
            for line in file.read().splitlines(keepends=True):
                if named.search(line):
                    file.seek(start)
                    file.write(b" " * len(line.rstrip(b"\r\n")))
                start += len(line)

    def _report(self) -> None:
        if self.as_json:
            document = {
                "schema": "jackline.runs-removed/1",
                "removed": self.removed,
                "refused": [
                    {"run": run_id, "why": error.message, "hint": error.hint}
                    for run_id, error in self.refused
                ],
                "dry_run": self.dry_run,
                "bytes_freed": self.freed,
                "notes": self.notes,
            }
            click.echo(json.dumps(document, indent=2))
            return
        word = "would be deleted" if self.dry_run else "deleted"
        if self.dry_run:
            for run_id in self.removed:
                click.echo(printable(run_id))
        freed = "" if self.dry_run or not self.freed else f", {self.freed:,} bytes freed"
        say(f"{counted(len(self.removed), 'run')} {word}{freed}", err=True)
        for run_id, error in self.refused:
            click.echo(
                printable(f"{run_id} is not deleted: {error.message} {error.hint}"), err=True
            )
        for note in self.notes:
            say(printable(f"note:  {note}"), err=True)
