"""`jackline status` and `jackline top`: show the gateway's status, once or live.

Rules: (1) the verdict comes first, in the words of every other face; (2) a reason is printed once,
however many calls wait for it, and a time that has passed is not shown as one to wait for; (3)
`--json` is one document, as the gateway wrote it; (4) faults of the configuration do not matter;
(5) `--session` always says whether a figure is the client's or the gateway's; (6) `top` restores
the terminal whatever happens, and works without keys where there is no terminal.
Not here: the words (control/), the picture of `top` (top_screen.py, loaded only for it).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import quote

import click

from jackline.assembly import RunningGateway, StateDir
from jackline.assembly.gateway_process import find, not_running, reading_of, status_of
from jackline.cli.gateway_flags import gateway_flags, service_place, warn_of_faults
from jackline.clock import SystemClock
from jackline.control.text import counted, lane_state, limit_text, whole_second
from jackline.errors import NothingFoundError, UnreachableError
from jackline.failures.sentences import duration_in_words, moment_in_words
from jackline.outside_names import printable

if TYPE_CHECKING:
    from rich.console import Console

    from jackline.config import ServicePlace
    from jackline.state_dir import RunningGateway


def print_client_report(running: RunningGateway, session: str, *, as_json: bool) -> int:
    """Print it; NothingFoundError when no client told anything of such a session."""
    told = reading_of(running, f"clients?session={quote(session, safe='')}")
    agents = cast("list[dict[str, Any]]", told["agents"])
    if not agents:
        raise NothingFoundError(
            f"no client has told anything of a session {session}",
            next="Claude Code tells it with [otlp] receive = true in your own jackline.toml,"
            " and started as: jackline claude",
        )
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return 0
    for agent in agents:
        for line in _lines(agent):
            click.echo(printable(line))
    return 0


def _lines(agent: Mapping[str, Any]) -> Iterator[str]:
    told, seen = agent["reported"], agent["seen"]
    kind = f" ({told['name']})" if told["name"] else ""
    who = f"agent {agent['agent']}{kind}" if agent["agent"] else "main thread"
    yield f"session {agent['session'][:8]}, {who}"
    failed = f", {told['errors']} failed" if told["errors"] else ""
    yield (
        f"  the client says:  {counted(told['requests'], 'call')}{failed},"
        f" {counted(told['tokens'], 'token')}, ${told['dollars']:,.4f}"
    )
    if seen is not None:
        lost = f", {seen['failed']} failed" if seen["failed"] else ""
        yield (
            f"  the gateway saw:  {counted(seen['calls'], 'call')}{lost},"
            f" {counted(seen['tokens'], 'token')}, held for {seen['waited']:,.1f} s"
        )
    for name, tool in told["tools"].items():
        wrong = f", {tool['failed']} failed" if tool["failed"] else ""
        runs = counted(tool["ok"] + tool["failed"], "run")
        yield f"  {name}: {runs}{wrong}, {tool['seconds']:,.1f} s"


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
        return print_client_report(running, session, as_json=as_json)
    told = status_of(running)
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return 0
    click.echo(printable(str(told["verdict"]), keep="\n"))
    click.echo(f"\n{told['url']} sends to {_ladder(told)}, process {running.pid}")
    for lane in _list(told, "lanes"):
        click.echo(printable(lane_line(lane, _now(told))))
        if limits := limit_text(lane, _now(told)):
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
    return f"  {lane['name']}: {lane_state(lane)}, {figures}{why}{_until(lane, now)}"


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


_LOOK_EVERY = 0.05


class Keys(Protocol):
    """Where keys come from."""

    def wait(self, seconds: float) -> str:
        """The key that was pressed within the time; empty when none was."""
        ...


class _NoKeys:
    def wait(self, seconds: float) -> str:
        time.sleep(seconds)
        return ""


@contextmanager
def keys() -> Iterator[Keys]:
    """The keys of this terminal."""
    if not sys.stdin.isatty():
        yield _NoKeys()
    elif sys.platform == "win32":
        yield _WindowsKeys()
    else:
        import termios  # noqa: PLC0415 -- only there
        import tty  # noqa: PLC0415

        file = sys.stdin.fileno()
        before = termios.tcgetattr(file)
        try:
            # Unlike raw mode this leaves Ctrl-C what it is; a key that was pressed early counts.
            tty.setcbreak(file, termios.TCSANOW)
            yield _PosixKeys(file)
        finally:
            termios.tcsetattr(file, termios.TCSADRAIN, before)


class _PosixKeys:
    def __init__(self, file: int) -> None:
        self._file = file

    def wait(self, seconds: float) -> str:
        import os  # noqa: PLC0415
        import select  # noqa: PLC0415

        ready, _, _ = select.select([self._file], [], [], seconds)
        return os.read(self._file, 1).decode("latin-1") if ready else ""


class _WindowsKeys:
    def wait(self, seconds: float) -> str:
        from importlib import import_module  # noqa: PLC0415

        console = import_module("msvcrt")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if console.kbhit():
                return str(console.getwch())
            time.sleep(_LOOK_EVERY)
        return ""


_EVERY = 1.0
_LEAVE = frozenset(("q", "Q", "\x03", "\x1b"))
_TALL = 10_000


@click.command()
@gateway_flags
@click.option("--once", is_flag=True, help="Draw it once, and leave.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, and leave.")
@click.option(
    "--every",
    type=click.FloatRange(0.2, 3600),
    default=_EVERY,
    help="Seconds between two looks (1).",
)
def top(
    port: int | None,
    upstream: str | None,
    state: str | None,
    config: str | None,
    once: bool,
    as_json: bool,
    every: float,
) -> int:
    """Watch the fleet: lanes, agents with what they wait for, burn, runs and forecast.

    `q` or Ctrl-C leaves. Off a terminal one picture is printed.

    Exit codes: 0 told, 5 no gateway runs.
    """
    flags = {"port": port, "upstream": upstream, "state": state, "config": config}
    place = service_place(flags)
    folder = StateDir(place.state_dir)
    running = find(folder, place.listen)
    if running is None:
        raise place.problem or not_running(folder)
    warn_of_faults(place)
    told = reading_of(running, "fleet")
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return 0
    from rich.console import Console  # noqa: PLC0415 -- not for --json

    console = Console(highlight=False)
    if once or not sys.stdout.isatty():
        console.print(_drawn(told, console, _TALL))
        return 0
    _watch(console, place, running, told, every)
    return 0


def _watch(
    console: Console,
    place: ServicePlace,
    running: RunningGateway,
    told: dict[str, Any],
    every: float,
) -> None:
    from rich.live import Live  # noqa: PLC0415 -- not for --once

    first = _drawn(told, console, console.height)
    try:
        with (
            keys() as pressed,
            Live(first, console=console, screen=True, auto_refresh=False) as live,
        ):
            while pressed.wait(every) not in _LEAVE:
                live.update(_again(console, place, running, told), refresh=True)
    except KeyboardInterrupt:
        pass  # the other way to leave


def _again(
    console: Console, place: ServicePlace, running: RunningGateway, told: dict[str, Any]
) -> Any:
    try:
        # Found again each time: after a restart it has another token, and perhaps another port.
        now = find(StateDir(place.state_dir), place.listen) or running
        told.update(reading_of(now, "fleet"))
    except UnreachableError as error:
        told["verdict"] = f"{error.message}; this is how it stood before."
    return _drawn(told, console, console.height)


def _drawn(told: dict[str, Any], console: Console, height: int) -> Any:
    from jackline.cli.top_screen import frame  # noqa: PLC0415 -- with rich, not for --json

    hint = "" if height == _TALL else "q leaves"
    # The gateway's own time, which in a drill runs faster, and elsewhere may be another.
    now = datetime.fromtimestamp(told["at"], SystemClock().now().tzinfo)
    return frame(_printable(told), now, console.width, height, hint=hint)


def _printable(told: Any) -> Any:
    """The document with every text in it printable: names in it come from clients and stores."""
    if isinstance(told, str):
        return printable(told, keep="\n")
    if isinstance(told, dict):
        return {_printable(key): _printable(value) for key, value in told.items()}
    return [_printable(value) for value in told] if isinstance(told, list) else told
