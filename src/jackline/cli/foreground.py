"""Run the gateway in this process, with its log on stderr, until it is stopped.

Rules: (1) the first Ctrl-C lets running calls finish, the second does not; (2) an address that is
in use is reported with the program that holds it; (3) the log is text on a terminal and JSON lines
elsewhere, one line per fact, without prompts, answers or credentials; of an unexpected error only
its type and the places in the code are logged; (4) the limit of open files is raised as far as the
hard limit. This module loads the whole service; the flags are in gateway_service.py.
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
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TextIO

import click

from jackline import event_loop
from jackline.assembly import CannotListenError, Service
from jackline.assembly.gateway_process import hello
from jackline.cli.gateway_flags import print_next_steps
from jackline.config import Config
from jackline.control.probes import port_holder
from jackline.errors import ExitCode, PortTakenError
from jackline.gateway_proof import UnprovenError
from jackline.local_address import local_url

# Two sockets for each of the connections that the gateway accepts at most, and some for files.
_OPEN_FILES = 65_536
# The holder of the port may be a gateway that is just starting, or any program, and silent.
_HELLO_SECONDS = 2.0
_log = logging.getLogger("jackline")


def raise_file_limit() -> None:
    """Raise the number of files that may be open, up to the hard limit."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 -- there is none on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class LogFormatter(logging.Formatter):
    """Formats a record as text or as one line of JSON."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """The lines of one record."""
        moment = datetime.fromtimestamp(record.created, UTC)
        message = record.getMessage()
        if not record.name.startswith("jackline"):
            # Others put objects of ours into their messages, with the data that these hold.
            message = message.partition("\n")[0]
        level = record.levelname.lower()
        # Where an error was raised, with its causes, without any of their messages.
        error = record.exc_info[1] if record.exc_info else None
        parts: list[str] = []
        while error is not None and len(parts) < 10:
            frames = "".join(traceback.format_tb(error.__traceback__))
            parts.append(f"{frames}{type(error).__name__}")
            error = error.__cause__ or error.__context__
        trace = "\ncaused by:\n".join(parts)
        if self._as_json:
            at = moment.isoformat(timespec="milliseconds")
            document = {"at": at, "level": level, "message": message}
            if trace:
                document["trace"] = trace
            return json.dumps(document, ensure_ascii=False)
        prefix = "" if record.levelno <= logging.INFO else f"{level}: "
        line = f"{moment.astimezone():%H:%M:%S} {prefix}{message}"
        return f"{line}\n{trace}" if trace else line


def log_to(stream: TextIO, level: str) -> None:
    """Send the log of this process to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter(as_json=not stream.isatty()))
    logging.getLogger("jackline").setLevel(level.upper())
    for name in ("jackline", "asyncio"):  # the event loop logs what its callbacks raise
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False


def serve(config: Config, reload: Callable[[], Config]) -> int:
    """Run a gateway here; returns its exit code."""
    log_to(sys.stderr, config.log_level)
    raise_file_limit()
    for warning in config.warnings:
        _log.warning("%s", warning)
    host, port = config.gateway.listen.host, config.gateway.listen.port
    try:
        return event_loop.run(_run(config, reload))
    except CannotListenError as error:
        try:
            gateway = hello(local_url(host, port), patience=_HELLO_SECONDS)
        except UnprovenError:
            gateway = None  # its answer is not to be trusted
        if gateway is not None and gateway.get("state") == str(config.state_dir.absolute()):
            click.echo("another gateway was quicker to start here; it runs", err=True)
            return 0
        free = port + 1 if port < 65535 else os.getpid() % 1000 + 20000
        other = f"jackline up --port {free}"
        if error.reason.errno == errno.EACCES:
            text, hint = f"you are not allowed to open port {port}", f"use another: {other}"
        elif error.reason.errno != errno.EADDRINUSE:
            text = f"{host} port {port} cannot be listened on: {error.reason.strerror}"
            hint = "name an address of this machine in listen.host"
        else:
            holder = port_holder(port) or "another program"
            text, hint = f"port {port} is held by {holder}", f"stop it, or use another: {other}"
            if gateway is not None:
                state = str(gateway.get("state"))
                text = (
                    f"port {port} is held by another Jackline gateway, {holder}, whose state folder"
                    f" is {state}"
                )
                hint = f"jackline down --state {shlex.quote(state)}; or use another: {other}"
        raise PortTakenError(text, hint=hint) from error


async def _run(config: Config, reload: Callable[[], Config]) -> int:
    was_interrupted = False
    service = Service(config, reload=reload)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        nonlocal was_interrupted
        if service.stop_asked.is_set():
            was_interrupted = True
            service.cut_short()
        service.stop_asked.set()

    def stop_from_handler(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(stop)

    # Before it starts: a signal during the start must stop it in order too.
    for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is None:
            continue
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows' loop has no signal handlers of its own
            signal.signal(number, stop_from_handler)
    async with service:
        urls = ", then ".join(each.url for each in config.gateway.upstreams)
        click.echo(f"{service.url}  sends to {urls}", err=True)
        print_next_steps(service.url)
        await service.stop_asked.wait()
        left = len(service.desk.calls)
        if left:
            within = service.config.gateway.limits.drain
            _log.info(
                "stopping; %d calls may finish within %g s. Ctrl-C again cuts them", left, within
            )
    return ExitCode.INTERRUPTED if was_interrupted else 0
