"""A stop loses nothing, a second stop waits for nothing, and a lost lease ends at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jackline import agent, flow, parallel, step
from jackline.agents.outcome import Ending, Evidence, Outcome
from jackline.agents.runner import AgentLog, AgentTask, CallGate
from jackline.errors import InternalError, LeaseLostError, UsageError
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.flow_run import FlowRun
from jackline.flows.lifecycle import begin_fork, begin_resume, begin_retry, cancel_run
from jackline.flows.records import CallState, RunState, decode_outcome
from jackline.flows.run_events import AgentEnded, RunStopping
from jackline.flows.settings import RunSettings
from jackline.testing.scripted_agents import Play, ScriptedRunner
from tests.flows.world import World, played, world


def crew(size: int) -> Flow[[], int]:
    @flow
    async def working() -> int:
        calls = (agent(f"task {n}", label=f"a{n}") for n in range(size))
        return len((await parallel(calls)).values)

    return working


def five_turns(_task: AgentTask) -> Play:
    return Play(turns=5, seconds=10)


async def started(w: World, size: int = 6) -> tuple[FlowRun[int], asyncio.Task[Outcome[int]]]:
    begun = await w.begin(crew(size))
    task = asyncio.create_task(begun.run())
    await w.until(lambda: len(w.runner.answered) >= size, task)
    return begun, task


async def _of(task: asyncio.Task[Outcome[Any]]) -> Outcome[Any]:
    return await task


def test_a_first_stop_lets_every_agent_end_its_turn_and_a_resume_goes_on_from_there() -> None:
    async def test() -> None:
        w = world(five_turns)
        begun, task = await started(w)
        begun.stop()
        outcome = await w.through(_of(task))
        assert begun.state is RunState.STOPPED
        assert outcome.terminated_by is Ending.CANCELLED
        assert len(w.runner.asked) == len(w.runner.answered) == 12, "no turn was cut off"
        assert w.of(AgentEnded) == [], "they have not ended: they go on"
        assert [e.why for e in w.of(RunStopping)] == ["It was ordered to stop."]
        assert (await w.resume(crew(6))).value == 6
        assert len(w.runner.answered) == 30, "every turn was taken once"

    played(test)


def test_a_second_stop_waits_for_nothing() -> None:
    async def test() -> None:
        w = world(five_turns)
        begun, task = await started(w)
        begun.stop()
        begun.stop()
        before = w.clock.monotonic()
        await w.through(_of(task))
        assert w.clock.monotonic() - before < 10
        assert len(w.runner.asked) == 12
        assert len(w.runner.answered) == 6
        assert (await w.resume(crew(6))).value == 6
        assert len(w.runner.answered) == 30

    played(test)


def test_a_stop_waits_no_longer_than_the_grace_time() -> None:
    async def test() -> None:
        w = world(lambda _task: Play(seconds=10_000), settings=RunSettings(grace=30.0))
        begun = await w.begin(crew(2))
        task = asyncio.create_task(begun.run())
        await w.clock.advance(5)
        begun.stop()
        await w.through(_of(task))
        assert 30 <= w.clock.monotonic() < 60

    played(test)


def test_an_agent_that_the_stop_itself_broke_has_not_ended() -> None:
    stopping = False

    class Interrupted(ScriptedRunner):
        async def run(
            self, task: AgentTask, notebook: AgentLog, leave: CallGate
        ) -> Outcome[object]:
            if stopping:
                return await super().run(task, notebook, leave)
            await leave.before_call()
            await w.clock.sleep(10)
            # What Ctrl-C does to a child process of the same terminal.
            return Outcome(Ending.CRASH, evidence=Evidence(says="exit 130"))

    w = world()
    w.runner = Interrupted(clock=w.clock)

    async def test() -> None:
        nonlocal stopping
        begun = await w.begin(crew(2))
        task = asyncio.create_task(begun.run())
        await w.clock.advance(5)
        begun.stop()
        await w.through(_of(task))
        assert {call.state for call in await w.engine.calls("r1")} == {CallState.RUNNING}
        stopping = True
        assert (await w.resume(crew(2))).value == 2

    played(test)


def test_a_flow_that_finishes_while_it_stops_is_finished() -> None:
    async def test() -> None:
        w = world(lambda _task: Play(seconds=10))
        begun = await w.begin(crew(3))
        task = asyncio.create_task(begun.run())
        await w.clock.advance(5)
        begun.stop()
        outcome = await w.through(_of(task))
        assert outcome.value == 3
        assert begun.state is RunState.FINISHED

    played(test)


def test_cancelling_the_program_stops_the_run_and_keeps_it_resumable() -> None:
    async def test() -> None:
        w = world(five_turns)
        begun, task = await started(w)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await w.through(_of(task))
        assert begun.state is RunState.STOPPED
        assert (await w.resume(crew(6))).value == 6

    played(test)


@pytest.mark.parametrize(("word", "state"), [("stop", "stopped"), ("cancel", "cancelled")])
def test_another_process_can_ask_the_owner(word: str, state: str) -> None:
    async def test() -> None:
        w = world(five_turns)
        begun, task = await started(w)
        await w.engine.request_stop("r1", word)
        await w.through(_of(task))
        assert begun.state.value == state
        calls = await w.engine.calls("r1")
        ended = {call.state for call in calls}
        assert ended == ({CallState.RUNNING} if word == "stop" else {CallState.FAILED})

    played(test)


def test_a_cancelled_run_ends_its_agents_and_is_not_resumed() -> None:
    async def test() -> None:
        w = world(five_turns)
        begun, task = await started(w)
        begun.cancel()
        outcome = await w.through(_of(task))
        assert begun.state is RunState.CANCELLED
        assert outcome.exit_code == 1
        assert outcome.tally.endings == ((Ending.CANCELLED, 6),)
        again = await begin_resume(w.host, "r1", flow=crew(6))
        assert isinstance(again, Outcome)
        assert again.terminated_by is Ending.CANCELLED

    played(test)


def test_cancelling_a_run_that_nobody_carries_ends_it_here() -> None:
    async def test() -> None:
        w = world(five_turns)
        begun, task = await started(w)
        begun.stop_now()
        await w.through(_of(task))
        assert await w.through(cancel_run(w.host, "r1")) is RunState.CANCELLED
        record = await w.engine.run("r1")
        assert record is not None
        assert record.state is RunState.CANCELLED
        assert await cancel_run(w.host, "r1") is RunState.CANCELLED

    played(test)


def test_a_run_cancelled_at_rest_still_counts_the_agents_that_had_ended() -> None:
    @flow
    async def two() -> str:
        await agent("short", label="a")
        return await agent("long", label="b")

    async def test() -> None:
        w = world(lambda task: Play(seconds=1 if task.prompt == "short" else 100))
        begun = await w.begin(two)
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.begun) == 2, task)
        begun.stop_now()
        await w.through(_of(task))
        await w.through(cancel_run(w.host, "r1"))
        record = await w.engine.run("r1")
        assert record is not None
        assert record.outcome is not None
        outcome = decode_outcome(record.outcome)
        assert (outcome.tally.ok, outcome.usage.total) == (1, 100)

    played(test)


def test_an_agent_whose_folder_is_gone_pays_for_nothing_and_goes_on_when_it_is_back(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "gone"

    @flow
    async def there() -> str:
        return await agent("x", cwd=folder)

    async def test() -> None:
        w = world()
        outcome = await w.run(there)
        assert (outcome.terminated_by, w.runner.begun) == (Ending.CRASH, [])
        assert f"Its folder {folder} is not there." in outcome.evidence.says
        folder.mkdir()
        assert (await w.resume(there)).ok

    played(test)


def test_two_processes_never_carry_one_run() -> None:
    async def test() -> None:
        w = world(five_turns)
        begun, task = await started(w)
        with pytest.raises(UsageError, match="is run by"):
            await begin_resume(w.host, "r1", flow=crew(6))
        begun.stop_now()
        await w.through(_of(task))

    played(test)


def test_who_loses_the_lease_stops_at_once_and_writes_nothing_more() -> None:
    async def test() -> None:
        w = world(five_turns, settings=RunSettings(poll=5.0, lease=30.0))
        _, task = await started(w)
        w.clock._elapsed += 10_000  # the machine slept, and nobody renewed
        taken = await w.engine.claim("r1", owner="other", lease=1e6)
        assert taken is not None
        before = await w.engine.calls("r1")
        notes = len(await w.engine.notes("r1"))
        with pytest.raises(LeaseLostError):
            await w.through(_of(task))
        assert await w.engine.calls("r1") == before
        assert len(await w.engine.notes("r1")) <= notes + 1

    played(test)


def test_a_keeper_that_dies_stops_the_run_instead_of_losing_it_unseen() -> None:
    async def test() -> None:
        w = world(five_turns)
        begun, task = await started(w)

        async def broken(_run_id: str) -> str:
            raise RuntimeError("a bug")

        w.engine.stop_request = broken  # type: ignore[assignment,method-assign]
        with pytest.raises(InternalError, match="keeper of r1 raised RuntimeError"):
            await w.through(_of(task))
        assert begun.state is RunState.RUNNING

    played(test)


def test_the_lease_is_held_through_a_long_run() -> None:
    async def test() -> None:
        w = world(lambda _task: Play(turns=3, seconds=5000), settings=RunSettings(poll=5.0))
        begun = await w.begin(crew(1))
        task = asyncio.create_task(begun.run())
        for _ in range(20):
            await w.clock.advance(500)
            if not task.done():
                assert await w.engine.claim("r1", owner="other", lease=1) is None
        assert (await w.through(_of(task))).value == 1

    played(test)


def test_a_call_left_behind_by_the_flow_is_ended_with_it() -> None:
    @flow
    async def careless() -> int:
        tasks.append(asyncio.ensure_future(agent("x", label="left")))
        await w.clock.sleep(1)
        return 1

    tasks: list[asyncio.Future[str]] = []
    w = world(lambda _task: Play(seconds=100))

    async def test() -> None:
        outcome = await w.run(careless)
        assert outcome.value == 1
        assert tasks[0].cancelled()
        [call] = await w.engine.calls("r1")
        assert call.terminated_by == "cancelled"
        assert outcome.exit_code == 3

    played(test)


# --- retry and fork ----------------------------------------------------------------------------


def flaky(broken: set[str]) -> Any:
    def script(task: AgentTask) -> Play:
        if task.label in broken:
            return Play(ending=Ending.TURNS)
        return Play(value=f"{task.label} {len(broken)}")

    return script


def test_retry_runs_the_failed_ones_again_or_only_one_of_them() -> None:
    async def test() -> None:
        broken = {"a1", "a3"}
        w = world(flaky(broken), settings=RunSettings(poll=5.0, guard=0))
        outcome = await w.run(crew(5))
        assert (outcome.value, outcome.exit_code) == (3, 3)
        broken.clear()
        w.runner.begun.clear()
        retried = await begin_retry(w.host, "r1", only="a3", flow=crew(5))
        outcome = await w.through(retried.run())
        assert (outcome.value, w.runner.begun) == (4, ["a3"])
        assert outcome.tally.failed == 1, "the other one stays failed"
        outcome = await w.through((await begin_retry(w.host, "r1", flow=crew(5))).run())
        assert (outcome.value, w.runner.begun) == (5, ["a3", "a1"])
        assert outcome.exit_code == 0
        with pytest.raises(UsageError, match="Nothing failed in r1"):
            await begin_retry(w.host, "r1", flow=crew(5))

    played(test)


def test_fork_keeps_what_came_before_the_label_and_leaves_the_old_run_alone() -> None:
    def number(n: int) -> int:
        return n

    @flow
    async def steps() -> list[str]:
        return [
            await agent("1", label="one"),
            str(await step(number, 2)),
            await agent("3", label="three"),
            await agent("4", label="four"),
        ]

    async def test() -> None:
        versions = ["old"]
        w = world(lambda task: f"{task.label} {versions[0]}")
        await w.run(steps)
        versions[0] = "new"
        forked = await begin_fork(w.host, "r1", "three", flow=steps)
        outcome = await w.through(forked.run())
        assert outcome.value == ["one old", "2", "three new", "four new"]
        assert forked.run_id != "r1"
        old = await w.engine.run("r1")
        new = await w.engine.run(forked.run_id)
        assert old is not None
        assert new is not None
        assert b"four old" in (old.outcome or b"")
        assert new.forked_from == "r1"
        with pytest.raises(UsageError, match="is labelled 'nine'") as caught:
            await begin_fork(w.host, "r1", "nine", flow=steps)
        assert caught.value.hint.startswith("Its labels are: one, ")

    played(test)
