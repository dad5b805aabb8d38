"""`jackline cost`: what the calls through the gateway cost, by agent, session, model or day.

Rules: (1) the gateway's journal is the only source, and `control/spending.py` sums, as for the page
and `status --watch`; (2) what has no known price is shown as unknown, never as nothing; (3) no
gateway is needed; (4) memory is bounded: a day of the journal at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

import click

from jackline.agents.prices import cost_in_words, dollars, known_cost
from jackline.assembly import StateDir
from jackline.cli.arguments import parse_age, parse_now_option
from jackline.cli.gateway_flags import configured
from jackline.cli.terminal import say
from jackline.clock import Clock, SystemClock
from jackline.control.spending import Sums, sums_by
from jackline.control.text import counted
from jackline.dialects import TokenUsage
from jackline.errors import ExitCode
from jackline.events import CallEnded
from jackline.journal import JournalReader
from jackline.outside_names import printable

_Key: TypeAlias = tuple[str, ...]
_ALL_CALLS = 1 << 62
_DAY = timedelta(days=1)
_KEYS: Mapping[str, tuple[str, ...]] = {
    "day": ("day",),
    "model": ("model",),
    "session": ("session",),
    "agent": ("session", "agent"),
}


@click.command()
@click.option(
    "--by",
    type=click.Choice(["day", "model", "session", "agent"]),
    default="day",
    help="One line for each of them (day).",
)
@click.option(
    "--since",
    metavar="AGE",
    default="7d",
    help="Calls that ended in the last 24h, 7d, 2w (7d).",
)
@click.option("--now", metavar="ISO", help="Use this as the current time; for tests and old logs.")
@click.option("--config", type=click.Path(), help="Use only this jackline.toml.")
@click.option("--state", type=click.Path(), help="The folder for journal and state.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def cost(
    by: str, since: str, now: str | None, config: str | None, state: str | None, as_json: bool
) -> int:
    """Show what calls through the gateway cost: in all, and by day, model, session or agent.

    It counts the calls in the gateway's journal ([journal] keep, 30 days), by listed prices and
    those under [prices]. Tokens of a model without a known price are counted, and their cost is
    shown as unknown.

    \b
    Examples:
      jackline cost                       the last seven days
      jackline cost --by agent --since 24h

    Exit codes: 0 shown, 1 there is no journal.
    """
    clock = SystemClock()
    moment = parse_now_option(now, clock)
    begin = moment - parse_age(since, "--since")
    settings = configured({"config": config, "state": state}, with_secrets=False)

    def price_of(model: str, usage: TokenUsage) -> float | None:
        return dollars(model, usage, settings.prices)

    sums: dict[_Key, Sums] = {}
    with JournalReader(StateDir(settings.state_dir).journal) as reader:
        at = begin
        while at <= moment:
            calls = reader.calls(at.timestamp(), (at + _DAY).timestamp(), _ALL_CALLS)
            for key, found in sums_by(calls, _sort(by, clock), price_of).items():
                sums.setdefault(key, Sums()).join(found)
            at += _DAY
    total = Sums()
    for found in sums.values():
        total.join(found)
    rows = sorted(sums.items(), key=lambda row: row[0] if by == "day" else _dearest(row[1]))
    if as_json:
        document = {
            "schema": "jackline.cost/1",
            "since": begin.isoformat(),
            "until": moment.isoformat(),
            "by": by,
            "total": _json(total),
            "rows": [{**dict(zip(_KEYS[by], key, strict=True)), **_json(s)} for key, s in rows],
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return ExitCode.DONE
    say(f"{_words(total)} since {begin:%Y-%m-%d %H:%M}")
    if not rows:
        return ExitCode.DONE
    names = [_name(key) for key, _ in rows]
    width = max(map(len, names))
    for name, (_, found) in zip(names, rows, strict=True):
        click.echo(f"  {name:<{width}}  {_words(found)}")
    return ExitCode.DONE


def _sort(by: str, clock: Clock) -> Callable[[CallEnded], _Key]:
    """The line that a call belongs to."""
    if by == "model":
        return lambda call: (call.model,)
    if by == "session":
        return lambda call: (call.session or "",)
    if by == "agent":
        return lambda call: (call.session or "", call.agent or "")
    zone = clock.now().tzinfo
    return lambda call: (f"{datetime.fromtimestamp(call.at, zone):%Y-%m-%d}",)


def _dearest(sums: Sums) -> tuple[float, int]:
    return -sums.dollars, -sums.tokens


def _name(key: _Key) -> str:
    session, *agent = key
    words = session or "no session"
    if agent:
        words += f"  {agent[0] or 'main'}"
    return printable(words)


def _words(sums: Sums) -> str:
    money = cost_in_words(sums.dollars, sums.unpriced)
    tokens = f"{sums.tokens:,} tokens"
    unknown = f" ({sums.unpriced:,} tokens have no known price)" if sums.unpriced else ""
    return f"{money}, {counted(sums.calls, 'call')}, {tokens}{unknown}"


def _json(sums: Sums) -> dict[str, object]:
    return {
        "calls": sums.calls,
        "tokens": sums.tokens,
        "cost": known_cost(round(sums.dollars, 6), sums.unpriced),
        "unpriced_tokens": sums.unpriced,
    }
