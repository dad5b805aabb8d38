"""`jackline uninstall`: undo what Jackline wrote outside of its own package.

Rules: (1) everything is shown before anything is done, and done only after a yes: of a person at
the terminal, or --yes; (2) it undoes the gateway's login service, timers, the plugin and the
clients' settings, in an order that starts nothing again, and with --state what Jackline saved; (3)
a file in which nothing else was changed is afterwards what it was, byte for byte; whatever is
somebody else's stays and is named; (4) a part that fails is reported, and hinders no other; (5)
resources that runs still hold may cost money: while there are any, the state is not deleted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from jackline import event_loop, programs
from jackline.agents.process.child import remove_left_files
from jackline.assembly import StateDir
from jackline.assembly.gateway_process import find, order, wait_until_gone
from jackline.assembly.saved_runs import open_state_store
from jackline.cli.client_setup import disconnection
from jackline.cli.gateway_flags import configured, service_place, warn_of_faults
from jackline.cli.gateway_service import login_service, systemd
from jackline.cli.plugin_setup import FOLDER_NAME, ClaudeProgram, plugin_removal
from jackline.cli.system_steps import Installation, Run, Step, Write
from jackline.cli.terminal import say
from jackline.cli.wake_timer import set_timers, timer_removal
from jackline.clients import claude_code, codex
from jackline.clients.claude_code import ConnectionRecords
from jackline.clients.plugin import PLUGIN_ID, remove
from jackline.clients.settings_change import backup_of, read_settings
from jackline.config import ServicePlace
from jackline.control.text import counted
from jackline.errors import ExitCode, JacklineError, UsageError
from jackline.flows.store import run_store_exists, run_store_url
from jackline.private_files import default_config_folder, default_state_folder, key_folder


@dataclass(frozen=True, slots=True)
class Part:
    """One thing to undo: what it is, in lines, and how."""

    what: str
    undo: Callable[[], object]
    details: Sequence[str] = ()


@dataclass(slots=True)
class Found:
    """All that is to be undone, and what stays."""

    parts: list[Part] = field(default_factory=list)
    stays: list[str] = field(default_factory=list)


@click.command()
@click.option("--state", "with_state", is_flag=True, help="Also delete what was saved: runs, logs.")
@click.option("--dry-run", is_flag=True, help="Only show what would be undone.")
@click.option("--yes", is_flag=True, help="Undo it without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def uninstall(with_state: bool, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Undo what Jackline set up: timers, the login service, plugin and clients' settings.

    It stops the gateway, and restores the settings files that `jackline connect` changed. Your own
    jackline.toml stays, and so does the package: remove that as you installed it. It undoes what
    the state folder of this configuration knows of.

    Exit codes: 0 undone, or there was nothing to undo; 1 you said no, or a part failed.
    """
    place = service_place({})
    warn_of_faults(place)
    found = _find_all(place, with_state=with_state)
    if not as_json:
        for part in found.parts:
            say(part.what)
            for line in part.details:
                click.echo(f"    {line}")
    failed: list[tuple[str, JacklineError]] = []
    if found.parts and not dry_run:
        if not yes and not _agreed(found, as_json=as_json):
            click.echo("nothing was changed", err=True)
            return ExitCode.FAILED
        failed = _undo_all(found.parts)
    if as_json:
        document = {
            "schema": "jackline.uninstall/1",
            "dry_run": dry_run,
            "parts": [part.what for part in found.parts],
            "failed": [{"part": what, **error.to_json()} for what, error in failed],
            "stays": found.stays,
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _report(found, failed, dry_run=dry_run)
    return ExitCode.FAILED if failed else ExitCode.DONE


def _report(found: Found, failed: Sequence[tuple[str, JacklineError]], *, dry_run: bool) -> None:
    for what, error in failed:
        say(f"error: {what}: {error.message}", err=True)
        if error.hint:
            say(f"hint:  {error.hint}", err=True)
    if not found.parts:
        click.echo("there is nothing to undo", err=True)
    elif dry_run:
        click.echo("nothing was changed: --dry-run", err=True)
    for line in found.stays:
        say(f"stays: {line}", err=True)


def _agreed(found: Found, *, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise UsageError(
            f"nobody has confirmed that {counted(len(found.parts), 'thing')} may be undone",
            hint="see them with --dry-run, then add --yes",
        )
    return click.confirm("Undo all of this?", default=False, err=True)


def _undo_all(parts: Sequence[Part]) -> list[tuple[str, JacklineError]]:
    """Undo each part; returns those that could not be."""
    failed: list[tuple[str, JacklineError]] = []
    for part in parts:
        try:
            part.undo()
        except JacklineError as error:
            failed.append((part.what, error))
        except OSError as error:
            failed.append((part.what, UsageError(f"{error.filename}: {error.strerror}")))
    return failed


def _find_all(place: ServicePlace, *, with_state: bool) -> Found:
    found = Found()
    # Whatever could start a gateway again goes before the gateway, which writes to the state.
    found.parts += _timers()
    found.parts += _login_service()
    found.parts += _gateway(place)
    _find_plugin(place, found)
    _find_settings(place, found)
    if with_state:
        _find_state(place, found)
    elif any(Path(folder).exists() for folder in (place.state_dir, key_folder())):
        found.stays.append(f"what was saved, in {place.state_dir} (--state deletes it)")
    own = Path(default_config_folder()) / "jackline.toml"
    if own.exists():
        found.stays.append(f"{own}, which is yours")
    return found


def _part_of_steps(what: str, installation: Installation) -> Part:
    """A part that is undone by steps of the system; commands that are not there are left out."""
    steps: list[Step] = []
    for step in installation.uninstall:
        if isinstance(step, Run) and programs.find_program(step.command[0]) is None:
            continue
        steps.append(step)

    def undo() -> None:
        for step in steps:
            step.apply()

    return Part(what, undo, [str(step) for step in steps])


def _timers() -> Iterator[Part]:
    for run_id in set_timers():
        yield _part_of_steps(f"the timer that wakes run {run_id}", timer_removal(run_id))


def _login_service() -> Iterator[Part]:
    if sys.platform in ("win32", "darwin"):
        service = login_service(())
    else:
        # Its unit may be there on a machine, or in a container, where no systemd runs now.
        configured_folder = os.environ.get("XDG_CONFIG_HOME")
        folder = Path(configured_folder) if configured_folder else Path.home() / ".config"
        service = systemd((), folder)
    if any(step.path.exists() for step in service.install if isinstance(step, Write)):
        yield _part_of_steps("the login service that starts the gateway", service)


def _gateway(place: ServicePlace) -> Iterator[Part]:
    folder = StateDir(place.state_dir)
    running = find(folder, place.listen)
    if running is not None:

        def stop() -> None:
            order(running, "stop")
            if not wait_until_gone(folder, running):
                raise UsageError(
                    f"the gateway, process {running.pid}, has not stopped yet",
                    hint="its calls may still run; run it again once they have ended",
                )

        yield Part(f"the gateway at {running.url} is stopped", stop)


def _find_plugin(place: ServicePlace, found: Found) -> None:
    user = claude_code.settings_file(os.environ)
    places = {False: user, True: Path.cwd() / ".claude" / "settings.json"}
    named = [
        project
        for project, file in places.items()
        if f'"{PLUGIN_ID}"' in (read_settings(file) or "") and not (project and file == user)
    ]
    has_client = programs.find_program("claude") is not None
    for project in named:
        if not has_client:
            found.stays.append(
                f"the plugin in {places[project]}: there is no Claude Code on the PATH to remove it"
            )
            continue
        steps = plugin_removal(ClaudeProgram(), project=project)
        what = "the plugin of Claude Code" + (" in this project" if project else "")
        found.parts.append(_part_of_steps(what, Installation((), tuple(steps))))
    folder = place.state_dir / FOLDER_NAME
    if folder.exists() or folder.is_symlink():
        found.parts.append(Part(f"the plugin's files in {folder}", lambda: remove(folder)))


def _find_settings(place: ServicePlace, found: Found) -> None:
    user, rollouts = claude_code.settings_file(os.environ), codex.settings_file(os.environ)
    recorded = ConnectionRecords(place.state_dir).files()
    files = [("claude-code", path) for path in dict.fromkeys([*recorded, user])]
    for client, path in [*files, ("codex", rollouts)]:
        one = disconnection(client, path, place.state_dir)
        found.stays += [f"{key} in {path}, which was changed since" for key in one.left_alone]
        if one.warning:
            found.stays.append(one.warning)
        if one.change.changes_anything or path in recorded or backup_of(path).exists():

            def restore(client: str = client, path: Path = path) -> None:
                _restore(client, path, place.state_dir)

            what = f"the settings of {client} in {path}"
            found.parts.append(Part(what, restore, one.change.diff().splitlines()))


def _restore(client: str, path: Path, state: Path) -> None:
    """Give the file its own values back, and remove the backup if it holds nothing else."""
    one = disconnection(client, path, state)  # read again: the plugin was in it
    one.change.apply(backup=False)
    one.forget()
    backup = backup_of(path)
    if backup.exists() and read_settings(backup) == one.change.after:
        backup.unlink()


def _find_state(place: ServicePlace, found: Found) -> None:
    # The agreements to projects' files are in the default folder, whatever is configured.
    folders = dict.fromkeys((place.state_dir, Path(default_state_folder())))
    for folder in folders:
        if not folder.is_dir():
            continue
        held, runs = event_loop.run(_held_and_runs(folder))
        if held:
            raise UsageError(
                f"runs in {folder} still hold {', '.join(held)}, which may cost money",
                hint="release it: jackline resources --retry",
            )
        files = StateDir(folder).own_files()
        found.parts.append(
            Part(
                f"all that was saved in {folder}: {counted(runs, 'run')}, the journal, the logs",
                lambda folder=folder: _delete_state(folder),  # type: ignore[misc]
                [str(file) for file in files],
            )
        )
    if Path(key_folder()).is_dir():
        what = f"the installation key in {key_folder()}"
        found.parts.append(Part(what, lambda: _delete_key(Path(key_folder()))))


async def _held_and_runs(folder: Path) -> tuple[list[str], int]:
    """The resources that runs in this folder hold, and the number of its runs."""
    if not run_store_exists(run_store_url(folder)):
        return [], 0
    config = configured({"state": str(folder)}, with_secrets=False)
    engine = open_state_store(config)
    try:
        held = [each.name for each in await engine.resources()]
        return held, len(await engine.runs(limit=1_000_000))
    finally:
        await engine.close()


def _delete_state(folder: Path) -> None:
    remove_left_files()
    for file in StateDir(folder).own_files():
        file.unlink(missing_ok=True)
    with suppress(OSError):  # something else of the user is in it
        folder.rmdir()


def _delete_key(folder: Path) -> None:
    for file in folder.glob("installation.key*"):
        file.unlink(missing_ok=True)
    with suppress(OSError):  # something else of the user is in it
        folder.rmdir()
