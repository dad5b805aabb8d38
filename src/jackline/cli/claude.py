"""`jackline claude [ARGS…]`: run Claude Code through the gateway.

Laws: (1) those of client_start.py and client_command.py; (2) only `--afk` in front is ours:
everything else is Claude Code's, `--help` too.
Not here: other clients (exec.py).
"""

from __future__ import annotations

import click

from jackline.cli.client_command import ClientCommand
from jackline.cli.client_start import start_client


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
    return start_client(["claude", *arguments], afk=afk)
