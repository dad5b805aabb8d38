"""`jackline drill`: rehearse a storm, a wall or an outage, without Jackline and through it.

Rules: (1) stdout holds the result, stderr the progress; (2) exit 0 only when every demand is met;
(3) Ctrl-C ends all that was started and prints what had happened by then.
Not here: the drills (drills/catalogue.py), running them (drills/drill_run.py).
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from jackline import event_loop
from jackline.cli.arguments import drill_names
from jackline.drills import report
from jackline.drills.catalogue import all_drills, drill_named
from jackline.drills.claude_client import ClaudeFleet, InstalledClaude, claude_at, claude_on_path
from jackline.drills.drill_run import BuiltinFleet, DrillOptions, DrillResult, DrillRun
from jackline.drills.environment import open_gateway
from jackline.drills.live_view import NOT_WATCHED, live_view_at
from jackline.errors import NothingFoundError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
# The real client's own seconds cannot be scaled, and it needs some to start.
FAST_BUILTIN, FAST_CLAUDE = 30.0, 20.0


@click.command()
@click.argument("name", shell_complete=drill_names)
@click.option("--fast", is_flag=True, help="Let the drill's time pass 20 or 30 times as fast.")
@click.option(
    "--client",
    type=click.Choice(["auto", "claude", "builtin"]),
    default="auto",
    help="The real Claude Code, or a built-in one that behaves like it; auto takes what is there.",
)
@click.option(
    "--claude",
    "program",
    type=click.Path(path_type=Path),
    help="The Claude Code to run, if not the one on the PATH.",
)
@click.option(
    "--watch", is_flag=True, help="Say where Jackline's side can be watched, and stay at its end."
)
@click.option("--port", type=click.IntRange(1, 65535), help="Where to watch it; any free one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def drill(
    name: str,
    fast: bool,
    client: str,
    program: Path | None,
    watch: bool,
    port: int | None,
    as_json: bool,
) -> int:
    """Rehearse trouble with a simulated provider: the same agents bare, then through Jackline.

    NAME is throttle-storm, session-limit, outage-one-lane, outage-failover, outage-family,
    model-degraded, edge-down, bridge-limits, or all. No key and no network is needed.
    cache-spiral plays a fleet that lives on prompt caches, with its bill, in three minutes.
    cascade, lost-subagent and power-cut play a program without a harness against a flow.
    subagent-wall plays sub-agents of the real Claude Code, bare and with Jackline's plugin.

    \b
    Examples:
      jackline drill throttle-storm --fast
      jackline drill outage-one-lane --watch     in the browser, and in jackline top
      jackline drill all --fast --client builtin --json

    Exit codes: 0 passed, 1 not passed, 2 usage, 130 interrupted.
    """
    claude = _client(client, program)
    real = claude is not None
    drills = partial(all_drills, real_client=real, claude=claude)
    chosen = drills() if name == "all" else (drill_named(name, real_client=real, claude=claude),)
    watched = live_view_at(port, _tell) if watch or port else NOT_WATCHED
    means = replace(_means(claude, fast=fast), live_view=watched)
    results: list[DrillResult] = []
    for one in chosen:
        run = DrillRun(one, means)
        try:
            results.append(event_loop.run(run.run()))
        except KeyboardInterrupt:
            results.append(run.so_far())
            break
        if not as_json:
            _print(results[-1])
    if watched.watching and watched.state is None:
        _tell("there was nothing to watch: this drill plays with processes of its own")
    complete = len(results) == len(chosen) and results[-1].complete
    passed = complete and all(result.passed for result in results)
    if as_json:
        whole = report.all_as_json(results, passed=passed)
        click.echo(json.dumps(whole if name == "all" else report.as_json(results[0]), indent=2))
    elif not complete:
        _print(results[-1])
    if not complete:
        return EXIT_INTERRUPTED
    return 0 if passed else EXIT_FAILED


def _client(client: str, program: Path | None) -> InstalledClaude | None:
    """The real client to take, or None for the built-in one."""
    if client == "builtin":
        return None
    if program is not None:
        return claude_at(program)
    found = claude_on_path()
    if found is None and client == "claude":
        raise NothingFoundError(
            "there is no Claude Code on the PATH",
            next="give its program with --claude PATH, or take --client builtin",
        )
    return found


def _means(claude: InstalledClaude | None, *, fast: bool) -> DrillOptions:
    if claude is None:
        speed = FAST_BUILTIN if fast else 1.0
        return DrillOptions("the built-in client", BuiltinFleet, open_gateway, speed, _tell)
    speed = FAST_CLAUDE if fast else 1.0
    words = f"Claude Code {claude.version}"
    return DrillOptions(words, partial(ClaudeFleet, claude), open_gateway, speed, _tell)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _print(result: DrillResult) -> None:
    for line in report.as_text(result):
        click.echo(line)
    click.echo()
