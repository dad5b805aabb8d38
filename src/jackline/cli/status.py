"""`jackline status`: show the gateway's status, once, or with --watch the whole fleet, live.

Rules: (1) the verdict comes first, in the same words as in every other interface; (2) a reason is
printed once, however many calls wait for it, and a time that has passed is not shown as one to wait
for; (3) `--json` is one document, as the gateway wrote it; (4) faults of the configuration do not
matter; (5) `--session` always says whether a figure is the client's or the gateway's; (6) --watch
restores the terminal whatever happens, and prints one picture where there is no terminal.
The words: control/. The picture of the fleet: fleet_screen.py, loaded only for it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import click

from jackline.assembly import RunningGateway
from jackline.assembly.gateway_process import reading_of, status_of
from jackline.cli.gateway_flags import find_gateway, gateway_flags, running_gateway, service_place
from jackline.cli.terminal import say
from jackline.clock import SystemClock
from jackline.control.text import counted, lane_state, limit_text, moment_text
from jackline.errors import BadArgumentError, UnreachableError, UnreadableError
from jackline.failures.sentences import duration_in_words
from jackline.outside_names import printable

if TYPE_CHECKING:
    from rich.console import Console

_MOST_WAITING = 20
_KEY_POLL_SECONDS = 0.05
_QUIT_KEYS = frozenset(("q", "Q", "\x03", "\x1b"))
_UNLIMITED_HEIGHT = 10_000


@click.command()
@gateway_flags
@click.option(
    "--session",
    metavar="ID",
    help="What Claude Code reported of a session's agents ([otlp] receive), and what was seen.",
)
@click.option("--watch", is_flag=True, help="The fleet, live: agents, use, runs and forecast, too.")
@click.option(
    "--every",
    type=click.FloatRange(0.2, 3600),
    help="With --watch: seconds between two updates (1).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(
    flags: Mapping[str, object],
    session: str | None,
    watch: bool,
    every: float | None,
    as_json: bool,
) -> int:
    """Show gateway status: the verdict, its lanes, and who waits for what.

    With --watch it shows the fleet, live: lanes, agents with what they wait for, use, runs and
    forecast. `q` or Ctrl-C ends it. Without a terminal, or with --json, it is printed once.

    Exit codes: 0 shown, 5 no gateway runs.
    """
    if (session is not None and watch) or (every is not None and not watch):
        words = "--session is" if watch else "--every belongs to --watch, and this is"
        raise BadArgumentError(f"{words} printed once", hint="jackline status --help")
    running = running_gateway(flags)
    if watch:
        return _watch(flags, running, 1.0 if every is None else every, as_json=as_json)
    if session is not None:
        _print_session(running, session, as_json=as_json)
        return 0
    document = status_of(running)
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return 0
    say(printable(str(document["verdict"]), keep="\n"))
    upstreams = document.get("upstreams")
    if not isinstance(upstreams, list):
        upstreams = [document["upstream"]]  # a gateway from before an update names only the first
    order = ", then ".join(map(str, upstreams))
    say(f"\n{document['url']} sends to {order}, process {running.pid}")
    now = _gateway_time(document)
    for lane in dicts_in(document, "lanes"):
        say(printable(lane_line(lane, now)))
        if limits := limit_text(lane, now):
            say(printable(f"    limits: {limits}"))
    for line in waiting_lines(document):
        say(printable(line, keep="\n"))
    for note in document.get("notes") or []:  # type: ignore[attr-defined]
        say(printable(f"\nnote:  {note}", keep="\n"))
    return 0


def lane_line(lane: Mapping[str, object], now: datetime) -> str:
    """The status of one lane."""
    figures = f"{lane['in_flight']} of {lane['window']} in flight, {lane['waiting']} waiting"
    limits = lane.get("limits")
    if isinstance(limits, dict) and limits:
        figures += ", left: " + ", ".join(f"{name} {share:.0%}" for name, share in limits.items())
    why = f"; {lane['why']}" if lane["why"] else ""
    return f"  {lane['name']}: {lane_state(lane)}, {figures}{why}{_until(lane, now)}"


def waiting_lines(document: Mapping[str, object]) -> Iterator[str]:
    """Waiting calls, grouped by what they wait for."""
    waiting = dicts_in(document, "waiting")
    if not waiting:
        return
    total = document.get("calls_waiting")
    count = total if isinstance(total, int) else 0
    yield f"\nwaiting, {counted(count, 'call')}:"
    now = _gateway_time(document)
    shown_with_lane = {str(lane["why"]) for lane in dicts_in(document, "lanes")}
    groups: dict[str, list[dict[str, object]]] = {}
    for call in waiting:
        why = str(call["why"])
        reason = f"for {call['lane']}" + (f": {why}" if why and why not in shown_with_lane else "")
        groups.setdefault(reason + _until(call, now, past=", about to go on"), []).append(call)
    left = _MOST_WAITING
    for reason, calls in groups.items():
        yield f"  {reason}:"
        for call in calls[: max(0, left)]:
            session = (
                f"session {str(call['session'])[:8]}" if call["session"] else str(call["call"])
            )
            agent = f", agent {call['agent']}" if call["agent"] else ""
            who = str(call.get("label") or "") or f"{session}{agent}"
            since = call["since"] if isinstance(call["since"], int | float) else 0.0
            waited = timedelta(seconds=max(0.0, datetime.now(UTC).timestamp() - since))
            turn = call.get("turn")
            why = ""
            # Why it goes before or after others, where a prompt cache decides that.
            if isinstance(turn, dict) and (turn["rank"] != "normal" or turn["cached_tokens"]):
                why = f"; {turn['why']}"
            yield f"    {who} ({call['model']}), for {duration_in_words(waited)}{why}"
        left -= len(calls)
    hidden = count - min(len(waiting), _MOST_WAITING)
    if hidden > 0:
        yield f"  and {hidden:,} more; --json shows {len(waiting)} of them"


def _until(item: Mapping[str, object], now: datetime, past: str = "") -> str:
    until = item.get("until")
    if not isinstance(until, int | float):
        return ""
    if until <= now.timestamp():
        return past
    return f", until {moment_text(until, now)}"


def _gateway_time(document: Mapping[str, object]) -> datetime:
    """The gateway's own time: in a drill it runs faster, and its machine's clock may differ."""
    return datetime.fromtimestamp(cast("float", document["at"]), SystemClock().now().tzinfo)


def dicts_in(document: Mapping[str, object], name: str) -> list[dict[str, object]]:
    """The objects in this list of a document; none where it has no such list."""
    found = document.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _print_session(running: RunningGateway, session: str, *, as_json: bool) -> None:
    document = reading_of(running, f"clients?session={quote(session, safe='')}")
    agents = cast("list[dict[str, Any]]", document["agents"])
    if not agents:
        raise UnreadableError(
            f"no client has reported anything of a session {session}",
            hint="Claude Code reports it with [otlp] receive = true in your own jackline.toml,"
            " and started as: jackline claude",
        )
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    for agent in agents:
        reported, seen = agent["reported"], agent["seen"]
        kind = f" ({reported['name']})" if reported["name"] else ""
        who = f"agent {agent['agent']}{kind}" if agent["agent"] else "main thread"
        failed = f", {reported['errors']} failed" if reported["errors"] else ""
        lines = [
            f"session {agent['session'][:8]}, {who}",
            (
                f"  the client says:  {counted(reported['requests'], 'call')}{failed},"
                f" {counted(reported['tokens'], 'token')}, ${reported['dollars']:,.4f}"
            ),
        ]
        if seen is not None:
            failed = f", {seen['failed']} failed" if seen["failed"] else ""
            lines.append(
                f"  the gateway saw:  {counted(seen['calls'], 'call')}{failed},"
                f" {counted(seen['tokens'], 'token')}, held for {seen['waited']:,.1f} s"
            )
        for name, tool in reported["tools"].items():
            failed = f", {tool['failed']} failed" if tool["failed"] else ""
            runs = counted(tool["ok"] + tool["failed"], "run")
            lines.append(f"  {name}: {runs}{failed}, {tool['seconds']:,.1f} s")
        for line in lines:
            say(printable(line))


def _watch(
    flags: Mapping[str, object], running: RunningGateway, every: float, *, as_json: bool
) -> int:
    """Show the fleet until a key or Ctrl-C ends it; once where nobody could press one."""
    document = reading_of(running, "fleet")
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return 0
    from rich.console import Console  # noqa: PLC0415 -- not for --json

    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console.print(_draw(document, console, _UNLIMITED_HEIGHT))
        return 0
    from rich.live import Live  # noqa: PLC0415 -- not for --once

    place = service_place(flags)
    first = _draw(document, console, console.height)
    try:
        with (
            _keys_unbuffered(),
            Live(first, console=console, screen=True, auto_refresh=False) as live,
        ):
            while _next_key(every) not in _QUIT_KEYS:
                try:
                    # Found again each time: after a restart its token and port may differ.
                    now = find_gateway(flags, place) or running
                    document.update(reading_of(now, "fleet"))
                except UnreachableError as error:
                    document["verdict"] = f"{error.message}; this is the last status before that."
                live.update(_draw(document, console, console.height), refresh=True)
    except KeyboardInterrupt:
        pass  # the other way to leave
    return 0


def _draw(document: Mapping[str, object], console: Console, height: int) -> Any:
    from jackline.cli.fleet_screen import frame  # noqa: PLC0415 -- with rich, not for --json

    hint = "" if height == _UNLIMITED_HEIGHT else "q leaves"
    return frame(_printable(document), _gateway_time(document), console.width, height, hint=hint)


def _printable(value: Any) -> Any:
    """The document with every text in it printable: names in it come from clients and stores."""
    if isinstance(value, str):
        return printable(value, keep="\n")
    if isinstance(value, dict):
        return {_printable(key): _printable(each) for key, each in value.items()}
    return [_printable(each) for each in value] if isinstance(value, list) else value


@contextmanager
def _keys_unbuffered() -> Iterator[None]:
    """While the block runs, the keys of this terminal come one by one."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios  # noqa: PLC0415 -- only there
    import tty  # noqa: PLC0415

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    # Unlike raw mode this keeps Ctrl-C working; a key that was pressed early counts.
    tty.setcbreak(number, termios.TCSANOW)
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _next_key(seconds: float) -> str:
    """The key that is pressed within the time; empty when none is."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return ""
    if sys.platform == "win32":
        console = import_module("msvcrt")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if console.kbhit():
                return str(console.getwch())
            time.sleep(_KEY_POLL_SECONDS)
        return ""
    import select  # noqa: PLC0415 -- only there

    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return os.read(sys.stdin.fileno(), 1).decode("latin-1") if ready else ""
