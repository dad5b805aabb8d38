"""Show a run while it goes on: a live picture on a terminal, a line for each event elsewhere.

Laws: (1) on stderr, since stdout is for what comes of the run; (2) no prompt and no answer; (3) it
draws at most a few times a second, whatever happens.
Not here: what is shown (control/run_view.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import click

from jackline.clock import SystemClock
from jackline.control.run_view import AgentView, RunView, event_line, until_words
from jackline.failures.sentences import duration_in_words
from jackline.flows.progress import (
    AgentWaits,
    FlowEvent,
    Listener,
    RunEnded,
    RunParked,
    RunWoke,
)

if TYPE_CHECKING:
    from rich.console import Group

_FRAMES = 4
_MOST_AGENTS = 12


@contextmanager
def shown_progress(*, quiet: bool) -> Iterator[Listener]:
    """Something that hears a run's events and shows them until the block ends."""
    if quiet:
        yield lambda _event: None
    elif sys.stderr.isatty():
        with _live() as listener:
            yield listener
    else:
        yield _Lines().heard


class _Lines:
    """A line for each event; what many agents, and the run, wait for alike is told once."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._reasons: set[str] = set()

    def heard(self, event: FlowEvent) -> None:
        """Tell it."""
        if isinstance(event, AgentWaits):
            if event.why in self._reasons:
                return
            self._reasons.add(event.why)
        elif isinstance(event, RunParked | RunEnded) and event.why:
            if event.why in self._reasons:
                event = replace(event, why="")
            self._reasons.add(event.why)
        elif isinstance(event, RunWoke):
            self._reasons.clear()
        now = self._clock.now()
        if line := event_line(event, now):
            click.echo(f"{now:%H:%M:%S} {line}", err=True)


@contextmanager
def _live() -> Iterator[Listener]:
    from rich.console import Console  # noqa: PLC0415 -- only on a terminal
    from rich.live import Live  # noqa: PLC0415

    clock = SystemClock()
    view = RunView()
    console = Console(stderr=True, highlight=False)
    with Live(
        get_renderable=lambda: drawn(view, clock.now()),
        console=console,
        refresh_per_second=_FRAMES,
        transient=False,
        redirect_stdout=False,
    ):
        yield view.heard


def drawn(view: RunView, now: datetime) -> Group:
    """The picture."""
    from rich.console import Group  # noqa: PLC0415 -- only on a terminal
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    sums = f"{view.tokens:,} tokens, ${view.cost:,.2f}"
    head = Text.assemble((view.flow or "…", "bold"), f"  {view.run_id}   {sums}")
    lines: list[Text | Table] = [head, Text(view.sentence(now), style=_STYLES.get(view.state, ""))]
    if len(view.phases) > 1 or "" not in view.phases:
        phases = Text("  ")
        for phase in view.phases.values():
            if phase.name:
                failed = f", {phase.failed} failed" if phase.failed else ""
                total = phase.done + phase.failed + phase.running
                phases.append(f"{phase.name} {phase.done}/{total}{failed}   ")
        lines.append(phases)
    # Who waits first: that is what people look for.
    agents = sorted(view.agents.values(), key=lambda each: (not each.why, each.since))
    table = Table.grid(padding=(0, 2))
    for agent in agents[:_MOST_AGENTS]:
        table.add_row("  " + agent.label, *_standing(agent, now))
    if agents:
        lines.append(table)
    if len(agents) > _MOST_AGENTS:
        lines.append(Text(f"  and {len(agents) - _MOST_AGENTS} more", style="dim"))
    lines += [Text(f"  ! {words}", style="yellow") for words in view.warnings]
    return Group(*lines)


_STYLES = {"parked": "magenta", "failed": "red", "stopping": "yellow", "finished": "green"}


def _standing(agent: AgentView, now: datetime) -> tuple[str, str]:
    since = duration_in_words(now - datetime.fromtimestamp(agent.since, now.tzinfo))
    if agent.why:
        return "waits", f"{agent.why}{until_words(agent.until, now)}"
    return f"turn {agent.turns + 1}", f"{agent.tokens:,} tokens, for {since}"
