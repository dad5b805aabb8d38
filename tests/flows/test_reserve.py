"""The last part of a window is kept for agents that matter more; others start after the reset."""

from __future__ import annotations

from dataclasses import replace

from jackline.agents.runner import AgentTask
from jackline.flows.authoring.calls import agent, parallel
from jackline.flows.authoring.flow_definition import flow
from jackline.flows.lifecycle import begin_run
from jackline.flows.run_events import AgentWaits
from jackline.flows.settings import Reserve, RunSettings
from tests.flows.world import EPOCH, played, world

RESET = EPOCH.timestamp() + 600


@flow
async def two() -> list[str]:
    done = await parallel(
        [agent("later", label="later", class_="low"), agent("first", label="first")]
    )
    return done.values


def begun_after(used: float, reserve: Reserve | None) -> dict[str, float]:
    """When each agent was begun, in seconds from the start."""
    begun: dict[str, float] = {}

    def script(task: AgentTask) -> str:
        begun[task.label] = there.clock.monotonic()
        return task.label

    there = world(script, settings=RunSettings(reserve=reserve))

    async def window_used() -> tuple[float, float]:
        return (used if there.clock.wall() < RESET else 0.01), RESET

    async def story() -> None:
        host = replace(there.host, window_used=window_used)
        run = await begin_run(host, two, b"{}", run_id="r1")
        outcome = await there.through(run.run())
        assert outcome.value == ["later", "first"]

    played(story)
    waits = [event for event in there.of(AgentWaits) if "kept for others" in event.why]
    assert all((event.label, event.until) == ("later", RESET) for event in waits)
    assert bool(waits) == (max(begun.values()) > 0)
    return begun


def test_a_low_class_waits_for_the_reset_while_others_start() -> None:
    begun = begun_after(0.95, Reserve(0.9))
    assert begun["first"] == 0
    assert begun["later"] >= 600


def test_below_the_share_or_without_the_rule_nobody_waits() -> None:
    assert set(begun_after(0.85, Reserve(0.9)).values()) == {0}
    assert set(begun_after(0.95, None).values()) == {0}
    assert set(begun_after(0.95, Reserve(0.9, ("night",))).values()) == {0}
