"""Say it when the gateway that runs is not what was asked for here.

Laws: (1) only what flags and variables ask is looked at: files are read again by the gateway
itself; (2) a warning, not an error: the gateway that runs goes on as it was started; (3) on stderr.
Not here: finding it (assembly/running_gateway.py).
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from jackline.assembly import Running
from jackline.assembly.running_gateway import status_of
from jackline.config import Config
from jackline.errors import UnreachableError

_ASKED_HERE = ("flag --upstream", "JACKLINE_UPSTREAM")
# What only the start of a gateway decides, and nobody can see from outside.
_AT_THE_START = {"afk": "--afk", "read_only": "--read-only", "config": "--config"}


def warn_if_otherwise(
    running: Running, config: Config, flags: Mapping[str, object] | None = None
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


def _sends_to(running: Running) -> object:
    try:
        return status_of(running).get("upstream")
    except UnreachableError:
        return None  # it has just ended: whoever wants to use it will say so
