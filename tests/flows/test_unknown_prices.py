"""A price that is not known is never taken for nothing: it is warned of, refused, and shown so."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from jackline import Budget, agent, flow, parallel
from jackline.agents.messages import MessagesRunner
from jackline.agents.outcome import Outcome
from jackline.cli.run import draw_run, summary
from jackline.cli.run_text import run_json, run_line
from jackline.control.run_view import RunView
from jackline.control.stored_runs import call_document, run_document
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.host import FlowHost
from jackline.flows.lifecycle import begin_resume, begin_run
from jackline.flows.records import RunRecord
from jackline.flows.run_events import AgentAnswered, FlowEvent, Warned
from jackline.flows.run_totals import totals_of
from jackline.flows.settings import RunSettings, WakeSettings, may_wake
from jackline.notifications.incidents import ConditionFinder
from jackline.simulator.reply_script import Say
from jackline.testing.scripted_agents import ScriptedModel
from tests.flows.world import EPOCH, World, played, world

KNOWN, UNKNOWN, LATE = "claude-sonnet-4-5", "our-llm-7b", "our-llm-70b"
DOLLARS = Budget(dollars=5)


def asking(*models: str, budget: Budget | None = None) -> Flow[[], str]:
    @flow
    async def survey() -> str:
        for number, model in enumerate(models):
            await agent(f"say {number}", model=model, label=f"a{number}", budget=budget).outcome()
        return "done"

    return survey


class Played:
    """A run of our own loop, what was heard of it, and what was sent."""

    def __init__(self, *budgets: Budget) -> None:
        self.world: World = world()
        self.model = ScriptedModel(Say("done"), clock=self.world.clock)
        runner = MessagesRunner(self.model, clock=self.world.clock)
        self.heard: list[FlowEvent] = []
        self.host = FlowHost(
            self.world.engine,
            lambda _run_id: {"messages": runner},
            clock=self.world.clock,
            settings=RunSettings(poll=5.0, budgets=budgets, guard=0),
            listener=self.heard.append,
        )

    async def run(self, survey: Flow[[], str]) -> Outcome[str]:
        begun = await begin_run(self.host, survey, b"{}", run_id="r1")
        return await self.world.through(begun.run())

    async def record(self) -> RunRecord:
        found = await self.world.engine.run("r1")
        assert found is not None
        return found

    @property
    def warnings(self) -> list[str]:
        return [event.says for event in self.heard if isinstance(event, Warned)]


@pytest.mark.parametrize(
    ("run", "agents"),
    [(DOLLARS, None), (Budget(dollars=5, window="5h"), None), (None, DOLLARS)],
    ids=["run", "window", "agent"],
)
def test_a_limit_in_dollars_warns_of_each_model_without_a_price_before_its_first_call(
    run: Budget | None, agents: Budget | None
) -> None:
    async def test() -> None:
        scene = Played(*([] if run is None else [run]))
        await scene.run(asking(KNOWN, UNKNOWN, UNKNOWN, LATE, budget=agents))
        assert [says.split()[3] for says in scene.warnings] == [UNKNOWN, LATE]
        assert "$5.00" in scene.warnings[0]
        assert "[prices]" in scene.warnings[0]
        kinds = [type(each) for each in scene.heard if isinstance(each, Warned | AgentAnswered)]
        answered = AgentAnswered
        assert kinds == [answered, Warned, answered, answered, Warned, answered]

    played(test)


def test_without_a_limit_in_dollars_nothing_is_warned_of() -> None:
    async def test() -> None:
        scene = Played(Budget(tokens=100_000))
        await scene.run(asking(UNKNOWN))
        assert scene.warnings == []

    played(test)


def test_a_strict_limit_refuses_a_model_without_a_price_and_sends_nothing() -> None:
    async def test() -> None:
        scene = Played(Budget(dollars=5, strict=True))
        await scene.run(asking(UNKNOWN))
        (call,) = await scene.world.engine.calls("r1")
        assert call.terminated_by == "budget"
        assert f"the price of {UNKNOWN} is not known" in call.decoded_outcome().evidence.says
        assert scene.model.ledger == []

    played(test)


@pytest.mark.parametrize(
    ("models", "words"),
    [((UNKNOWN, UNKNOWN), "cost unknown"), ((KNOWN, UNKNOWN), "at least $0.0")],
    ids=["none known", "partly known"],
)
def test_every_face_says_what_is_not_known(models: tuple[str, ...], words: str) -> None:
    async def test() -> None:
        scene = Played(DOLLARS)
        finder = ConditionFinder()
        list(finder._runs({}))
        outcome = await scene.run(asking(*models))
        record, calls = await scene.record(), await scene.world.engine.calls("r1")
        totals = await totals_of(scene.world.engine, record)
        assert totals.unpriced == outcome.unpriced
        assert outcome.unpriced == record.unpriced == sum(call.unpriced for call in calls) > 0
        assert calls[-1].unpriced == outcome.unpriced / models.count(UNKNOWN)
        assert words in summary(outcome, record, totals)
        assert words in run_line(record, totals, EPOCH)
        page = run_document(record, totals, EPOCH.timestamp())
        assert page["unpriced"] == outcome.unpriced
        assert call_document(calls[-1], record, 0.0)["unpriced"] == calls[-1].unpriced
        (message,) = finder._runs({"r1": page})
        assert words in message.text
        view = RunView()
        for event in scene.heard:
            view.apply(event)
        assert words in str(draw_run(view, EPOCH).renderables[0])
        document = run_json(record, totals)
        assert document["unpriced_tokens"] == outcome.unpriced
        assert (document["cost"] is None) is (KNOWN not in models)
        (note,) = [each for each in await scene.world.engine.notes("r1") if each.what == "finished"]
        assert note.detail["unpriced"] == outcome.unpriced

    played(test)


def test_what_has_a_price_is_shown_as_before() -> None:
    async def test() -> None:
        scene = Played(DOLLARS)
        outcome = await scene.run(asking(KNOWN))
        record = await scene.record()
        totals = await totals_of(scene.world.engine, record)
        assert (outcome.unpriced, scene.warnings) == (0, [])
        assert f"${record.cost:,.2f}; may use" in run_line(record, totals, EPOCH)
        assert run_json(record, totals)["cost"] == record.cost == outcome.cost

    played(test)


def test_the_next_process_knows_what_had_no_price() -> None:
    async def test() -> None:
        scene = Played(DOLLARS)
        survey = asking(UNKNOWN)

        @flow
        async def failing() -> str:
            await survey.function()
            raise ValueError("later")

        before = await scene.run(failing)
        again = await begin_resume(scene.host, "r1", flow=failing)
        assert not isinstance(again, Outcome)
        after = await scene.world.through(again.run())
        assert after.unpriced == before.unpriced > 0
        assert (await scene.record()).unpriced == before.unpriced

    played(test)


def test_a_run_of_unknown_cost_does_not_pass_the_brake_on_its_cost() -> None:
    async def test() -> None:
        scene = Played()
        await scene.run(asking(UNKNOWN))
        later = EPOCH + timedelta(hours=1)
        record = replace(await scene.record(), wake_at=EPOCH.timestamp())
        assert may_wake(later, record, WakeSettings()).now
        held = may_wake(later, record, WakeSettings(spend=10.0))
        assert not held.now
        assert "its cost is not known" in held.why
        assert may_wake(later, replace(record, confirmed=True), WakeSettings(spend=10.0)).now

    played(test)


def test_agents_side_by_side_are_warned_of_once() -> None:
    @flow
    async def many() -> str:
        return (await parallel(agent(f"say {n}", model=UNKNOWN) for n in range(20))).summary

    async def test() -> None:
        scene = Played(DOLLARS)
        await scene.run(many)
        assert len(scene.warnings) == 1

    played(test)
