"""`jackline claude` and `jackline exec`: run a client through the gateway.

Rules: (1) our own flags come first; the first word that is none of them, and all that follow, go to
the client as they are, and its exit code is ours; (2) a gateway is started if none runs,
unless the client will call no model; (3) signals of the terminal are the client's to answer; (4)
`claude` loads the plugin unless it is installed; (5) a `--` before the command of `exec` may be
left out.
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
from jackline.assembly import StateDir
from jackline.assembly.gateway_process import find_lasting, start_in_background
from jackline.cli.gateway_flags import configured
from jackline.cli.gateway_service import warn_if_different
from jackline.cli.plugin_setup import PluginFolder
from jackline.cli.terminal import say
from jackline.clients.claude_code import settings_file
from jackline.clients.plugin import PLUGIN_ID
from jackline.clients.settings_change import read_settings
from jackline.errors import BadArgumentError, UnreadableError
from jackline.programs import find_program
from jackline.telemetry.client_telemetry import telemetry_variables

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
    """Run Claude Code through the gateway; starts one if none runs.

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
    return _wait_for([program, *command[1:]], variables)


def _wait_for(command: Sequence[str], variables: Mapping[str, str]) -> int:
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
        code = child.wait()
    finally:
        signal.signal(signal.SIGINT, before_int)
        signal.signal(signal.SIGTERM, before_term)
    # A child that a signal ended gets the exit code that shells use.
    return code if code >= 0 else 128 - code
