"""`jackline up`: run the gateway, in the foreground, in the background, or at every login.

Laws: (1) a second `up` says so and is content; (2) a taken port is told with its holder; (3) the
first Ctrl-C lets running calls finish, the second does not.
Not here: the gateway (assembly/), the login service's text (login_service.py).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click

from jackline import event_loop
from jackline.assembly import CannotListenError, Service, StateDir, local_url
from jackline.cli.gateway_flags import as_arguments, configured, gateway_flags
from jackline.cli.log_lines import log_to
from jackline.cli.login_service import carry_out, login_service, program
from jackline.cli.port_holder import port_holder
from jackline.cli.running_gateway import find_lasting, hello, start_in_background
from jackline.config import Config
from jackline.errors import PortTakenError

_log = logging.getLogger("jackline")


@click.command()
@gateway_flags
@click.option("--afk", is_flag=True, help="Hold calls until any quota reset, however far away.")
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
    given = {name: value for name, value in flags.items() if value not in (None, False)}
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
        return 0
    if detach:
        running = start_in_background(folder, arguments)
        click.echo(f"{running.url}  process {running.pid}, log {folder.log}")
        _tell_next(running.url)
        return 0
    return _serve(settings, lambda: configured(given))


def _serve(config: Config, reload: Callable[[], Config]) -> int:
    log_to(sys.stderr, config.log_level)
    for warning in config.warnings:
        _log.warning("%s", warning)
    try:
        return event_loop.run(_run(config, reload))
    except CannotListenError as error:
        raise _taken(config, error.reason) from error


async def _run(config: Config, reload: Callable[[], Config]) -> int:
    interrupted = asyncio.Event()
    async with Service(config, reload=reload) as service:
        _on_signals(service, interrupted)
        click.echo(f"{service.url}  sends to {config.gateway.upstream.url}", err=True)
        _tell_next(service.url)
        await service.stop_asked.wait()
        left = service.carrier.controller.calls_in_flight
        if left:
            _log.info("stopping; %d running calls may finish. Ctrl-C again cuts them", left)
    return 130 if interrupted.is_set() else 0


def _on_signals(service: Service, interrupted: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if service.stop_asked.is_set():
            interrupted.set()
            service.cut_short()
        service.stop_asked.set()

    def stop_from_handler(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(stop)

    for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is None:
            continue
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows' loop has no signal handlers of its own
            signal.signal(number, stop_from_handler)


def _tell_next(url: str) -> None:
    click.echo(f"next:  ANTHROPIC_BASE_URL={url} claude      (or: jackline claude)", err=True)
    click.echo("       jackline status tells how it stands; jackline down ends it", err=True)


def _taken(config: Config, error: OSError) -> PortTakenError:
    listen = config.gateway.listen
    other = f"jackline up --port {_other(listen.port)}"
    if error.errno == errno.EACCES:
        return PortTakenError(
            f"port {listen.port} may not be opened by you", next=f"take another: {other}"
        )
    if error.errno != errno.EADDRINUSE:
        return PortTakenError(
            f"{listen.host} port {listen.port} cannot be listened on: {error.strerror}",
            next="name an address of this machine in listen.host",
        )
    holder = port_holder(listen.port) or "another program"
    gateway = hello(local_url(listen.host, listen.port))
    if gateway is not None:
        state = gateway.get("state")
        return PortTakenError(
            f"port {listen.port} is held by another Jackline gateway, {holder}, whose state folder"
            f" is {state}",
            next=f"jackline down --state {shlex.quote(str(state))}; or take another: {other}",
        )
    return PortTakenError(
        f"port {listen.port} is held by {holder}", next=f"end it, or take another: {other}"
    )


def _other(port: int) -> int:
    return port + 1 if port < 65535 else os.getpid() % 1000 + 20000
