"""`jackline down`: end the gateway in good order.

Laws: (1) only the gateway of this state folder is ended, by asking it; one that cannot prove to be
this user's is asked nothing, and ended by its process if that is a gateway of this user; (2) faults
of the configuration do not stand in the way.
Not here: the login service (`up --uninstall`).
"""

from __future__ import annotations

import click

from jackline.assembly import Running, StateDir
from jackline.assembly.running_gateway import end_process, find, order, wait_until_gone
from jackline.cli.gateway_flags import gateway_flags, service_place, warn_of_faults
from jackline.errors import UnreachableError, UntrustedGatewayError


@click.command()
@gateway_flags
def down(port: int | None, upstream: str | None, state: str | None, config: str | None) -> int:
    """End the gateway; running calls may finish first.

    Exit codes: 0 it has ended, or none ran; 5 it does not answer.
    """
    flags = {"port": port, "upstream": upstream, "state": state, "config": config}
    place = service_place(flags)
    folder = StateDir(place.state_dir)
    try:
        running = find(folder, place.listen)
    except UntrustedGatewayError:
        # What it says of itself is not believed: only its word in the folder names its process.
        running = folder.running()
        if running is None or not end_process(running):
            raise
        return _seen_off(folder, running)
    if running is None and place.problem is not None:
        raise place.problem  # it may say where one runs
    if running is None:
        click.echo("no gateway runs", err=True)
        return 0
    warn_of_faults(place)
    order(running, "stop")
    return _seen_off(folder, running)


def _seen_off(folder: StateDir, running: Running) -> int:
    click.echo(f"{running.url} is being stopped", err=True)
    if not wait_until_gone(folder, running):
        raise UnreachableError(
            f"process {running.pid} has not ended yet",
            next="its calls may still run; look again with: jackline status",
        )
    return 0
