"""`jackline status --session ID`: what a client told of its agents, beside what the gateway saw.

Laws: (1) who said what is always told: the client, or the gateway; (2) `--json` is what the gateway
itself tells, one document.
Not here: taking it in (telemetry/otlp_receiving.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote

import click

from jackline.assembly import Running
from jackline.assembly.running_gateway import reading_of
from jackline.control.counted import counted
from jackline.errors import NothingFoundError
from jackline.outside_names import printable


def tell_clients(running: Running, session: str, *, as_json: bool) -> int:
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
    told, seen = agent["told"], agent["seen"]
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
