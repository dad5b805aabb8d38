"""`jackline claude [ARGS…]`: run Claude Code through the gateway.

Laws: (1) those of client_start.py and client_command.py; (2) only `--afk` in front is ours:
everything else is Claude Code's, `--help` too; (3) the plugin is loaded unless it is installed.
Not here: other clients (exec.py).
"""

from __future__ import annotations

import os

import click

from jackline.cli.client_command import ClientCommand
from jackline.cli.client_start import start_client
from jackline.cli.gateway_flags import configured
from jackline.cli.plugin import is_installed, plugin_folder
from jackline.clients.changing import text_of
from jackline.clients.claude_code import settings_file, user_home

# Words that make Claude Code do something else than start a session.
_NO_SESSION = frozenset(
    ("agents", "auth", "auto-mode", "config", "doctor", "gateway", "install", "mcp", "plugin")
) | frozenset(("plugins", "setup-token", "update", "upgrade", "-h", "--help", "-v", "--version"))


@click.command(cls=ClientCommand, context_settings={"help_option_names": ["--jackline-help"]})
@click.option("--afk", is_flag=True, help="Hold calls until any quota reset, however far away.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def claude(afk: bool, arguments: tuple[str, ...]) -> int:
    """Run Claude Code through the gateway; starts one if none runs.

    Arguments go to Claude Code as they are, and its exit code comes back.

    \b
    Examples:
      jackline claude -p "review this project"
      jackline claude --afk            waits out a five-hour limit by itself
    """
    return start_client(["claude", *_plugin(arguments), *arguments], afk=afk)


def _plugin(arguments: tuple[str, ...]) -> list[str]:
    """The flag that loads the plugin; none where it is installed, or no session is started."""
    if arguments and arguments[0] in _NO_SESSION:
        return []
    path = settings_file(os.environ, user_home(), None)
    if is_installed(text_of(path)):
        return []
    return ["--plugin-dir", str(plugin_folder(configured({}, with_secrets=False)))]
