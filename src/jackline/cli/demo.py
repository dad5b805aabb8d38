"""`jackline demo`: a storm, a wall and an outage in three minutes, with a sentence at each step.

Rules: (1) the browser is opened only when the user asked for it or said yes; (2) exit 0 only when
every requirement is met; (3) Ctrl-C stops all that was started.
"""

from __future__ import annotations

import asyncio
import sys

import click

from jackline import event_loop
from jackline.cli.open import open_browser
from jackline.drills.demo import Demo, Stage

_FAST = 8.0
_NEXT = (
    "Next:  jackline why        why did agents of yours die? It reads their transcripts.",
    "       jackline claude     Claude Code through a gateway of yours.",
    "       jackline drill all  the long version, with everything that can go wrong.",
)


@click.command()
@click.option("--open/--no-open", "opens", default=None, help="Open the page, or do not ask.")
@click.option("--fast", is_flag=True, help="Let time pass 8 times as fast.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the page; default: a free one."
)
def demo(opens: bool | None, fast: bool, port: int | None) -> int:
    """Show in three minutes what Jackline does: a storm, a quota wall, an outage.

    Eight agents work at a simulated provider, once straight and once through a gateway, and the
    same trouble comes to both. No key and no network is needed; your own gateway, configuration
    and runs are not touched, and nothing is left running.

    \b
    Examples:
      jackline demo
      jackline demo --open     with the page in the browser, open until the end

    Exit codes: 0 every agent got through, 1 not all did, 2 usage, 130 interrupted.
    """
    if opens is None:
        opens = sys.stdin.isatty() and sys.stdout.isatty() and _agrees()
    stage = Stage.at(port, click.echo)
    stage.stays_open = opens
    if opens:
        stage.on_open = _show
    result = event_loop.run(Demo(_FAST if fast else 1.0, stage, click.echo).run())
    click.echo()
    for line in _NEXT:
        click.echo(line)
    return 0 if result.passed else 1


def _agrees() -> bool:
    return click.confirm("Open the page that shows it in your browser?", default=True)


async def _show(url: str) -> None:
    """Open the page; a browser in the terminal runs until its user leaves it, so in a thread."""
    if not await asyncio.to_thread(open_browser, url):
        click.echo(f"no browser was found; open {url} in one", err=True)
