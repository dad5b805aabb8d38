"""`jackline status`: how the gateway stands, who waits for what, and until when.

Laws: (1) the verdict comes first, in the words of every other face; (2) `--json` is what the
gateway itself tells, one document.
Not here: the words (control/).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import click

from jackline.assembly import StateDir
from jackline.assembly.running_gateway import find, not_running, status_of
from jackline.cli.gateway_flags import configured, gateway_flags
from jackline.clock import SystemClock
from jackline.failures.sentences import duration_in_words, moment_in_words

_MOST_LINES = 20


@click.command()
@gateway_flags
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(
    port: int | None, upstream: str | None, state: str | None, config: str | None, as_json: bool
) -> int:
    """Tell how the gateway stands: the verdict, its lanes, and who waits for what.

    Exit codes: 0 told, 5 no gateway runs.
    """
    flags = {"port": port, "upstream": upstream, "state": state, "config": config}
    settings = configured(flags, with_secrets=False)
    folder = StateDir(settings.state_dir)
    running = find(folder, settings.gateway.listen)
    if running is None:
        raise not_running(folder)
    told = status_of(running)
    if as_json:
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return 0
    click.echo(str(told["verdict"]))
    click.echo(f"\n{told['url']} sends to {told['upstream']}, process {running.pid}")
    for lane in _list(told, "lanes"):
        click.echo(_lane_line(lane))
    waiting = _list(told, "waiting")
    if waiting:
        click.echo("\nwaiting:")
    for call in waiting[:_MOST_LINES]:
        click.echo(_call_line(call))
    more = _number(told.get("calls_waiting")) - len(waiting[:_MOST_LINES])
    if more > 0:
        click.echo(f"  and {more:.0f} more; --json tells them")
    for note in told.get("notes") or []:  # type: ignore[attr-defined]
        click.echo(f"\nnote:  {note}")
    return 0


def _lane_line(lane: dict[str, object]) -> str:
    figures = f"{lane['in_flight']} of {lane['window']} in flight, {lane['waiting']} waiting"
    limits = lane.get("limits")
    if isinstance(limits, dict) and limits:
        figures += ", left: " + ", ".join(f"{name} {share:.0%}" for name, share in limits.items())
    why = f"; {lane['why']}" if lane["why"] else ""
    return f"  {lane['name']}: {lane['state']}, {figures}{why}{_until(lane)}"


def _call_line(call: dict[str, object]) -> str:
    who = f"session {str(call['session'])[:8]}" if call["session"] else str(call["call"])
    if call["agent"]:
        who += f", agent {call['agent']}"
    since = timedelta(seconds=datetime.now(UTC).timestamp() - _number(call["since"]))
    waited = duration_in_words(max(timedelta(0), since))
    return f"  {who} ({call['model']}), for {waited}: {call['why']}{_until(call)}"


def _until(told: dict[str, object]) -> str:
    until = told.get("until")
    if not isinstance(until, int | float):
        return ""
    now = SystemClock().now()
    return f", until {moment_in_words(datetime.fromtimestamp(round(until), now.tzinfo), now)}"


def _list(told: dict[str, object], name: str) -> list[dict[str, object]]:
    found = told.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
