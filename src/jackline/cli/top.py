"""`jackline top`: the fleet on a terminal, live.

Laws: (1) the first frame comes before anything else is done; (2) a gateway that restarts does not
end it: it says so and goes on; (3) `q` and Ctrl-C leave with the terminal as it was; (4) `--json`
is what the gateway itself tells, one document, and stdout off a terminal gets one frame; (5) faults
of the configuration do not stand in the way.
Not here: the words and the drawing (top_drawing.py), keys (top_keys.py).
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from jackline.assembly import StateDir
from jackline.assembly.running_gateway import find, not_running, reading_of
from jackline.cli.gateway_flags import gateway_flags, service_place, warn_of_faults
from jackline.clock import SystemClock
from jackline.errors import UnreachableError
from jackline.outside_names import printable

if TYPE_CHECKING:
    from rich.console import Console

    from jackline.assembly.state_dir import Running
    from jackline.config import ServicePlace

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
    console: Console, place: ServicePlace, running: Running, told: dict[str, Any], every: float
) -> None:
    from rich.live import Live  # noqa: PLC0415 -- not for --once

    from jackline.cli.top_keys import keys  # noqa: PLC0415

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


def _again(console: Console, place: ServicePlace, running: Running, told: dict[str, Any]) -> Any:
    try:
        # Found again each time: after a restart it has another token, and perhaps another port.
        now = find(StateDir(place.state_dir), place.listen) or running
        told.update(reading_of(now, "fleet"))
    except UnreachableError as error:
        told["verdict"] = f"{error.message}; this is how it stood before."
    return _drawn(told, console, console.height)


def _drawn(told: dict[str, Any], console: Console, height: int) -> Any:
    from jackline.cli.top_drawing import frame  # noqa: PLC0415 -- with rich, not for --json

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
