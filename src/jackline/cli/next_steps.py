"""Say what can be done with a gateway that runs.

Laws: (1) on stderr: it is talk.
Not here: finding it (assembly/running_gateway.py).
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from jackline.programs import find_program


def tell_next(url: str) -> None:
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
