"""Run the gateway in this process, with its log on stderr, until it is stopped.

Rules: (1) the first Ctrl-C lets running calls finish, the second does not; (2) an address that is
in use is reported with the program that holds it; (3) the log is text on a terminal and JSON lines
elsewhere, one line per fact, without prompts, answers or credentials; of an unexpected error only
its type and the places in the code are logged; (4) the limit of open files is raised as far as the
hard limit.
Not here: the gateway (assembly/), the flags (gateway_service.py). It loads the whole service.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TextIO

import click

from jackline import event_loop
from jackline.assembly import CannotListenError, Service, local_url
from jackline.assembly.gateway_process import hello
from jackline.cli.gateway_hints import print_next_steps
from jackline.cli.port_holder import port_holder
from jackline.config import Config
from jackline.errors import PortTakenError
from jackline.gateway.settings import ListenSettings
from jackline.gateway_proof import UnprovenError

# Two sockets for each of the connections that the gateway takes at most, and some for files.
WANTED = 65_536


def raise_file_limit() -> None:
    """Raise the number of files that may be open, as far as that goes."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 -- there is none on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).astimezone()
        word = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        line = f"{moment:%H:%M:%S} {word}{_message(record)}"
        trace = _trace(record)
        return f"{line}\n{trace}" if trace else line


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        told = {
            "at": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": _message(record),
        }
        trace = _trace(record)
        if trace:
            told["trace"] = trace
        return json.dumps(told, ensure_ascii=False)


def log_to(stream: TextIO, level: str) -> None:
    """Send the log of this process to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_TextLines() if stream.isatty() else _JsonLines())
    root = logging.getLogger("jackline")
    root.handlers = [handler]
    root.propagate = False
    root.setLevel(level.upper())
    # The event loop logs what its callbacks raise.
    loop = logging.getLogger("asyncio")
    loop.handlers = [handler]
    loop.propagate = False


def _message(record: logging.LogRecord) -> str:
    if record.name.startswith("jackline"):
        return record.getMessage()
    # Others put objects of ours into theirs, with the data that they hold.
    return record.getMessage().partition("\n")[0]


def _trace(record: logging.LogRecord) -> str:
    """Where an error came from, through all that caused it, without any of their messages."""
    error = record.exc_info[1] if record.exc_info else None
    parts: list[str] = []
    while error is not None and len(parts) < 10:
        frames = "".join(traceback.format_tb(error.__traceback__))
        parts.append(f"{frames}{type(error).__name__}")
        error = error.__cause__ or error.__context__
    return "\ncaused by:\n".join(parts)


_log = logging.getLogger("jackline")
# Whoever holds the port may be a gateway that is just starting, or any program, and silent.
_KNOCK_SECONDS = 2.0


def serve(config: Config, reload: Callable[[], Config]) -> int:
    """The exit code of a gateway that ran here."""
    log_to(sys.stderr, config.log_level)
    raise_file_limit()
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
        print_next_steps(service.url)
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
