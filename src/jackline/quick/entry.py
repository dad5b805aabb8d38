"""The program's first lines: run a quick verb before anything is loaded, else the command line.

Rules: (1) a quick verb never loads the command line; (2) every verb is reached through here; (3)
Ctrl-C while loading is as quiet as later: nothing has begun that could be lost.
"""

from __future__ import annotations

import sys

from jackline.programs import pin_python_path

_QUICK = ("hook", "statusline", "mcp")


def main() -> None:
    """Run `jackline VERB …` and leave the process with its exit code."""
    pin_python_path()
    try:
        _run()
    except KeyboardInterrupt:
        from jackline.cli.shutdown import exit_interrupted  # noqa: PLC0415 -- others pay nothing

        sys.stderr.write("interrupted\n")
        exit_interrupted()


def _run() -> None:
    arguments = sys.argv[1:]
    # Help comes from the command line, for every verb alike.
    if arguments and arguments[0] in _QUICK and not {"-h", "--help"} & set(arguments):
        sys.exit(_quick(arguments[0], arguments[1:]))
    from jackline.cli.main import main as command_line  # noqa: PLC0415 -- loads click

    command_line()


def _quick(verb: str, arguments: list[str]) -> int:
    if verb == "mcp":
        from jackline.quick.mcp_bridge import bridge  # noqa: PLC0415 -- one verb pays for one

        return bridge(arguments)
    from jackline.quick.hook import hook, statusline  # noqa: PLC0415

    return hook(arguments) if verb == "hook" else statusline(arguments)
