"""The --help of hook, statusline and mcp, which run before the command line is loaded.

Laws: (1) the program's entry (quick/entry.py) answers these verbs; only their help comes here.
Not here: what they do (quick/).
"""

from __future__ import annotations

import click

from jackline.errors import InternalError

_state = click.option("--state", type=click.Path(), help="The folder for journal and state.")


@click.command()
@_state
def hook(state: str | None) -> int:
    """Pass what Claude Code tells its hooks on to the service, and its answer back.

    Reads the hook's JSON from stdin. Always succeeds: without a service it says so once, then is
    silent. The plugin calls this; there is little use in calling it by hand.
    """
    raise _not_here(state)


@click.command()
@_state
def statusline(state: str | None) -> int:
    """Print how lanes and quota stand, in one line, for Claude Code's status line.

    Reads the client's JSON from stdin; `jackline plugin install` sets it up.
    """
    raise _not_here(state)


@click.command()
@_state
def mcp(state: str | None) -> int:
    """Speak MCP over stdio, for clients that start their servers themselves.

    Starts the service if none runs.

    \b
    Example:
      claude mcp add jackline -- jackline mcp
    """
    raise _not_here(state)


def _not_here(_state: str | None) -> InternalError:
    return InternalError("a quick verb came to the command line instead of the program's entry")
