"""Dispatch `jackline VERB …`, and turn every error into a sentence, a next step and an exit code.

Rules: (1) the module of a verb is loaded only when the verb is called, so that `--help` stays
quick; (2) no traceback reaches a user, unless JACKLINE_DEBUG is set; (3) of hook, statusline and
mcp only the help is here: quick/entry.py runs these verbs before the command line is loaded.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import NoReturn

import click
from click.shell_completion import CompletionItem

from jackline import __version__
from jackline.errors import ExitCode, InternalError, JacklineError, UsageError

# Verb: the module that defines it, and its line in --help.
_VERBS = {
    "cancel": ("jackline.cli.runs", "Cancel a run for good, with its clean-up."),
    "fork": ("jackline.cli.resume", "Begin a new run with a part of another's results."),
    "logs": ("jackline.cli.runs", "Print a run's log, or without an ID the service's events."),
    "ls": ("jackline.cli.runs", "List runs; --parked shows what would wake, and when."),
    "plugin": ("jackline.cli.plugin_setup", "Set up the plugin for Claude Code."),
    "purge": ("jackline.cli.removal", "Delete all runs that ended long ago, for good."),
    "resources": ("jackline.cli.runs", "List the resources that runs still hold."),
    "resume": ("jackline.cli.resume", "Resume a run that was stopped, parked or cut off."),
    "rm": ("jackline.cli.removal", "Delete runs with all their saved data, for good."),
    "run": ("jackline.cli.run", "Run a flow of agents to its end, whatever happens."),
    "show": ("jackline.cli.runs", "Show one run and the end of each of its agents."),
    "cost": ("jackline.cli.cost", "Show what calls cost: by day, model, session or agent."),
    "claude": ("jackline.cli.client_run", "Run Claude Code through the gateway."),
    "config": ("jackline.cli.config", "Show, check and locate the configuration."),
    "connect": ("jackline.cli.client_setup", "Point a client at the gateway in its own settings."),
    "disconnect": ("jackline.cli.client_setup", "Restore a client's own settings."),
    "doctor": ("jackline.cli.doctor", "Check the way to the upstreams, and show what to fix."),
    "down": ("jackline.cli.gateway_service", "Stop the gateway after running calls finish."),
    "drill": ("jackline.cli.drill", "Rehearse storms, walls and outages, bare and with Jackline."),
    "env": ("jackline.cli.env", "Print the lines that point a shell to the gateway."),
    "exec": ("jackline.cli.client_run", "Run any client through the gateway."),
    "hook": ("jackline.cli.main", "Answer a hook of Claude Code; the plugin calls it."),
    "open": ("jackline.cli.open", "Show the fleet in the browser."),
    "mcp": ("jackline.cli.main", "Connect a client's MCP over stdio with the service."),
    "statusline": ("jackline.cli.main", "Print one line for Claude Code's status line."),
    "simulate": ("jackline.cli.simulate", "Simulate a provider with limits and faults locally."),
    "status": ("jackline.cli.status", "Show gateway status, and who waits for what."),
    "trust": ("jackline.cli.trust", "Agree to the upstreams that a project's file lists."),
    "uninstall": ("jackline.cli.uninstall", "Undo what Jackline set up on this machine."),
    "up": (
        "jackline.cli.gateway_service",
        "Run the gateway that clients reach through ANTHROPIC_BASE_URL.",
    ),
    "upstream": (
        "jackline.cli.upstream",
        "Configure where calls go: add, test and choose upstreams.",
    ),
    "why": ("jackline.cli.why", "Find why agents died, or what one error means."),
}


_GROUPS = {
    "Service": ["up", "down", "status", "cost", "open", "config", "upstream", "trust", "uninstall"],
    "Clients": ["claude", "exec", "env", "connect", "disconnect", "plugin"],
    "Runs": [
        "run",
        "ls",
        "show",
        "logs",
        "resume",
        "fork",
        "cancel",
        "resources",
        "rm",
        "purge",
    ],
    "Diagnose": ["why", "doctor"],
    "Practice": ["simulate", "drill"],
}
# Verbs of older versions, which people may have read of, and what does the same.
_SUCCESSORS = {
    "explain": "jackline why --text",
    "notify": "jackline doctor",
    "retry": "jackline resume ID --failed",
    "top": "jackline status --watch",
}
# Clients start them; nobody types them.
_MACHINE_VERBS = ("hook", "mcp", "statusline")


class _LazyVerbs(click.Group):
    """A group that knows its verbs by name and loads them on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return sorted(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _VERBS:
            return None
        module = import_module(_VERBS[cmd_name][0])
        # A verb that is also a Python keyword or builtin has an underscore behind it.
        command = getattr(module, cmd_name, None) or getattr(module, f"{cmd_name}_")
        if not isinstance(command, click.Command):
            raise TypeError(f"{cmd_name} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or offer the nearest one."""
        if args and args[0] not in _VERBS and not args[0].startswith("-"):
            if successor := _SUCCESSORS.get(args[0]):
                raise UsageError(
                    f"there is no verb {args[0]!r}; use: {successor}",
                    hint=f"{' '.join(successor.split()[:2])} --help",
                )
            import difflib  # noqa: PLC0415 -- rarely needed

            close = difflib.get_close_matches(args[0], _VERBS, n=1)
            offer = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(
                f"there is no verb {args[0]!r}{offer}", hint="jackline --help lists them"
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb; click itself would count a closed output as a failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from jackline.cli.shutdown import discard_output  # noqa: PLC0415 -- rarely needed

            discard_output()
            return 0

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs with their lines above: click's own way would load every verb."""
        verbs = [
            CompletionItem(n, help=v[1]) for n, v in _VERBS.items() if n.startswith(incomplete)
        ]
        return sorted(verbs, key=lambda item: str(item.value)) + click.Command.shell_complete(
            self, ctx, incomplete
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for group, verbs in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name, _VERBS[name][1]) for name in verbs])


@click.group(cls=_LazyVerbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jackline")
def jackline() -> None:
    """Keep fleets of parallel AI agents working through rate limits, quota walls and outages."""


def main() -> NoReturn:
    """Run the command line and leave the process with its exit code."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Opens this number, the lowest free one: a file or socket of ours must not be stdout.
            os.open(os.devnull, os.O_RDWR)
    code = run(sys.argv[1:])
    # All is done and printed: a Ctrl-C during Python's clean-up only ends it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if code == ExitCode.INTERRUPTED:
        from jackline.cli.shutdown import exit_interrupted  # noqa: PLC0415 -- rarely needed

        exit_interrupted()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """The exit code of `jackline ARGUMENTS`."""
    try:
        code = jackline.main(arguments, prog_name="jackline", standalone_mode=False)
    except KeyboardInterrupt:
        return _report(click.exceptions.Abort(), arguments)
    except Exception as error:
        known = isinstance(error, JacklineError | click.ClickException | click.exceptions.Abort)
        if os.environ.get("JACKLINE_DEBUG") and not known:
            raise
        return _report(error, arguments)
    return code if isinstance(code, int) else ExitCode.DONE


def _report(error: Exception, arguments: list[str]) -> int:
    from jackline.cli.error_report import report, wants_json  # noqa: PLC0415 -- rarely needed

    return report(error, as_json=wants_json(arguments))


def _quick_verb(name: str, text: str) -> click.Command:
    """The help of a verb that quick/entry.py runs."""

    def run_it(state: str | None) -> int:  # noqa: ARG001 -- for its help
        raise InternalError("a quick verb was run by the command line instead of quick/entry.py")

    state = click.Option(["--state"], type=click.Path(), help="The folder for journal and state.")
    return click.Command(name, callback=run_it, params=[state], help=text)


hook = _quick_verb(
    "hook",
    """Pass the input of a Claude Code hook on to the service, and print its answer.

    It reads the hook's JSON from stdin. It always succeeds: without a service it prints a message
    once, then nothing. The plugin calls it; you rarely need it yourself.
    """,
)
statusline = _quick_verb(
    "statusline",
    """Print the status of lanes and quota in one line, for Claude Code's status line.

    It reads the client's JSON from stdin; `jackline connect claude-code` sets it up.
    """,
)
mcp = _quick_verb(
    "mcp",
    """Speak MCP over stdio, for clients that start their servers themselves.

    Starts the service if none runs.

    \b
    Example:
      claude mcp add jackline -- jackline mcp
    """,
)
