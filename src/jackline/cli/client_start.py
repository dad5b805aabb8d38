"""Start a client through the gateway, and become it as far as its caller can tell.

Laws: (1) arguments pass verbatim, the child's exit code is ours; (2) a gateway is started if none
runs; (3) signals from the terminal are the child's to answer.
Not here: which variables the child is given (agents/claude_code/environment.py).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

import click

from jackline.agents.claude_code.environment import client_environment
from jackline.assembly import Running, StateDir
from jackline.assembly.running_gateway import find_lasting, start_in_background
from jackline.cli.asked_otherwise import warn_if_otherwise
from jackline.cli.gateway_flags import configured
from jackline.config import Config
from jackline.errors import UnreadableError
from jackline.programs import find_program
from jackline.telemetry.client_variables import telemetry_variables


def gateway(config: Config) -> Running:
    """The gateway of this configuration; started in the background if none runs."""
    folder = StateDir(config.state_dir)
    running = find_lasting(folder, config.gateway.listen)
    if running is None:
        running = start_in_background(folder, config.gateway.listen, [])
        click.echo(f"jackline: started a gateway at {running.url}; jackline down ends it", err=True)
    else:
        warn_if_otherwise(running, config)
    return running


def start_client(command: Sequence[str], *, afk: bool) -> int:
    """The exit code of the client, run through the gateway."""
    program = find_program(command[0])
    if program is None:
        raise UnreadableError(
            f"there is no program {command[0]!r} on the PATH",
            next="npm install -g @anthropic-ai/claude-code"
            if command[0] == "claude"
            else "check its name",
        )
    config = configured({})
    running = gateway(config)
    token = config.gateway.listen.token
    chosen = client_environment(running.url, afk=afk, environ=os.environ, token=token)
    if config.otlp.receive:
        chosen |= telemetry_variables(running.url, os.environ, token)
    return _run([program, *command[1:]], {**os.environ, **chosen})


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    sys.stdout.flush()
    started: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: object) -> None:
        for child in started:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    # The terminal sends Ctrl-C to both; the child decides what it means. A handler and not
    # "ignore", which the child would inherit.
    before_int = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    before_term = signal.signal(signal.SIGTERM, pass_on)
    try:
        child = subprocess.Popen(command, env=dict(environment))  # noqa: S603 -- the user's own words
        started.append(child)
        code = child.wait()
    finally:
        signal.signal(signal.SIGINT, before_int)
        signal.signal(signal.SIGTERM, before_term)
    # A child that a signal ended is told as shells tell it.
    return code if code >= 0 else 128 - code
