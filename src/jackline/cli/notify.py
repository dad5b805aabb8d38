"""`jackline notify test`: send one message by every configured channel, and report each result.

Rules: (1) no gateway is needed; (2) a failure is reported with its reason, without the address.
"""

from __future__ import annotations

import json

import click

from jackline.cli.gateway_flags import configured
from jackline.clock import SystemClock
from jackline.errors import BadArgumentError
from jackline.notifications.delivery import send
from jackline.notifications.incidents import IncidentMessage
from jackline.notifications.settings import IncidentKind


@click.group()
def notify() -> None:
    """Messages about parked work, what needs you, and runs that finished."""


@notify.command()
@click.option("--config", type=click.Path(), help="Use only this jackline.toml.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def test(config: str | None, as_json: bool) -> int:
    """Send one message by every channel that is set in [notify].

    Exit codes: 0 all were sent, 1 one was not.

    \b
    Example of your own jackline.toml (jackline config path):
      [notify]
      desktop = true
      quiet = "22:00-07:00"
    """
    settings = configured({"config": config}).notify
    if not settings.has_ways:
        raise BadArgumentError(
            "no channel for messages is set",
            hint="put desktop = true, or webhook = …, under [notify]: jackline config path",
        )
    text = "This is a test message of Jackline. Nothing is wrong."
    message = IncidentMessage(
        IncidentKind.NEEDS_YOU, "Jackline: a test", text, SystemClock().wall()
    )
    sent = send(message, settings)
    if as_json:
        ways = [
            {"way": each.way, "sent": not each.trouble, "trouble": each.trouble} for each in sent
        ]
        click.echo(json.dumps({"schema": "jackline.notify-test/1", "ways": ways}, indent=2))
    else:
        for each in sent:
            click.echo(f"{each.way}: {each.trouble or 'sent'}")
    return 1 if any(each.trouble for each in sent) else 0
