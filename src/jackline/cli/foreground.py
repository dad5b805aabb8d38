"""Run the gateway in this process until it is told to stop.

Laws: (1) the first Ctrl-C lets running calls finish, the second does not; (2) an address that
cannot be had is told with whoever holds it.
Not here: the gateway (assembly/), the flags (up.py).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping

import click

from jackline import event_loop
from jackline.assembly import CannotListenError, Service, local_url
from jackline.assembly.running_gateway import hello
from jackline.cli.log_lines import log_to
from jackline.cli.next_steps import tell_next
from jackline.cli.open_files import raise_limit
from jackline.cli.port_holder import port_holder
from jackline.config import Config
from jackline.errors import PortTakenError
from jackline.gateway.settings import ListenSettings
from jackline.gateway_proof import UnprovenError

_log = logging.getLogger("jackline")
# Whoever holds the port may be a gateway that is just starting, or any program, and silent.
_KNOCK_SECONDS = 2.0


def serve(config: Config, reload: Callable[[], Config]) -> int:
    """The exit code of a gateway that ran here."""
    log_to(sys.stderr, config.log_level)
    raise_limit()
    for warning in config.warnings:
        _log.warning("%s", warning)
    try:
        return event_loop.run(_run(config, reload))
    except CannotListenError as error:
        listen = config.gateway.listen
        try:
            other = hello(local_url(listen.host, listen.port), patience=_KNOCK_SECONDS)
        except UnprovenError:
            other = None  # what it says of itself would only be repeated to the user
        if other is not None and other.get("state") == str(config.state_dir.absolute()):
            click.echo("another gateway was quicker to start here; it runs", err=True)
            return 0
        raise _taken(listen, error.reason, other) from error


async def _run(config: Config, reload: Callable[[], Config]) -> int:
    interrupted = asyncio.Event()
    service = Service(config, reload=reload)
    # Before it starts: whoever interrupts it then wants it to end in good order too.
    _on_signals(service, interrupted)
    async with service:
        ladder = ", then ".join(each.url for each in config.gateway.upstreams)
        click.echo(f"{service.url}  sends to {ladder}", err=True)
        tell_next(service.url)
        await service.stop_asked.wait()
        left = len(service.desk.calls)
        if left:
            within = service.config.gateway.limits.drain_seconds
            words = "stopping; %d calls may finish within %g s. Ctrl-C again cuts them"
            _log.info(words, left, within)
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


def _taken(
    listen: ListenSettings, error: OSError, gateway: Mapping[str, object] | None
) -> PortTakenError:
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
