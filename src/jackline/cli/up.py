"""`jackline up`: run the gateway, in the foreground, in the background, or at every login.

Laws: (1) a second `up` says so and is content; (2) those of foreground.py.
Not here: the gateway (assembly/), the login service's text (login_service.py).
"""

from __future__ import annotations

from pathlib import Path

import click

from jackline.assembly import StateDir
from jackline.assembly.running_gateway import find_lasting, start_in_background
from jackline.cli.asked_otherwise import warn_if_otherwise
from jackline.cli.gateway_flags import as_arguments, configured, gateway_flags, show_warnings
from jackline.cli.login_service import login_service, program
from jackline.cli.next_steps import tell_next
from jackline.cli.system_steps import carry_out


@click.command()
@gateway_flags
@click.option("--afk", is_flag=True, help="Hold calls until any quota reset, however far away.")
@click.option(
    "--read-only",
    is_flag=True,
    help="Take no orders from the page in the browser, nor from models.",
)
@click.option("-d", "--detach", is_flag=True, help="Run in the background; end it with down.")
@click.option("--install", is_flag=True, help="Start it at every login.")
@click.option("--uninstall", is_flag=True, help="Do not start it at login any more.")
@click.option("--dry-run", is_flag=True, help="With --install: only show what would be done.")
def up(  # noqa: PLR0913, PLR0917 -- one per flag
    port: int | None,
    upstream: str | None,
    state: str | None,
    config: str | None,
    afk: bool,
    read_only: bool,
    detach: bool,
    install: bool,
    uninstall: bool,
    dry_run: bool,
) -> int:
    """Run the gateway that clients reach through ANTHROPIC_BASE_URL.

    Without any configuration it passes calls and your own credentials on to api.anthropic.com,
    and stores neither.

    \b
    Examples:
      jackline up                       in the foreground, log on stderr
      jackline up -d                    in the background
      jackline up --upstream http://127.0.0.1:18080 --port 9000
      jackline up --install             at every login

    Exit codes: 0 stopped in good order, or one runs already; 1 failed; 2 usage; 130 Ctrl-C twice.
    """
    flags = {"port": port, "upstream": upstream, "state": state, "config": config, "afk": afk}
    flags["read_only"] = read_only
    given = {
        name: value for name, value in flags.items() if value is not None and value is not False
    }
    # A service runs in another folder, so what was meant from here is written out.
    absolute = {
        name: str(Path(str(value)).absolute()) if name in ("state", "config") else value
        for name, value in given.items()
    }
    arguments = as_arguments(absolute)
    if install or uninstall:
        service = login_service(program(arguments))
        steps = service.install if install else service.uninstall
        carry_out(steps, lambda line: click.echo(line, err=True), dry_run=dry_run)
        return 0
    settings = configured(given)
    folder = StateDir(settings.state_dir)
    running = find_lasting(folder, settings.gateway.listen)
    if running is not None:
        click.echo(f"a gateway runs already at {running.url} (process {running.pid})", err=True)
        warn_if_otherwise(running, settings, given)
        return 0
    if detach:
        show_warnings(settings)  # in the foreground they stand in the log on stderr
        running = start_in_background(folder, settings.gateway.listen, arguments)
        click.echo(f"{running.url}  process {running.pid}, log {folder.log}")
        tell_next(running.url)
        return 0
    from jackline.cli.foreground import serve  # noqa: PLC0415 -- loads the whole house

    return serve(settings, lambda: configured(given))
