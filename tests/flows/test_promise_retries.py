"""An agent that broke is tried again as often as was said, and told what happened to it."""

from __future__ import annotations

import pytest

from jackline import agent, flow
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import AgentTask
from jackline.testing.scripted_agents import Play
from tests.flows.world import World, played, world

BROKEN = Play(turns=0, ending=Ending.CRASH, evidence=Evidence(says="The program was killed."))


def breaking(times: int) -> World:
    made: World

    def script(_task: AgentTask) -> Play:
        return BROKEN if len(made.runner.begun) <= times else Play()

    made = world(script)
    return made


def ended(w: World, retries: int | None = None) -> Outcome[str]:
    endings: list[Outcome[str]] = []

    @flow
    async def one() -> None:
        call = agent("a", label="a") if retries is None else agent("a", label="a", retries=retries)
        endings.append(await call.outcome())

    played(lambda: w.run(one))
    return endings[0]


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_it_is_tried_again_as_often_as_was_said_and_no_more(retries: int) -> None:
    w = breaking(100)
    outcome = ended(w, retries)
    assert outcome.terminated_by is Ending.CRASH
    assert len(w.runner.begun) == outcome.evidence.attempts == retries + 1


def test_once_if_nothing_was_said() -> None:
    w = breaking(100)
    ended(w)
    assert len(w.runner.begun) == 2


def test_who_goes_on_is_told_what_ended_the_last_attempt() -> None:
    w = breaking(1)
    assert ended(w).ok
    first, second = w.runner.tasks
    assert first.what_happened == ""
    assert second.what_happened == "Your last attempt ended by crash: The program was killed."
    assert first.session_id == second.session_id
