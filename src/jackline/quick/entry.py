"""The program's first lines: run a quick verb before anything is loaded, else the command line.

Rules: (1) a quick verb never loads the command line; (2) every verb is reached through here; (3)
Ctrl-C while loading is as quiet as later: nothing has begun that could be lost.
Not here: what the verbs do.
"""

from __future__ import annotations

import sys

_QUICK = ("hook", "statusline", "mcp")


def main() -> None:
    """Run `jackline VERB …` and leave the process with its exit code."""
    try:
        _run()
    except KeyboardInterrupt:
        from jackline.cli.shutdown import exit_interrupted  # noqa: PLC0415 -- others pay nothing

        sys.stderr.write("interrupted\n")
        exit_interrupted()


def _run() -> None:
    arguments = sys.argv[1:]
    # Help is the command line's to give, for every verb alike.
    if arguments and arguments[0] in _QUICK and not {"-h", "--help"} & set(arguments):
        sys.exit(_quick(arguments[0], arguments[1:]))
    from jackline.cli.main import main as command_line  # noqa: PLC0415 -- loads click

    command_line()


def _quick(verb: str, arguments: list[str]) -> int:
    if verb == "hook":
        from jackline.quick.hook import hook  # noqa: PLC0415 -- one verb pays for one

        return hook(arguments)
    if verb == "statusline":
        from jackline.quick.statusline import statusline  # noqa: PLC0415

        return statusline(arguments)
    from jackline.quick.mcp_bridge import bridge  # noqa: PLC0415

    return bridge(arguments)
