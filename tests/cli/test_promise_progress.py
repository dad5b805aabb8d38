"""Live progress: phases, agents, what each waits for and until when, tokens, cost."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from jackline import agent, flow, parallel, phase
from jackline.agents.outcome import Ending, Evidence
from jackline.agents.runner import AgentTask
from jackline.cli.run import draw_run, show_progress
from jackline.control.run_view import RunView, event_line
from jackline.flows.run_events import (
    AgentBegan,
    AgentWaits,
    CleanupEnded,
    FlowEvent,
    PhaseBegan,
    RunParked,
)
from jackline.flows.settings import RunSettings
from jackline.testing.scripted_agents import Play
from tests.flows.world import EPOCH, World, played, world

RESET = EPOCH + timedelta(hours=3)


def spending(task: AgentTask) -> Play:
    if task.label == "bad":
        return Play(tokens=0, ending=Ending.REFUSED, evidence=Evidence(says="It is not allowed."))
    return Play(turns=2, tokens=500, dollars=0.25, seconds=60)


@flow
async def survey() -> int:
    async with phase("plan"):
        await agent("plan", label="plan")
    async with phase("read"):
        parts = await parallel(agent(name, label=name) for name in ("north", "south", "bad"))
    return len(parts.values)


def picture(view: RunView, w: World) -> str:
    page = StringIO()
    Console(width=100, file=page).print(draw_run(view, w.clock.now()))
    return re.sub(" +", " ", page.getvalue())


def watched() -> tuple[World, RunView, list[FlowEvent]]:
    w, view = world(spending, settings=RunSettings(poll=5.0)), RunView()
    events: list[FlowEvent] = []

    class Ears(list[FlowEvent]):
        def append(self, event: FlowEvent, /) -> None:
            view.apply(event)
            events.append(event)

    w.received = Ears()
    return w, view, events


def test_a_run_under_way_shows_its_phases_agents_tokens_and_cost() -> None:
    async def test() -> None:
        w, view, _ = watched()
        task = asyncio.create_task((await w.begin(survey)).run())
        await w.until(lambda: view.tokens == 2_000, task)
        # Both turns of the plan, and one of each reader; the bad one has ended.
        assert view.cost == pytest.approx(1.0)
        assert view.sentence(w.clock.now()) == "Running: 2 under way, 1 ok, 1 failed."
        assert {name: (p.done, p.failed, p.running) for name, p in view.phases.items()} == {
            "plan": (1, 0, 0),
            "read": (0, 1, 2),
        }
        shown = picture(view, w)
        assert "survey r1 2,000 tokens, $1.00" in shown
        assert "plan 1/1 read 0/3, 1 failed" in shown
        assert "north under way turn 2, 500 tokens, for 1 min" in shown
        assert "south under way turn 2, 500 tokens, for 1 min" in shown
        await w.through(_given(task))
        assert view.sentence(w.clock.now()) == "Finished: 3 ok, 1 failed."
        assert not view.agents

    played(test)


def test_a_parked_run_shows_the_reason_and_the_reset_and_so_does_every_agent() -> None:
    async def test() -> None:
        w, view, events = watched()
        w.runner.wall_until = RESET
        task = asyncio.create_task((await w.begin(survey)).run())
        await w.until(lambda: view.state == "parked", task)
        now = w.clock.now()
        assert view.sentence(now).startswith(
            "Parked until 15:00 UTC: You've hit your session limit"
        )
        (parked,) = [event for event in events if isinstance(event, RunParked)]
        assert event_line(parked, now) == "parked until 15:00 UTC: You've hit your session limit"
        await w.through(_given(task))
        assert view.state == "finished"

    played(test)


def test_who_waits_is_shown_first_with_why_and_until_when() -> None:
    view = RunView()
    for number, label in enumerate(("busy", "held")):
        view.apply(AgentBegan(EPOCH.timestamp() + number, label, label, "", "messages", None, 1))
    waits = AgentWaits(EPOCH.timestamp(), "held", "held", "outage, tried again", RESET.timestamp())
    view.apply(waits)
    w = world()
    assert view.sentence(EPOCH) == "Starting: 1 under way, 1 waiting, 0 ok."
    lines = [line.strip() for line in picture(view, w).splitlines()]
    assert "held waiting outage, tried again until 15:00 UTC" in lines
    assert lines.index("held waiting outage, tried again until 15:00 UTC") < next(
        place for place, line in enumerate(lines) if line.startswith("busy")
    )
    assert event_line(waits, EPOCH) == "held waits until 15:00 UTC: outage, tried again"
    view.apply(AgentWaits(EPOCH.timestamp(), "held", "held", "", None))
    assert view.sentence(EPOCH) == "Starting: 2 under way, 0 ok."


def test_a_resumed_run_shows_what_was_saved() -> None:
    @flow
    async def twice() -> None:
        await agent("a", label="a")
        await agent("b", label="b")

    async def test() -> None:
        w, view, events = watched()
        begun = await w.begin(twice)
        task = asyncio.create_task(begun.run())
        await w.until(lambda: view.ok == 1, task)
        begun.stop_now()
        await w.through(_given(task))
        events.clear()
        await w.resume(twice)
        assert event_line(events[0], w.clock.now()) == "twice resumed as r1, 1 agent kept"
        assert view.replayed == 1

    played(test)


def test_a_failed_clean_up_is_shown_as_a_warning() -> None:
    view = RunView()
    failed = CleanupEnded(EPOCH.timestamp(), "release vast.ai/1", "worker", "exit 1: no such box")
    view.apply(failed)
    assert "! clean-up release vast.ai/1 of worker failed: exit 1: no such box" in picture(
        view, world()
    )
    assert event_line(failed, EPOCH) == (
        "clean-up release vast.ai/1 of worker failed: exit 1: no such box"
    )


def test_away_from_a_terminal_each_event_is_a_line_on_stderr_and_a_common_wait_is_reported_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with show_progress() as progress:
        for label in ("a", "b", "c"):
            progress.apply(
                AgentWaits(EPOCH.timestamp(), label, label, "the limit", RESET.timestamp())
            )
    reported = capsys.readouterr()
    assert reported.out == ""
    assert len(reported.err.splitlines()) == 1
    assert "a waits until" in reported.err
    assert reported.err.strip().endswith(": the limit")


def test_a_phase_is_shown_as_soon_as_it_begins() -> None:
    view = RunView()
    view.apply(PhaseBegan(EPOCH.timestamp(), "scope"))
    assert "scope 0/0" in picture(view, world())
    assert event_line(PhaseBegan(EPOCH.timestamp(), "scope"), EPOCH) == "phase scope"


async def _given(task: asyncio.Task[object]) -> object:
    return await task
