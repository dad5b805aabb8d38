"""`jackline status`: how the gateway stands, who waits for what, and until when.

Laws: (1) the verdict comes first, in the words of every other face; (2) a reason is said once,
however many wait for it; (3) `--json` is what the gateway itself tells, one document; (4) an hour
that has passed is not told as one to wait for; (5) faults of the configuration do not stand in the
way.
Not here: the words (control/).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import click

from jackline.assembly import StateDir
from jackline.assembly.running_gateway import find, not_running, status_of
from jackline.cli.gateway_flags import gateway_flags, service_place, warn_of_faults
from jackline.cli.status_clients import tell_clients
from jackline.clock import SystemClock
from jackline.control.limit_words import limit_words
from jackline.control.picture import lane_word
from jackline.control.whole_seconds import whole_second
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.outside_names import printable

_MOST_LINES = 20


@click.command()
@gateway_flags
@click.option(
    "--session",
    metavar="ID",
    help="What Claude Code told of a session's agents ([otlp] receive), and what was seen of them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(
    port: int | None,
    upstream: str | None,
    state: str | None,
    config: str | None,
    session: str | None,
    as_json: bool,
) -> int:
    """Tell how the gateway stands: the verdict, its lanes, and who waits for what.

    Exit codes: 0 told, 5 no gateway runs.
    """
    flags = {"port": port, "upstream": upstream, "state": state, "config": config}
    place = service_place(flags)
    folder = StateDir(place.state_dir)
    running = find(folder, place.listen)
    if running is None:
        raise place.problem or not_running(folder)
    warn_of_faults(place)
    if session is not None:
        return tell_clients(running, session, as_json=as_json)
    told = status_of(running)
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return 0
    click.echo(printable(str(told["verdict"]), keep="\n"))
    click.echo(f"\n{told['url']} sends to {_ladder(told)}, process {running.pid}")
    for lane in _list(told, "lanes"):
        click.echo(printable(lane_line(lane, _now(told))))
        if limits := limit_words(lane, _now(told)):
            click.echo(printable(f"    limits: {limits}"))
    for line in waiting_lines(told):
        click.echo(printable(line, keep="\n"))
    for note in told.get("notes") or []:  # type: ignore[attr-defined]
        click.echo(printable(f"\nnote:  {note}", keep="\n"))
    return 0


def _ladder(told: dict[str, object]) -> str:
    """Where calls go; one from before an update tells only the first."""
    ladder = told.get("upstreams")
    return ", then ".join(map(str, ladder if isinstance(ladder, list) else [told["upstream"]]))


def lane_line(lane: dict[str, object], now: datetime) -> str:
    """How one lane stands."""
    figures = f"{lane['in_flight']} of {lane['window']} in flight, {lane['waiting']} waiting"
    limits = lane.get("limits")
    if isinstance(limits, dict) and limits:
        figures += ", left: " + ", ".join(f"{name} {share:.0%}" for name, share in limits.items())
    why = f"; {lane['why']}" if lane["why"] else ""
    return f"  {lane['name']}: {lane_word(lane)}, {figures}{why}{_until(lane, now)}"


def waiting_lines(told: dict[str, object]) -> Iterator[str]:
    """Who waits, under what they wait for: a reason that many share is said once."""
    waiting = _list(told, "waiting")
    if not waiting:
        return
    count = _number(told.get("calls_waiting"))
    yield f"\nwaiting, {count:,.0f} {'call' if count == 1 else 'calls'}:"
    # The lane's own line above has said it already.
    said = {str(lane["why"]) for lane in _list(told, "lanes")}
    left = _MOST_LINES
    for reason, calls in _by_reason(waiting, said, _now(told)).items():
        yield f"  {reason}:"
        for call in calls[: max(0, left)]:
            yield _call_line(call)
        left -= len(calls)
    hidden = count - min(len(waiting), _MOST_LINES)
    if hidden > 0:
        yield f"  and {hidden:,.0f} more; --json tells {len(waiting)} of them"


def _by_reason(
    waiting: list[dict[str, object]], said: set[str], now: datetime
) -> dict[str, list[dict[str, object]]]:
    groups: dict[str, list[dict[str, object]]] = {}
    for call in waiting:
        why = str(call["why"])
        reason = f"for {call['lane']}" + ("" if why in said or not why else f": {why}")
        groups.setdefault(f"{reason}{_until(call, now, past=', about to go on')}", []).append(call)
    return groups


def _call_line(call: dict[str, object]) -> str:
    session = f"session {str(call['session'])[:8]}" if call["session"] else str(call["call"])
    agent = f", agent {call['agent']}" if call["agent"] else ""
    who = str(call.get("label") or "") or f"{session}{agent}"
    since = timedelta(seconds=datetime.now(UTC).timestamp() - _number(call["since"]))
    waited = duration_in_words(max(timedelta(0), since))
    return f"    {who} ({call['model']}), for {waited}{_turn(call)}"


def _turn(call: dict[str, object]) -> str:
    """Why it goes before others or after them, where a prompt cache decides that."""
    turn = call.get("turn")
    if not isinstance(turn, dict) or (turn["rank"] == "normal" and not turn["cached_tokens"]):
        return ""
    return f"; {turn['why']}"


def _until(told: dict[str, object], now: datetime, past: str = "") -> str:
    until = told.get("until")
    if not isinstance(until, int | float):
        return ""
    if until <= now.timestamp():
        return past
    return (
        f", until {moment_in_words(datetime.fromtimestamp(whole_second(until), now.tzinfo), now)}"
    )


def _now(told: dict[str, object]) -> datetime:
    """The gateway's own time, which in a drill runs faster, and elsewhere may be another."""
    return datetime.fromtimestamp(_number(told["at"]), SystemClock().now().tzinfo)


def _list(told: dict[str, object], name: str) -> list[dict[str, object]]:
    found = told.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
