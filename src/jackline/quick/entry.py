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
    arguments = sys.argv[1:]
    try:
        # Help comes from the command line, for every verb alike.
        if not arguments or arguments[0] not in _QUICK or {"-h", "--help"} & set(arguments):
            from jackline.cli.main import main as command_line  # noqa: PLC0415 -- loads click

            command_line()
        elif arguments[0] == "mcp":
            from jackline.quick.mcp_bridge import bridge  # noqa: PLC0415 -- one verb pays for one

            sys.exit(bridge(arguments[1:]))
        else:
            from jackline.quick.hook import hook, statusline  # noqa: PLC0415

            verb = hook if arguments[0] == "hook" else statusline
            sys.exit(verb(arguments[1:]))
    except KeyboardInterrupt:
        from jackline.cli.shutdown import exit_interrupted  # noqa: PLC0415 -- others pay nothing

        sys.stderr.write("interrupted\n")
        exit_interrupted()
