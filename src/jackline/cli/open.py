"""`jackline open`: show the running gateway's page in the browser, with the right to give orders.

Rules: (1) the token goes into the address behind the `#`, which browsers send to nobody; (2) it is
printed only when asked for, and is on no command line (browser.py). The page is in dashboard/.
"""

from __future__ import annotations

import click

from jackline.assembly import StateDir
from jackline.assembly.running_gateway import find, not_running
from jackline.cli.browser import Opened, open_secret
from jackline.cli.gateway_flags import gateway_flags, service_place, warn_of_faults
from jackline.event_loop import run


@click.command(name="open")
@gateway_flags
@click.option("--print", "only_print", is_flag=True, help="Print the address with its token.")
def open_(
    port: int | None, upstream: str | None, state: str | None, config: str | None, only_print: bool
) -> int:
    """Open the page that shows the fleet: who works, who waits for what, what it costs.

    Opened like this, the page may also give orders (pause, resume, cancel). Opened by its address
    alone, http://127.0.0.1:8766, it only shows.

    \b
    Examples:
      jackline open
      jackline open --print        the address, for a browser elsewhere (behind ssh -L, say)

    Exit codes: 0 opened or printed, 5 no gateway runs.
    """
    flags = {"port": port, "upstream": upstream, "state": state, "config": config}
    place = service_place(flags)
    folder = StateDir(place.state_dir)
    running = find(folder, place.listen)
    if running is None:
        raise place.problem or not_running(folder)
    warn_of_faults(place)
    address = f"{running.url}/#token={running.token}"
    if only_print:
        click.echo(address)
        return 0
    click.echo(f"opening {running.url}", err=True)
    opened = run(open_secret(address))
    if opened is not Opened.SHOWN:
        click.echo(f"{opened.value}; open {running.url} in one, or take the address that", err=True)
        click.echo("may give orders from: jackline open --print", err=True)
    return 0
