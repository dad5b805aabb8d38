"""Print what to do with a running gateway, and warn when it differs from what this command wants.

Rules: (1) everything goes to stderr; (2) only flags and variables are compared: the gateway reads
changed files by itself; (3) a difference is a warning, not an error: the gateway goes on as it was
started.
Not here: finding the gateway (assembly/gateway_process.py).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from jackline.assembly import RunningGateway
from jackline.assembly.gateway_process import status_of
from jackline.config import Config
from jackline.errors import UnreachableError
from jackline.programs import find_program

_ASKED_HERE = ("flag --upstream", "JACKLINE_UPSTREAM")
# What only the start of a gateway decides, and nobody can see from outside.
_AT_THE_START = {"afk": "--afk", "read_only": "--read-only", "config": "--config"}


def warn_if_different(
    running: RunningGateway, config: Config, flags: Mapping[str, object] | None = None
) -> None:
    """Say where the gateway sends to, if elsewhere was asked, and which flags it did not see."""
    found = []
    asked, sends_to = config.gateway.upstream.url, _sends_to(running)
    here = config.origins.get("upstream.url") in _ASKED_HERE
    if here and sends_to is not None and sends_to != asked:
        found.append(f"it sends to {sends_to}, not to {asked}")
    unseen = [word for name, word in _AT_THE_START.items() if (flags or {}).get(name)]
    if unseen:
        found.append(f"{' and '.join(unseen)} cannot change a gateway that runs")
    if found:
        click.echo(f"warning: {'; '.join(found)}", err=True)
        click.echo("next:  jackline down, then the same command again", err=True)


def _sends_to(running: RunningGateway) -> object:
    try:
        return status_of(running).get("upstream")
    except UnreachableError:
        return None  # it has just ended: whoever wants to use it will say so


def print_next_steps(url: str) -> None:
    """Say what can be done with a gateway that runs."""
    click.echo(f"next:  ANTHROPIC_BASE_URL={url} claude      (or: jackline claude)", err=True)
    click.echo("       jackline status tells how it stands; jackline down ends it", err=True)
    if find_program("jackline") is None and sys.prefix != sys.base_prefix:
        click.echo(f"       (in a new shell first: {_activation(Path(sys.prefix))})", err=True)


def _activation(environment: Path) -> str:
    """What puts the commands of this virtual environment on a shell's PATH."""
    folder = Path.cwd()
    near = environment.relative_to(folder) if environment.is_relative_to(folder) else environment
    if sys.platform == "win32":
        return str(near / "Scripts" / "activate")
    return f". {shlex.quote(str(near / 'bin' / 'activate'))}"
