"""Accept a run that this installation did not write, after it was shown what it would run.

Rules: (1) everything that leads to code or commands is shown first, with nothing hidden; (2) only a
person at a terminal, or `--yes`, accepts; (3) what is accepted is exactly what was shown.
Not here: what acceptance means in the store (flows/local/signing.py).
"""

from __future__ import annotations

import json
import sys

import click

from jackline.cli.runs_telling import what_it_would_run
from jackline.errors import UsageError
from jackline.flows.engine import Engine
from jackline.flows.kept_calls import kept_calls
from jackline.flows.records import RunRecord
from jackline.outside_names import printable


async def accept(engine: Engine, run: RunRecord, *, yes: bool, as_json: bool) -> int:
    """Show the run, ask, and count it as ours."""
    digest = await engine.digest(run.run_id)
    again = await engine.run(run.run_id) or run  # what the digest covers, not what was read before
    resources = [row for row in await engine.resources() if row.run_id == run.run_id]
    hooks = [row for row in await engine.hooks(run.run_id) if row.state != "done"]
    calls = await engine.calls(run.run_id)
    kept = await kept_calls(engine, run.run_id)
    for line in what_it_would_run(again, resources, hooks, calls, kept):
        click.echo(line, err=as_json)
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise UsageError(
                f"nobody was asked whether run {run.run_id} is to be trusted",
                next=f"look at the lines above, then: jackline show {run.run_id} --trust --yes",
            )
        if not click.confirm("Is this yours, and may it run?", default=False, err=True):
            click.echo("nothing was accepted", err=True)
            return 1
    await engine.accept(run.run_id, digest)
    if as_json:
        told = {"schema": "jackline.run-accepted/1", "run": run.run_id, "trusted": True}
        click.echo(json.dumps(told))
    else:
        words = f"run {run.run_id} is trusted from now on: jackline resume {run.run_id}"
        click.echo(printable(words))
    return 0
