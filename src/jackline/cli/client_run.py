"""`jackline claude` and `jackline exec`: run a client through the gateway.

Rules: (1) our own flags come first; the first word that is none of them, and all that follow, go to
the client as they are, and its exit code is ours; (2) a gateway is started if none runs, unless the
client will call no model, and again at the same address if it dies while the client works; one that
was stopped stays stopped; (3) signals of the terminal are the client's to answer; (4) `claude`
loads the plugin unless it is installed; (5) a `--` before the command of `exec` may be left out;
(6) nothing is printed while the client has the terminal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import click

from jackline.agents.claude_code.environment import client_environment
from jackline.assembly import StateDir
from jackline.assembly.gateway_process import find_lasting, start_in_background, was_killed
from jackline.cli.gateway_flags import configured
from jackline.cli.gateway_service import warn_if_different
from jackline.cli.plugin_setup import PluginFolder
from jackline.cli.terminal import say
from jackline.clients.claude_code import settings_file
from jackline.clients.plugin import PLUGIN_ID
from jackline.clients.settings_change import read_settings
from jackline.clock import SystemClock
from jackline.config import Config
from jackline.errors import BadArgumentError, JacklineError, UnreadableError
from jackline.local_address import host_and_port
from jackline.programs import find_program
from jackline.telemetry.client_telemetry import telemetry_variables

# A client retries for minutes, so that it does not notice so short a gap.
_LOOK_EVERY = 1.0
_TRY_AGAIN_AFTER = 15.0
# Arguments that make Claude Code do something else than start a session.
_NO_SESSION = frozenset(
    ("agents", "auth", "auto-mode", "config", "doctor", "gateway", "install", "mcp", "plugin")
) | frozenset(("plugins", "setup-token", "update", "upgrade", "-v", "--version"))


class ClientCommand(click.Command):
    """A command with one argument of any number of words, and flags before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Separate the other program's words before click sees them."""
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        ours = {name for option in options for name in option.opts}
        own = 0
        while own < len(args) and args[own] in ours:
            own += 1
        return super().parse_args(ctx, [*args[:own], "--", *args[own:]])


@click.command(cls=ClientCommand)
@click.option("--afk", is_flag=True, help="Hold calls until any quota reset, however far away.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def claude(afk: bool, arguments: tuple[str, ...]) -> int:
    """Run Claude Code through the gateway; starts one if none runs, and again if it dies.

    Claude Code gets the arguments unchanged, and its exit code is returned. Its own help: `claude
    --help`.

    \b
    Examples:
      jackline claude -p "review this project"
      jackline claude --afk            waits out a five-hour limit by itself
    """
    plugin: list[str] = []
    starts_session = not arguments or arguments[0] not in _NO_SESSION
    if starts_session and f'"{PLUGIN_ID}"' not in (read_settings(settings_file(os.environ)) or ""):
        folder = PluginFolder(configured({}, with_secrets=False)).build()
        plugin = ["--plugin-dir", str(folder)]
    return _run_client(["claude", *plugin, *arguments], afk=afk, calls_models=starts_session)


@click.command("exec", cls=ClientCommand)
@click.option("--afk", is_flag=True, help="Hold calls until any quota reset, however far away.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def exec_(afk: bool, command: tuple[str, ...]) -> int:
    """Run CMD, so that its model calls go through the gateway; starts one if none runs.

    \b
    Example:
      jackline exec -- python my_agents.py

    The exit code is that of CMD.
    """
    if command[:1] == ("--",):
        command = command[1:]
    if not command:
        raise BadArgumentError("there is no command to run", hint="jackline exec -- CMD [ARGS…]")
    return _run_client(command, afk=afk)


def _run_client(command: Sequence[str], *, afk: bool, calls_models: bool = True) -> int:
    """The exit code of the client, run through the gateway.

    One that calls no model needs none, so that none is started for it.
    """
    program = find_program(command[0])
    if program is None:
        raise UnreadableError(
            f"there is no program {command[0]!r} on the PATH",
            hint="npm install -g @anthropic-ai/claude-code"
            if command[0] == "claude"
            else "check its name",
        )
    if not calls_models:
        return _wait_for([program, *command[1:]], {})
    config = configured({})
    folder = StateDir(config.state_dir)
    running = find_lasting(folder, config.gateway.listen)
    if running is None:
        running = start_in_background(folder, config.gateway.listen, [])
        say(f"jackline: started a gateway at {running.url}; jackline down stops it", err=True)
    else:
        warn_if_different(running, config)
    token = config.gateway.listen.token
    variables = client_environment(running.url, afk=afk, environ=os.environ, token=token)
    if config.otlp.receive:
        variables |= telemetry_variables(running.url, os.environ, token)
    keeper = _GatewayKeeper(config, running.url)
    return _wait_for([program, *command[1:]], variables, keeper)


def _wait_for(
    command: Sequence[str], variables: Mapping[str, str], keeper: _GatewayKeeper | None = None
) -> int:
    """The exit code of this program, which has these variables, too."""
    sys.stdout.flush()
    started: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: object) -> None:
        for child in started:
            with suppress(ProcessLookupError):
                child.send_signal(number)

    # The terminal sends Ctrl-C to both, and the child decides what to do. A handler and not
    # "ignore", which the child would inherit.
    before_int = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    before_term = signal.signal(signal.SIGTERM, pass_on)
    try:
        child = subprocess.Popen(command, env={**os.environ, **variables})  # noqa: S603 -- the user's own words
        started.append(child)
        code = child.wait() if keeper is None else keeper.wait_for(child)
    finally:
        signal.signal(signal.SIGINT, before_int)
        signal.signal(signal.SIGTERM, before_term)
    if keeper is not None:
        keeper.report()
    # A child that a signal ended gets the exit code that shells use.
    return code if code >= 0 else 128 - code


@dataclass(slots=True)
class _GatewayKeeper:
    """Starts the gateway again when it dies while a client works through it."""

    config: Config
    url: str
    _started: int = 0
    _trouble: str = ""
    _not_before: float = 0.0
    _clock: SystemClock = field(default_factory=SystemClock)

    def wait_for(self, child: subprocess.Popen[bytes]) -> int:
        """The client's exit code, once it has ended."""
        while True:
            try:
                return child.wait(_LOOK_EVERY)
            except subprocess.TimeoutExpired:
                self._look()

    def _look(self) -> None:
        folder = StateDir(self.config.state_dir)
        if self._clock.monotonic() < self._not_before or not was_killed(folder, self.url):
            return
        # The client knows only this address.
        _, port = host_and_port(self.url)
        try:
            start_in_background(folder, self.config.gateway.listen, ["--port", str(port)])
            self._started += 1
        except JacklineError as error:
            self._trouble = error.message
            self._not_before = self._clock.monotonic() + _TRY_AGAIN_AFTER

    def report(self) -> None:
        """Print what the client's own screen left no place for."""
        if self._started:
            times = "once" if self._started == 1 else f"{self._started} times"
            log = StateDir(self.config.state_dir).log
            click.echo(f"jackline: the gateway died and was started again {times}; {log}", err=True)
        if self._trouble:
            click.echo(f"jackline: the gateway died; {self._trouble}", err=True)
