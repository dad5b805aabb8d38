"""`jackline exec -- CMD`: run any client through the gateway.

Laws: (1) those of client_start.py and client_command.py; (2) a `--` before CMD may be left out, and
is not CMD's.
Not here: Claude Code's own verb (claude.py).
"""

from __future__ import annotations

import click

from jackline.cli.client_command import ClientCommand
from jackline.cli.client_start import start_client
from jackline.errors import BadArgumentError


@click.command("exec", cls=ClientCommand)
@click.option("--afk", is_flag=True, help="Hold calls until any quota reset, however far away.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def exec_(afk: bool, command: tuple[str, ...]) -> int:
    """Run CMD with its model calls going through the gateway; starts one if none runs.

    \b
    Example:
      jackline exec -- python my_agents.py

    Exit code: that of CMD.
    """
    if command[:1] == ("--",):
        command = command[1:]
    if not command:
        raise BadArgumentError("no command was given", next="jackline exec -- CMD [ARGS…]")
    return start_client(command, afk=afk)
