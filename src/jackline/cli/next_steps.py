"""Say what can be done with a gateway that runs.

Laws: (1) on stderr: it is talk.
Not here: finding it (assembly/running_gateway.py).
"""

from __future__ import annotations

import click


def tell_next(url: str) -> None:
    """Say what can be done with a gateway that runs."""
    click.echo(f"next:  ANTHROPIC_BASE_URL={url} claude      (or: jackline claude)", err=True)
    click.echo("       jackline status tells how it stands; jackline down ends it", err=True)
