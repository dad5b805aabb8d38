"""`jackline run`: run a flow of agents, with live progress.

Laws: (1) the flow's own arguments are a JSON object or `--key value`; (2) those of carrying_run.py.
Not here: carrying it (carrying_run.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from jackline.budgets.budget import Budget
from jackline.cli.carrying_run import carry_in_foreground
from jackline.cli.gateway_flags import configured, show_warnings
from jackline.cli.wake_timer import WakeBy
from jackline.errors import BadArgumentError
from jackline.flows.arguments import arguments_from_words, decode_arguments
from jackline.flows.definition import Flow
from jackline.flows.host import FlowHost
from jackline.flows.loading import load_flow
from jackline.flows.orders import begin_run
from jackline.flows.progress import Listener
from jackline.flows.running import FlowRun

WAKE = click.option(
    "--wake",
    type=click.Choice(["systemd", "launchd", "at", "schtasks", "none"]),
    default="none",
    help="Let the system wake it when it was left parked and no `jackline up` runs.",
)
QUIET = click.option("-q", "--quiet", is_flag=True, help="No progress, only the outcome.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
STATE = click.option("--state", type=click.Path(), help="The folder for journal and state.")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True})
@click.argument("flow")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--runner",
    type=click.Choice(["messages", "claude-code", "codex"]),
    help="Who carries agents that name no runner.",
)
@click.option("--model", help="The model of agents that name none.")
@click.option("--on-quota", type=click.Choice(["park", "abort"]), help="At a quota wall.")
@click.option(
    "--budget",
    help='What it may use: "dollars=5,tokens=2000000,agents=50,turns=500"; "strict" too.',
)
@WAKE
@QUIET
@AS_JSON
@STATE
def run(
    flow: str,
    arguments: Sequence[str],
    budget: str | None,
    wake: WakeBy,
    quiet: bool,
    as_json: bool,
    **overrides: str | None,
) -> int:
    """Run a flow of agents to its end, whatever happens.

    FLOW is a Python file, with the flow's name if it has several: research.py:main. Its arguments
    follow as one JSON object or as --key value.

    \b
    Examples:
      jackline run research.py --question "What is a jackline?"
      jackline run research.py '{"question": "What is a jackline?"}' --budget dollars=5

    Ctrl-C once: nothing new starts, agents end their turns, everything is saved. Twice: now.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 finished but some agents failed, 75 parked, 130 stopped.
    """
    keys = {"state": "state", **{name: f"run.{name}" for name in ("runner", "model", "on_quota")}}
    limits = None if budget is None else read_budget(budget)
    config = configured(
        {keys[name]: value for name, value in overrides.items()},
        in_dollars=limits is not None and limits.dollars is not None,
    )
    show_warnings(config)
    loaded = load_flow(flow)
    given = _given(loaded, arguments)
    settings = config.runs
    if limits is not None:
        settings = replace(settings, budgets=(*settings.budgets, limits))

    async def begin(host: FlowHost, listener: Listener) -> FlowRun[Any]:
        return await begin_run(host, loaded, given, settings=settings, listener=listener)

    return carry_in_foreground(config, begin, as_json=as_json, quiet=quiet, wake=wake)


def _given(flow: Flow[..., Any], words: Sequence[str]) -> bytes:
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            data = json.dumps(json.loads(words[0])).encode()
        except ValueError as error:
            raise BadArgumentError(
                f"the flow's arguments are no JSON: {error}", next="check the quotes of your shell"
            ) from error
        decode_arguments(flow.function, data)
        return data
    given: dict[str, str] = {}
    rest = list(words)
    while rest:
        name = rest.pop(0)
        if not name.startswith("--") or len(name) < 3:
            raise BadArgumentError(
                f"{name!r} is no argument of the flow", next="write --key value, or one JSON object"
            )
        name, equals, value = name[2:].partition("=")
        if not equals:
            if not rest:
                raise BadArgumentError(f"--{name} needs a value", next=f"write --{name} VALUE")
            value = rest.pop(0)
        given[name.replace("-", "_")] = value
    return arguments_from_words(flow.function, given)


def read_budget(words: str) -> Budget:
    """A budget as it is written on a command line."""
    limits: dict[str, float] = {}
    parts = [part.strip() for part in words.split(",")]
    strict = "strict" in parts
    for part in parts:
        if part == "strict":
            continue
        name, _, number = (piece.strip() for piece in part.partition("="))
        try:
            limits[name] = float(number) if name in ("dollars", "seconds") else int(number)
        except ValueError:
            limits = {}
        if name not in ("tokens", "dollars", "agents", "turns", "seconds") or name not in limits:
            raise BadArgumentError(
                f"{words!r} is no budget",
                next='write it like "dollars=5,tokens=2000000" or "dollars=5,strict"',
            )
    return Budget(**limits, strict=strict)  # type: ignore[arg-type]
