"""`jackline down`: end the gateway in good order.

Laws: (1) only the gateway of this state folder is ended, and only by asking it.
Not here: the login service (`up --uninstall`).
"""

from __future__ import annotations

import click

from jackline.assembly import StateDir
from jackline.assembly.running_gateway import find, order, wait_until_gone
from jackline.cli.gateway_flags import configured, gateway_flags
from jackline.errors import UnreachableError


@click.command()
@gateway_flags
def down(port: int | None, upstream: str | None, state: str | None, config: str | None) -> int:
    """End the gateway; running calls may finish first.

    Exit codes: 0 it has ended, or none ran; 5 it does not answer.
    """
    flags = {"port": port, "upstream": upstream, "state": state, "config": config}
    settings = configured(flags, with_secrets=False)
    folder = StateDir(settings.state_dir)
    running = find(folder, settings.gateway.listen)
    if running is None:
        click.echo("no gateway runs", err=True)
        return 0
    order(running, "stop")
    click.echo(f"{running.url} is being stopped", err=True)
    if not wait_until_gone(folder, running):
        raise UnreachableError(
            f"process {running.pid} has not ended yet",
            next="its calls may still run; look again with: jackline status",
        )
    return 0
