"""`jackline drill`: rehearse a storm, a wall or an outage, without Jackline and through it.

Rules: (1) stdout holds the result, stderr the progress; (2) exit 0 only when every requirement is
met; (3) Ctrl-C stops all that was started and prints the results so far.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from jackline import event_loop
from jackline.cli.arguments import drill_names
from jackline.cli.terminal import say
from jackline.drills.catalogue import all_drills, drill_named
from jackline.drills.claude_client import ClaudeFleet, InstalledClaude
from jackline.drills.drill import Drill
from jackline.drills.drill_run import (
    BuiltinFleet,
    DrillOptions,
    DrillResult,
    DrillRun,
    all_as_json,
)
from jackline.drills.environment import open_gateway
from jackline.drills.live_view import NOT_WATCHED, LiveView
from jackline.errors import ExitCode, NothingFoundError

# The real client's own seconds cannot be scaled, and it needs some to start.
_FAST_BUILTIN, _FAST_CLAUDE = 30.0, 20.0


@click.command()
@click.argument("name", required=False, shell_complete=drill_names)
@click.option("--fast", is_flag=True, help="Run the drill 20 or 30 times as fast.")
@click.option(
    "--client",
    type=click.Choice(["auto", "claude", "builtin"]),
    default="auto",
    help="The real Claude Code, or a built-in client like it; auto: the real one, if installed.",
)
@click.option(
    "--claude",
    "program",
    type=click.Path(path_type=Path),
    help="The Claude Code to run, if not the one on the PATH.",
)
@click.option(
    "--watch", is_flag=True, help="Print where to watch Jackline's side, and stay open at the end."
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port to watch it at; default: any free one."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def drill(
    name: str | None,
    fast: bool,
    client: str,
    program: Path | None,
    watch: bool,
    port: int | None,
    as_json: bool,
) -> int:
    """Rehearse trouble with a simulated provider: the same agents bare, then through Jackline.

    Without NAME it lists the drills.

    NAME is throttle-storm, session-limit, outage-one-lane, outage-failover, outage-family,
    model-degraded, edge-down, bridge-limits, or all. No key and no network is needed.
    cache-spiral runs a fleet that depends on prompt caches, with its bill, in three minutes.
    cascade, lost-subagent and power-cut compare a program without Jackline with a flow.
    subagent-wall runs sub-agents of the real Claude Code, bare and with Jackline's plugin.

    \b
    Examples:
      jackline drill throttle-storm --fast
      jackline drill outage-one-lane --watch      in the browser
      jackline drill all --fast --client builtin --json

    Exit codes: 0 passed, 1 not passed, 2 usage, 130 interrupted.
    """
    claude = _find_claude(client, program)
    real = claude is not None
    drills = partial(all_drills, real_client=real, claude=claude)
    if name is None:
        _list_drills(drills(), as_json=as_json)
        return ExitCode.DONE
    chosen = drills() if name == "all" else (drill_named(name, real_client=real, claude=claude),)
    show = partial(click.echo, err=True)
    watched = LiveView.at(port, show) if watch or port else NOT_WATCHED
    if claude is None:
        speed = _FAST_BUILTIN if fast else 1.0
        options = DrillOptions("the built-in client", BuiltinFleet, open_gateway, speed, show)
    else:
        speed = _FAST_CLAUDE if fast else 1.0
        about, fleet = f"Claude Code {claude.version}", partial(ClaudeFleet, claude)
        options = DrillOptions(about, fleet, open_gateway, speed, show)
    options = replace(options, live_view=watched)
    results: list[DrillResult] = []
    for one in chosen:
        run = DrillRun(one, options)
        interrupted = False
        try:
            results.append(event_loop.run(run.run()))
        except KeyboardInterrupt:
            results.append(run.so_far())
            interrupted = True
        if not as_json:
            for line in results[-1].to_text():
                click.echo(line)
            click.echo()
        if interrupted:
            break
    if watched.watching and watched.state is None:
        show("there was nothing to watch: this drill uses processes of its own")
    complete = len(results) == len(chosen) and results[-1].complete
    passed = complete and all(result.passed for result in results)
    if as_json:
        everything = all_as_json(results, passed=passed)
        document = everything if name == "all" else results[0].to_json()
        click.echo(json.dumps(document, indent=2))
    if not complete:
        return ExitCode.INTERRUPTED
    return 0 if passed else 1


def _list_drills(drills: Sequence[Drill], *, as_json: bool) -> None:
    if as_json:
        listed = [{"name": each.name, "about": each.about} for each in drills]
        click.echo(json.dumps({"schema": "jackline.drills/1", "drills": listed}, indent=2))
        return
    width = max(len(each.name) for each in drills)
    for each in drills:
        say(f"{each.name:<{width}}  {each.about}", indent=width + 2)
    click.echo("\nnext:  jackline drill NAME --fast", err=True)


def _find_claude(client: str, program: Path | None) -> InstalledClaude | None:
    """The real client to use, or None for the built-in one."""
    if client == "builtin":
        return None
    if program is not None:
        return InstalledClaude.named(program)
    found = InstalledClaude.on_path()
    if found is None and client == "claude":
        raise NothingFoundError(
            "there is no Claude Code on the PATH",
            hint="name its program with --claude PATH, or use --client builtin",
        )
    return found
