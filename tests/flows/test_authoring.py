"""What a flow is written with, and what it gives."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from jackline import Budget, agent, ctx, flow, parallel, phase, step
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import AgentTask
from jackline.errors import StepFailedError, UsageError
from jackline.flows.api import run
from jackline.flows.authoring.calls import AgentFailedError, Batch
from jackline.flows.records import RunState
from jackline.flows.run_events import (
    AgentEnded,
    PhaseBegan,
    PhaseEnded,
    RunEnded,
    StepEnded,
    Warned,
)
from jackline.testing.scripted_agents import Play
from tests.flows.world import played, world


class Plan(BaseModel):
    angles: list[str]


@dataclass
class Point:
    x: int
    y: int


def doubled(number: int) -> int:
    return 2 * number


async def moved(point: Point) -> Point:
    return Point(point.x + 1, point.y)


def broken() -> None:
    raise LookupError("no such thing")


def unkeepable():  # type: ignore[no-untyped-def]
    return object()


def test_an_agent_gives_what_its_schema_says_and_text_without_one() -> None:
    def script(task: AgentTask) -> object:
        return {"angles": ["a", "b"]} if task.schema else "words"

    @flow
    async def both() -> str:
        plan = await agent("split", schema=Plan)
        numbers = await agent("split", schema={"type": "object"})
        assert isinstance(plan, Plan)
        return f"{plan.angles} {numbers['angles']} {await agent('say')}"

    async def test() -> None:
        outcome = await world(script).run(both)
        assert outcome.value == "['a', 'b'] ['a', 'b'] words"
        assert outcome.ok
        assert outcome.exit_code == 0
        assert outcome.tally.agents == outcome.tally.ok == 3

    played(test)


def test_a_failed_agent_raises_its_outcome_and_outcome_raises_nothing() -> None:
    evidence = Evidence(status=400, failure="content_policy", says="It was refused.")

    @flow
    async def catching() -> str:
        call = agent("do", label="bad")
        outcome = await call.outcome()
        with pytest.raises(AgentFailedError, match="The agent bad ended by refused") as caught:
            await call
        assert caught.value.outcome == outcome
        return outcome.terminated_by.value

    async def test() -> None:
        w = world(lambda _task: Play(ending=Ending.REFUSED, evidence=evidence))
        outcome = await w.run(catching)
        assert outcome.value == "refused"
        assert outcome.exit_code == 3
        assert outcome.tally.endings == ((Ending.REFUSED, 1),)
        assert w.runner.begun == ["bad"]

    played(test)


def test_a_run_that_an_agent_ends_carries_that_agents_evidence() -> None:
    evidence = Evidence(status=400, failure="content_policy", says="no", request_id="req_1")

    @flow
    async def failing() -> str:
        return await agent("do", label="bad")

    async def test() -> None:
        w = world(lambda _task: Play(ending=Ending.REFUSED, evidence=evidence, text="half"))
        outcome = await w.run(failing)
        assert outcome.terminated_by is Ending.REFUSED
        assert outcome.evidence.request_id == "req_1"
        assert outcome.text == "half"
        assert outcome.exit_code == 1

    played(test)


def test_parallel_keeps_order_cancels_nobody_and_counts() -> None:
    def script(task: AgentTask) -> Play:
        if task.label in ("3", "7"):
            return Play(ending=Ending.TURNS)
        if task.label == "5":
            return Play(ending=Ending.SCHEMA)
        return Play(value=task.label, seconds=10 - int(task.label))

    @flow
    async def fan() -> list[str]:
        found = await parallel(agent("go", label=str(n)) for n in range(10))
        assert found.summary == "7 of 10 ok, 3 failed: 2 turns, 1 schema"
        assert [outcome.label for outcome in found] == [str(n) for n in range(10)]
        assert len(found) == 10
        assert [failed.label for failed in found.failed] == ["3", "5", "7"]
        assert found.require(7) is found
        with pytest.raises(StepFailedError, match="8 were needed: 7 of 10 ok"):
            found.require(8)
        return found.values

    async def test() -> None:
        outcome = await world(script).run(fan)
        assert outcome.value == ["0", "1", "2", "4", "6", "8", "9"]
        assert outcome.exit_code == 3

    played(test)


def test_parallel_takes_steps_coroutines_child_flows_and_async_iterables() -> None:
    async def plain() -> int:
        return 5

    async def boom() -> int:
        raise KeyError("x")

    @flow
    async def child(n: int) -> int:
        return await step(doubled, n)

    async def given() -> AsyncIterator[object]:
        yield step(doubled, 1)
        yield plain()
        yield child(4)
        yield boom()
        yield step(broken)

    @flow
    async def mixed() -> list[object]:
        found: Batch[object] = await parallel(given())  # type: ignore[arg-type]
        for failed, name in zip(found.failed, ("KeyError", "LookupError"), strict=True):
            assert failed.evidence.says.startswith(f"{name} (test_authoring.py, line ")
        assert [o.evidence.private for o in found.failed] == ["'x'", "no such thing"]
        return found.values

    async def test() -> None:
        outcome = await world().run(mixed)
        assert outcome.value == [2, 5, 8], outcome

    played(test)


def test_parallel_holds_to_its_limit() -> None:
    @flow
    async def fan() -> int:
        return len(await parallel((agent(str(n)) for n in range(20)), limit=4))

    async def test() -> None:
        w = world(lambda _task: Play(seconds=1))
        assert (await w.run(fan)).value == 20
        assert w.runner.most_at_once == 4

    played(test)


def test_parallel_takes_ten_thousand_and_refuses_more() -> None:
    async def one() -> int:
        return 1

    @flow
    async def fan(n: int) -> int:
        return sum((await parallel(one() for _ in range(n))).values)

    async def test() -> None:
        w = world()
        assert (await w.run(fan, b'{"n": 10000}')).value == 10_000
        w = world()
        refused = await w.run(fan, b'{"n": 10001}')
        assert "takes up to 10,000 calls" in refused.evidence.says
        assert refused.exit_code == 1

    played(test)


def test_steps_give_what_their_annotation_says_and_raise_what_they_raise() -> None:
    @flow
    async def steps() -> Point:
        assert await step(doubled, 4) == 8
        with pytest.raises(LookupError, match="no such thing"):
            await step(broken)
        return await step(moved, Point(1, 2))

    async def test() -> None:
        w = world()
        outcome = await w.run(steps)
        assert outcome.value == Point(2, 2)
        troubles = [(event.label, event.trouble) for event in w.of(StepEnded)]
        assert troubles == [("doubled", ""), ("broken", "LookupError"), ("moved", "")]

    played(test)


def test_gather_task_groups_and_awaiting_twice_are_safe() -> None:
    @flow
    async def plain() -> list[str]:
        first = agent("a", label="a")
        got = [await first, *await asyncio.gather(first, agent("b", label="b"))]
        async with asyncio.TaskGroup() as group:
            one = group.create_task(agent("c", label="c"))
            two = group.create_task(step(doubled, 3))
        return [*got, one.result(), str(two.result())]

    async def test() -> None:
        w = world(lambda task: f"<{task.prompt}>")
        assert (await w.run(plain)).value == ["<a>", "<a>", "<b>", "<c>", "6"]
        assert w.runner.begun == ["a", "b", "c"]

    played(test)


def test_phases_nest_and_tell_how_they_were_left() -> None:
    @flow
    async def phased() -> str:
        async with phase("outer"):
            async with phase("inner"):
                await agent("x")
                assert ctx.phase == "outer/inner"
            with pytest.raises(LookupError):
                async with phase("bad"):
                    broken()
        return ctx.phase

    async def test() -> None:
        w = world()
        assert (await w.run(phased)).value == ""
        assert [e.phase for e in w.of(PhaseBegan)] == ["outer", "outer/inner", "outer/bad"]
        ended = [(e.phase, e.ok) for e in w.of(PhaseEnded)]
        assert ended == [("outer/inner", True), ("outer/bad", False), ("outer", True)]
        assert w.of(AgentEnded)[0].label == "outer/inner 1"

    played(test)


def test_agents_without_a_label_get_names_of_their_own() -> None:
    @flow
    async def unnamed() -> int:
        async with phase("search"):
            return len((await parallel((agent(str(n)) for n in range(4)), limit=2)).values)

    async def test() -> None:
        w = world(lambda _task: Play(seconds=1))
        assert (await w.run(unnamed)).value == 4
        assert sorted(w.runner.begun) == ["search 1", "search 2", "search 3", "search 4"]

    played(test)


def test_a_child_flow_shares_the_run_and_draws_on_its_budget() -> None:
    @flow(budget=Budget(agents=2))
    async def child(n: int) -> int:
        return len((await parallel(agent(f"{n}.{i}") for i in range(3))).values)

    @flow(budget=Budget(agents=3))
    async def parent() -> list[int]:
        return [await child(1), await child(2)]

    async def test() -> None:
        w = world()
        outcome = await w.run(parent)
        assert outcome.value == [2, 1], "two by the child's own budget, then one by the parent's"
        assert outcome.tally.endings == ((Ending.BUDGET, 3),)

    played(test)


def test_what_is_never_awaited_is_named_at_the_end() -> None:
    @flow
    async def forgetful() -> int:
        agent("x", label="forgotten")
        step(doubled, 1)
        return 1

    async def test() -> None:
        w = world()
        assert (await w.run(forgetful)).ok
        says = [event.says for event in w.of(Warned)]
        assert says == [
            "forgotten was written but never awaited, so it did not run.",
            "doubled was written but never awaited, so it did not run.",
        ]

    played(test)


def test_a_flow_that_returns_nothing_though_it_promises_something_has_failed() -> None:
    @flow
    async def empty() -> Plan:
        return None  # type: ignore[return-value]

    @flow
    async def wrong() -> int:
        return "seven"  # type: ignore[return-value]

    @flow
    async def honest() -> Plan | None:
        return None

    async def test() -> None:
        outcome = await world().run(empty)
        assert outcome.terminated_by is Ending.SCHEMA
        assert outcome.evidence.says == "The flow returned nothing, though it promises Plan."
        assert (await world().run(wrong)).terminated_by is Ending.SCHEMA
        assert (await world().run(honest)).ok

    played(test)


def test_an_answer_that_its_own_type_refuses_is_a_schema_ending_with_the_text_kept() -> None:
    @flow
    async def picky() -> str:
        outcome = await agent("x", schema=Plan).outcome()
        return f"{outcome.terminated_by}: {outcome.text}: {outcome.evidence.says}"

    async def test() -> None:
        outcome = await world(lambda _task: {"angles": 3}).run(picky)
        assert str(outcome.value).startswith("schema: {'angles': 3}: The result does not fit")
        assert "angles: Input should be a valid array" in str(outcome.value)

    played(test)


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda: agent("x"), r"agent\(\) works only inside a flow"),
        (lambda: step(doubled, 1), r"step\(\) works only inside a flow"),
        (lambda: ctx.run_id, "ctx.run_id works only inside a flow"),
    ],
)
def test_words_outside_a_flow_say_so(work: object, says: str) -> None:
    assert callable(work)
    with pytest.raises(UsageError, match=says):
        work()


@flow
async def wrongly(what: str) -> None:
    wrong: dict[str, Any] = {
        "lambda": lambda: step(lambda: 1),
        "argument": lambda: step(doubled, object()),  # type: ignore[call-overload]
        "hook": lambda: agent("x", on_end=lambda _outcome: None),
        "both": lambda: agent("x", resume="a", continue_from="b"),
        "tool": lambda: agent("x", tools=[3]),  # type: ignore[list-item]
        "schema": lambda: agent("x", schema=lambda: 1),  # type: ignore[call-overload]
        "no JSON": lambda: agent("x", schema=type),
        "prompt": lambda: agent(agent("x")),  # type: ignore[call-overload]
        "runner": lambda: agent("x", runner="nobody"),
        "result": lambda: step(unkeepable),
    }
    await wrong[what]()


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("lambda", "A lambda has no name"),
        ("argument", "A call's argument is a object"),
        ("hook", "cannot clean up after a crash"),
        ("both", "resume= or continue_from=, not both"),
        ("tool", r"agent\(tools=…\) cannot use a int"),
        ("schema", "is no shape that a result can have"),
        ("no JSON", "is no shape that a result can have"),
        ("prompt", r"agent\(prompt=…\) must be text, not AgentCall"),
        ("runner", "There is no runner 'nobody'. Choose one of these: messages"),
        ("result", "The result cannot be saved as JSON"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_sentence(what: str, says: str) -> None:
    async def test() -> None:
        outcome = await world().run(wrongly, f'{{"what": "{what}"}}'.encode())
        assert outcome.exit_code == 1
        assert re.search(says, outcome.evidence.says), outcome.evidence.says

    played(test)


def test_a_flow_needs_an_async_function_with_parameters_that_have_names() -> None:
    with pytest.raises(UsageError, match="needs an async function"):
        flow(doubled)  # type: ignore[arg-type]

    async def many(*args: int) -> None: ...
    async def taken(host: int) -> None: ...

    for bad in (many, taken):
        with pytest.raises(UsageError):
            flow(bad)


def test_arguments_are_checked_before_anything_runs() -> None:
    @flow
    async def typed(n: int, plan: Plan) -> int:
        return n + len(plan.angles)

    async def test() -> None:
        w = world()
        given = Plan(angles=["a"])
        outcome: Outcome[int] = await w.through(run(typed, 3, plan=given, host=w.host))
        assert outcome.value == 4
        wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
            ((), {}, "missing a required argument: 'n'"),
            (("x", given), {}, "The argument n of typed"),
            ((1, given), {"more": 2}, "unexpected keyword argument 'more'"),
        ]
        for args, kwargs, says in wrong:
            with pytest.raises(UsageError, match=says):
                await run(typed, *args, host=w.host, **kwargs)

    played(test)


def test_run_refuses_what_is_no_flow() -> None:
    async def test() -> None:
        with pytest.raises(UsageError, match="needs a flow, not a function"):
            await run(doubled)  # type: ignore[arg-type]

    played(test)


def test_no_prompt_and_no_answer_is_told_or_logged() -> None:
    @flow
    async def talkative(question: str) -> Plan:
        async with phase("ask"):
            answer = await agent(f"secret {question}", system="secret", label="a")
            await agent("secret", schema=Plan, label="b").outcome()
            await step(str.upper, answer)
        raise ValueError(answer)

    async def test() -> None:
        w = world(lambda _task: Play(value="secret answer", text="secret text", turns=2))
        outcome = await w.run(talkative, b'{"question": "secret question"}')
        assert outcome.terminated_by is Ending.CRASH
        notes = await w.engine.notes("r1")
        assert [note.what for note in notes][-1] == "failed"
        # Its own page shows what it raised, and nothing else does.
        assert notes[-1].detail.pop("private") == "secret answer"
        assert "secret" not in repr(notes)
        told = [e for e in w.received if not isinstance(e, RunEnded)]
        assert "secret" not in repr(told)
        assert "secret" not in w.of(RunEnded)[0].why

    played(test)


def test_a_user_bug_ends_the_run_as_a_crash_that_says_where() -> None:
    @flow
    async def buggy() -> None:
        raise ZeroDivisionError("oh")

    async def test() -> None:
        w = world()
        begun = await w.begin(buggy)
        outcome = await w.through(begun.run())
        assert outcome.terminated_by is Ending.CRASH
        assert outcome.evidence.says.startswith("ZeroDivisionError (test_authoring.py, line")
        assert outcome.evidence.private == "oh"
        assert isinstance(begun.error, ZeroDivisionError)
        assert begun.state is RunState.FAILED

    played(test)
