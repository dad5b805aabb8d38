"""Wait until nothing is in flight on lanes that were told to drain.

Laws: (1) looking changes nothing: whoever stops waiting leaves the lanes draining; (2) a lane that
somebody resumes meanwhile is not waited for: it would never be empty.
Not here: the order itself (assembly/draining.py), the command line (upstream.py).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, cast

import click

from jackline.assembly import Running
from jackline.assembly.running_gateway import order, reading_of
from jackline.control.counted import counted

_LOOK_EVERY = 0.5


def drain_lanes(running: Running, pattern: str) -> dict[str, list[str]]:
    """The lanes by what came of them, once the last call in flight has ended: drained, resumed."""
    told = order(running, "drain", {"lane": pattern})
    flying = cast("Mapping[str, int]", told["in_flight"])
    left = sum(flying.values())
    if left:
        words = f"draining: {', '.join(flying)}, {counted(left, 'call')} in flight"
        click.echo(f"{words}; Ctrl-C ends the waiting, not the draining", err=True)
    resumed: set[str] = set()
    while left:
        time.sleep(_LOOK_EVERY)
        left, resumed = _left(running, flying)
    return {"drained": sorted(set(flying) - resumed), "resumed": sorted(resumed)}


def _left(running: Running, names: Collection[str]) -> tuple[int, set[str]]:
    """How many calls are still in flight on those that drain, and which take calls again."""
    lanes = cast("list[dict[str, Any]]", reading_of(running, "fleet")["lanes"])
    resumed = {each["name"] for each in lanes if each["name"] in names and not each["paused"]}
    waited = [each for each in lanes if each["name"] in names and each["paused"]]
    return sum(each["in_flight"] for each in waited), resumed
