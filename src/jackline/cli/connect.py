"""`jackline connect` and `jackline disconnect`: point a client at the gateway in its own settings.

Laws: (1) what changes is shown, and with --dry-run only shown; (2) `disconnect` works without any
gateway, and with a faulty configuration: it is what one needs then; (3) both may be run twice.
Not here: what is written (clients/).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import click

from jackline.agents.claude_code.environment import BASE_URL, CLIENT_VARIABLES, client_environment
from jackline.assembly import StateDir, local_url
from jackline.assembly.running_gateway import find
from jackline.cli.gateway_flags import configured, service_place, warn_of_faults
from jackline.cli.own_command import own_command
from jackline.clients import claude_code, codex
from jackline.clients.changing import Change, text_of
from jackline.clients.records import ConnectionRecords
from jackline.config import Config
from jackline.errors import BadArgumentError, UsageError
from jackline.providers.settings import UpstreamKind

_NO_RESPONSES = (
    "no upstream of this gateway speaks what Codex speaks, so its calls will be refused; next:"
    " jackline upstream add openai --preset openai --credential pass-through"
)
_CLIENTS = click.Choice(["claude-code", "codex"])
_client = click.argument("client", type=_CLIENTS)
_project = click.option(
    "--project", is_flag=True, help="Only in this folder (.claude/settings.local.json)."
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would change, change nothing.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@dataclass(frozen=True, slots=True)
class _Done:
    """What became of one settings file."""

    change: Change
    backup: Path | None
    kept: list[str]
    dry_run: bool
    warning: str = ""

    def tell(self, words: str, *, as_json: bool) -> None:
        """Say it."""
        if as_json:
            told = {
                "schema": "jackline.connect/1",
                "file": str(self.change.path),
                "changed": self.change.is_one and not self.dry_run,
                "would_change": self.change.is_one,
                "backup": None if self.backup is None else str(self.backup),
                "left_alone": self.kept,
                "warning": self.warning or None,
            }
            click.echo(json.dumps(told, indent=2))
            return
        if self.change.is_one:
            click.echo(self.change.shown())
        for key in self.kept:
            click.echo(f"left alone, because it was changed since: {key}", err=True)
        if self.dry_run:
            click.echo("nothing was changed: --dry-run", err=True)
        elif self.change.is_one:
            click.echo(words, err=True)
            if self.backup is not None:
                click.echo(f"the file as it was before: {self.backup}", err=True)
        else:
            click.echo(f"{self.change.path} is so already", err=True)
        if self.warning:
            click.echo(f"warning: {self.warning}", err=True)


@click.command()
@_client
@_project
@_dry_run
@_as_json
def connect(client: str, project: bool, dry_run: bool, as_json: bool) -> int:
    """Let a client go through the gateway, by its own settings file.

    So that also its extension in an editor and its desktop version do, without variables in any
    shell. Everything else in the file stays; a backup is kept beside it.

    \b
    Examples:
      jackline connect claude-code              for you, everywhere
      jackline connect claude-code --project    only in this folder
      jackline connect codex --dry-run          only show it
    """
    config = configured({}, with_secrets=False)
    if config.gateway.listen.token is not None:
        raise BadArgumentError(
            "this gateway asks for a token, which must not stand in a client's settings",
            next="connect by variables instead: jackline env --help",
        )
    folder = StateDir(config.state_dir)
    running = find(folder, config.gateway.listen)
    url = _address(config) if running is None else running.url
    if client == "codex":
        done = _connect_codex(config, url, project=project, dry_run=dry_run)
    else:
        done = _connect_claude(folder, url, project=project, dry_run=dry_run)
    done.tell(f"{client} goes through {url} from its next start on", as_json=as_json)
    if running is None and not dry_run:
        click.echo("no gateway runs yet: jackline up -d (at every login: up --install)", err=True)
    return 0


@click.command()
@_client
@_project
@_dry_run
@_as_json
def disconnect(client: str, project: bool, dry_run: bool, as_json: bool) -> int:
    """Give a client its own settings back, so that it goes to its vendor directly again."""
    place = service_place({})
    warn_of_faults(place)
    if client == "codex":
        path = _codex_file(project=project)
        before = text_of(path)
        change = Change(path, before, codex.disconnected(before, path))
        kept: list[str] = []
        warning = ""
    else:
        records = ConnectionRecords(place.state_dir)
        path = _claude_file(project=project)
        before = text_of(path)
        written = records.of(path) or _unrecorded(before, path)
        after, kept = claude_code.disconnected(before, path, written)
        address = claude_code.variables_in(after, path).get(BASE_URL)
        still = f"{BASE_URL} is still {address} in it, and {place.state_dir} has no record of that"
        advice = f"{still}; if you do not want it, remove the line" if address else ""
        warning = "; ".join(filter(None, (records.ignored(path), advice)))
        change = Change(path, before, after)
        if not dry_run:
            records.forget(path)
    # A file that held nothing but ours is no copy of how it was before.
    backup = None if dry_run else change.make(backup=change.after is not None)
    done = _Done(change, backup, kept, dry_run, warning)
    where = "has its own settings back" if warning else "goes to its vendor directly"
    done.tell(f"{client} {where} from its next start on", as_json=as_json)
    return 0


def _connect_claude(folder: StateDir, url: str, *, project: bool, dry_run: bool) -> _Done:
    path = _claude_file(project=project)
    before = text_of(path)
    theirs = claude_code.variables_in(before, path)
    variables = client_environment(url, afk=False, environ={**os.environ, **theirs})
    after, written = claude_code.connected(before, path, variables, own_command("statusline"))
    change = Change(path, before, after)
    backup = None
    records = ConnectionRecords(folder.folder)
    warning = records.ignored(path)
    if not dry_run:
        # First the record: who is interrupted between the two can still take back all of it.
        folder.make()
        if not records.of(path):
            # Values of ours that nobody recorded are not what the user had before.
            records.keep(path, _unrecorded(before, path))
        records.keep(path, written)
        backup = change.make()
    return _Done(change, backup, [], dry_run, warning)


def _unrecorded(text: str | None, path: Path) -> claude_code.Written:
    waiting = {each.name: each.value for each in CLIENT_VARIABLES}
    return claude_code.unrecorded(text, path, BASE_URL, waiting)


def _connect_codex(config: Config, url: str, *, project: bool, dry_run: bool) -> _Done:
    path = _codex_file(project=project)
    before = text_of(path)
    env_key = "OPENAI_API_KEY" if os.environ.get("OPENAI_API_KEY") else None
    change = Change(path, before, codex.connected(before, path, url, env_key=env_key))
    backup = None if dry_run else change.make()
    kinds = {each.kind for each in config.gateway.upstreams}
    warning = "" if UpstreamKind.OPENAI_RESPONSES in kinds else _NO_RESPONSES
    return _Done(change, backup, [], dry_run, warning)


def _claude_file(*, project: bool) -> Path:
    here = Path.cwd() if project else None
    path = claude_code.settings_file(os.environ, claude_code.user_home(), here)
    if here is not None:
        _refuse_links(here, path)
    return path


def _refuse_links(project: Path, path: Path) -> None:
    """A repository's link would let it choose which of the user's files is changed."""
    plain = project.resolve() / path.relative_to(project)
    target = Path(os.path.realpath(path))
    if path.is_symlink() or os.path.normcase(target) != os.path.normcase(plain):
        raise UsageError(
            f"{path} leads to {target} by a link, which is not followed in a project",
            next="remove the link, then run it again; or leave --project away",
        )


def _codex_file(*, project: bool) -> Path:
    if project:
        raise BadArgumentError("Codex has no settings for a project", next="leave --project away")
    return codex.settings_file(os.environ, claude_code.user_home())


def _address(config: Config) -> str:
    listen = config.gateway.listen
    if listen.port == 0:
        raise BadArgumentError(
            "the gateway takes another port at each start, so no settings can name it",
            next="set listen.port in jackline.toml",
        )
    return local_url(listen.host, listen.port)
