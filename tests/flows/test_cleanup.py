"""What was promised at an end is done at every end, once; what was rented is given back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jackline import agent, ctx, flow, parallel, step
from jackline.agents.outcome import Ending, Outcome
from jackline.clock import SystemClock, VirtualClock
from jackline.errors import LeaseLostError
from jackline.flows.authoring.flow_definition import Flow
from jackline.flows.cleanup.action_runner import release_of_worktree, remove_if_clean, run_command
from jackline.flows.cleanup.ledger import reap
from jackline.flows.lifecycle import cancel_run, claim_run
from jackline.flows.records import ResourceRecord, ResourceState, RunRecord, RunState
from jackline.flows.run_events import CleanupEnded
from jackline.flows.settings import RunSettings
from jackline.flows.store import open_run_store
from jackline.flows.store.run_store import Claim
from jackline.testing.scripted_agents import Play, ScriptedRunner
from jackline.user_errors import ErrorTexts
from tests.flows.test_replaying import MortalEngine, calm
from tests.flows.world import EPOCH, World, played, world

RECEIVED: list[tuple[str, str]] = []
TROUBLE: list[str] = []


@pytest.fixture(autouse=True)
def _silence() -> None:
    RECEIVED.clear()
    TROUBLE.clear()


async def received(outcome: Outcome[Any]) -> None:
    RECEIVED.append((outcome.label, outcome.terminated_by.value))
    if TROUBLE:
        raise OSError(TROUBLE[0])


async def released(name: str) -> None:
    RECEIVED.append(("released", name))
    if TROUBLE:
        raise OSError(TROUBLE[0])


RELEASES: list[Callable[[str], Awaitable[None]]] = []


async def slow_release(name: str) -> None:
    await RELEASES.pop()(name)


def one(**said: Any) -> Flow[[], str]:
    @flow
    async def working() -> str:
        return (await agent("x", label="a", on_end=received, **said).outcome()).terminated_by.value

    return working


@pytest.mark.parametrize("ending", list(Ending))
def test_a_hook_runs_at_every_end_with_its_name(ending: Ending) -> None:
    async def test() -> None:
        if ending is Ending.QUOTA:
            w = world(settings=RunSettings(on_quota="abort"))
            w.runner.wall_until = EPOCH + timedelta(hours=1)
        else:
            w = world(lambda _task: Play(ending=ending))
        await w.run(one(retries=0))
        assert [*RECEIVED] == [("a", ending.value)]

    played(test)


def test_a_hook_has_run_before_the_flow_hears_of_the_end() -> None:
    @flow
    async def watching() -> int:
        await agent("x", label="a", on_end=received)
        return len(RECEIVED)

    async def test() -> None:
        assert (await world().run(watching)).value == 1

    played(test)


def test_a_command_is_given_the_outcome_as_json(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    program = (
        "import sys, os, pathlib; pathlib.Path(sys.argv[1])"
        ".write_text(sys.stdin.read() + os.environ['JACKLINE_TERMINATED_BY'])"
    )
    command = f'"{sys.executable}" -c "{program}" "{told}"'

    @flow
    async def working() -> str:
        return await agent("x", label="a", on_end=command)

    async def test() -> None:
        w = world()
        w.clock = SystemClock()  # type: ignore[assignment]
        outcome = await (await w.begin(working)).run()
        assert outcome.ok
        text = told.read_text()
        assert text.endswith("completion")
        assert json.loads(text.removesuffix("completion"))["label"] == "a"

    played(test)


def test_a_command_that_fails_or_takes_too_long_is_told_and_its_children_are_ended() -> None:
    async def test() -> None:
        clock = SystemClock()

        async def trouble(command: str, limit: float) -> ErrorTexts:
            return await run_command(
                command, stdin=b"", environment={}, cwd="", limit=limit, clock=clock
            )

        assert await trouble("exit 0", 60) == ("", "")
        assert await trouble("echo why >&2; exit 3", 60) == ("exit 3", "why")
        assert "took longer than 0.2 seconds" in (await trouble("sleep 100 & sleep 100", 0.2)).brief

    played(test)


def test_a_hook_that_fails_is_told_and_tried_again_by_the_next_process() -> None:
    async def test() -> None:
        TROUBLE.append("no route")
        w = world(lambda _task: Play(ending=Ending.TURNS))

        @flow
        async def failing() -> str:
            return await agent("x", label="a", on_end=received)

        await w.run(failing)
        [told] = w.of(CleanupEnded)
        assert (told.what, told.label) == ("hook function received", "a")
        assert told.trouble.startswith("OSError (test_cleanup.py, line ")
        assert told.private == "no route"
        [row] = await w.engine.hooks("r1")
        assert (row.state, row.trouble) == ("failed", told.trouble)
        TROUBLE.clear()
        await w.resume(failing)
        states = {row.end_id.rpartition("/")[2]: row.state for row in await w.engine.hooks("r1")}
        assert states == {"1": "done", "2": "done"}
        assert RECEIVED == [("a", "turns")] * 3, (
            "the first end twice, since it failed; the second once"
        )

    played(test)


@pytest.mark.parametrize("writes", range(3, 12))
def test_after_a_crash_the_next_process_runs_what_is_due_and_nothing_twice(writes: int) -> None:
    @flow
    async def working() -> str:
        return await agent("x", label="a", on_end=received)

    async def test() -> None:
        clock = VirtualClock(EPOCH)
        store = open_run_store("sqlite:///:memory:", wall=clock.wall)
        runner = ScriptedRunner(clock=clock)
        w = World(clock, MortalEngine(store, writes), runner, settings=calm())
        try:
            await w.run(working)
        except LeaseLostError:
            await clock.advance(10_000)
            ran = len(RECEIVED)
            w.engine = store
            assert (await w.resume(working)).ok
            [row] = await store.hooks("r1")
            assert row.state == "done"
            # A hook that was underway when the process died may have run: it is run again.
            assert len(RECEIVED) == 1 or (ran == 1 and row.tries == 2)
        else:
            assert RECEIVED == [("a", "completion")]

    played(test)


def test_hooks_of_agents_that_are_cancelled_by_the_flow_run_too() -> None:
    @flow
    async def impatient() -> int:
        work = asyncio.ensure_future(agent("x", label="a", on_end=received))
        await w.clock.sleep(5)
        work.cancel()
        await asyncio.wait({work})
        return len(RECEIVED)

    w = world(lambda _task: Play(seconds=100))

    async def test() -> None:
        assert (await w.run(impatient)).value == 1
        assert RECEIVED == [("a", "cancelled")]

    played(test)


def test_cancelling_a_run_that_nobody_carries_runs_the_hooks_of_its_agents() -> None:
    async def test() -> None:
        w = world(lambda _task: Play(seconds=100))
        begun = await w.begin(one())
        task = asyncio.create_task(begun.run())
        await w.clock.advance(5)
        begun.stop_now()
        await w.through(_of(task))
        assert RECEIVED == [], "a stop is no end"
        await w.through(cancel_run(w.host, "r1"))
        [row] = await w.engine.hooks("r1")
        assert row.state in ("done", "failed")
        assert json.loads(row.outcome)["terminated_by"] == "cancelled"

    played(test)


def test_a_flows_own_hook_runs_at_the_runs_end() -> None:
    @flow(on_end=received)
    async def working() -> str:
        return await agent("x")

    async def test() -> None:
        await world().run(working)
        assert RECEIVED == [("working", "completion")]

    played(test)


@pytest.mark.parametrize("writes", range(1, 17))
def test_a_flows_own_hook_runs_once_for_its_end_wherever_the_process_dies(writes: int) -> None:
    @flow(on_end=received)
    async def working() -> str:
        return await agent("x")

    async def test() -> None:
        clock = VirtualClock(EPOCH)
        store = open_run_store("sqlite:///:memory:", wall=clock.wall)
        w = World(clock, MortalEngine(store, writes), ScriptedRunner(clock=clock), settings=calm())
        try:
            await w.run(working)
        except LeaseLostError:
            await clock.advance(10_000)
            ran = len(RECEIVED)
            w.engine = store
            assert (await w.resume(working)).ok
            [row] = await store.hooks("r1")
            assert row.state == "done"
            # One that was underway when the process died may have run: it is run again.
            assert len(RECEIVED) == 1 or (ran == 1 and row.tries == 2)
        assert set(RECEIVED) == {("working", "completion")}
        again = len(RECEIVED)
        assert (await w.resume(working)).ok
        assert len(RECEIVED) == again

    played(test)


def test_a_flows_own_hook_runs_when_another_process_cancels_the_run() -> None:
    @flow(on_end="cat > /dev/null")
    async def working() -> str:
        return await agent("x")

    async def test() -> None:
        w = world(lambda _task: Play(seconds=100))
        begun = await w.begin(working)
        task = asyncio.create_task(begun.run())
        await w.clock.advance(5)
        begun.stop_now()
        await w.through(_of(task))
        await w.through(cancel_run(w.host, "r1"))
        [row] = await w.engine.hooks("r1")
        assert row.state == "done"
        assert json.loads(row.outcome)["terminated_by"] == "cancelled"

    played(test)


def test_a_second_stop_breaks_a_long_clean_up_off_and_the_next_process_does_it() -> None:
    async def endless(_name: str) -> None:
        await asyncio.get_running_loop().create_future()

    async def at_once(name: str) -> None:
        RECEIVED.append(("released", name))

    @flow
    async def renting() -> str:
        await ctx.resource("gpu/1", release=slow_release)
        return await agent("x")

    async def test() -> None:
        w = world()
        RELEASES[:] = [at_once, endless]
        begun = await w.begin(renting)
        task = asyncio.create_task(begun.run())
        while not begun.is_cleaning_up or len(RELEASES) > 1:
            await w.clock.advance(0)
        begun.stop()
        await w.clock.advance(1)
        assert not task.done()
        begun.stop()
        assert (await task).ok
        [row] = await w.engine.resources()
        assert "broken off" in row.trouble
        assert (await w.resume(renting)).ok
        assert RECEIVED == [("released", "gpu/1")]
        assert await w.engine.resources() == []

    played(test)


def test_a_finished_runs_failed_hook_is_tried_again_by_a_resume() -> None:
    @flow(on_end=received)
    async def working() -> str:
        return await agent("x")

    async def test() -> None:
        w = world()
        TROUBLE.append("no network")
        assert (await w.run(working)).ok
        TROUBLE.clear()
        assert (await w.resume(working)).ok
        [row] = await w.engine.hooks("r1")
        assert (row.state, row.tries, len(w.runner.begun)) == ("done", 2, 1)

    played(test)


# --- resources ---------------------------------------------------------------------------------


def rent(name: str) -> str:
    """A blocking step, in a thread."""
    ctx.resource(name, release=released, lease="2h")
    return name


def test_what_a_run_rents_is_given_back_at_its_end_and_listed_until_then() -> None:
    seen: list[str] = []

    @flow
    async def renting() -> str:
        await step(rent, "gpu/1")
        await ctx.resource("gpu/2", release=released)
        ctx.resource("gpu/3")
        await agent("x")
        seen.extend(row.name for row in await w.engine.resources())
        return "done"

    w = world()

    async def test() -> None:
        assert (await w.run(renting)).ok
        assert seen == ["gpu/1", "gpu/2", "gpu/3"]
        assert await w.engine.resources() == []
        assert RECEIVED == [("released", "gpu/1"), ("released", "gpu/2")]

    played(test)


def test_what_an_agents_tool_rents_is_given_back_at_the_agents_end() -> None:
    async def tool() -> None:
        await ctx.resource(f"gpu/{ctx.task_id}", release=released)

    @flow
    async def renting() -> list[str]:
        await agent("x", label="a")
        return [name for _, name in RECEIVED]

    async def test() -> None:
        w = world(lambda _task: Play(during=tool))
        outcome = await w.run(renting)
        [call] = await w.engine.calls("r1")
        assert outcome.value == [f"gpu/{call.task_id}"]

    played(test)


def test_a_stop_keeps_what_is_rented_and_a_resume_finds_the_same() -> None:
    rented: list[int] = []

    def setting_up() -> str:
        rented.append(1)
        return rent(f"gpu/{len(rented)}")

    @flow
    async def renting() -> str:
        machine = await step(setting_up)
        await agent(f"work on {machine}", label="long")
        return machine

    async def test() -> None:
        w = world(lambda _task: Play(turns=10, seconds=60))
        begun = await w.begin(renting)
        task = asyncio.create_task(begun.run())
        await w.until(lambda: len(w.runner.answered) == 3, task)
        begun.stop_now()
        await w.through(_of(task))
        assert [row.name for row in await w.engine.resources()] == ["gpu/1"]
        assert (await w.resume(renting)).value == "gpu/1"
        assert rented == [1], "setup ran once"
        assert RECEIVED == [("released", "gpu/1")]
        assert await w.engine.resources() == []

    played(test)


def test_parking_gives_back_what_was_taken_so_and_a_lease_ends_by_itself() -> None:
    @flow
    async def renting() -> int:
        await ctx.resource("idle", release=released, release_on_park=True)
        await ctx.resource("short", release=released, lease="1h")
        await ctx.resource("kept", release=released)
        return len((await parallel(agent(str(n)) for n in range(3))).values)

    async def test() -> None:
        w = world(settings=RunSettings(poll=60.0))
        w.runner.wall_until = EPOCH + timedelta(hours=5)
        begun = await w.begin(renting)
        task = asyncio.create_task(begun.run())
        await w.until(lambda: begun.is_parked, task)
        await w.clock.advance(60)
        assert RECEIVED == [("released", "idle")]
        await w.clock.advance(3700)
        assert RECEIVED == [("released", "idle"), ("released", "short")]
        assert (await w.through(_of(task))).value == 3
        assert RECEIVED[-1] == ("released", "kept")

    played(test)


def test_a_slow_release_does_not_cost_the_lease() -> None:
    async def slowly(name: str) -> None:
        await w.clock.sleep(100)
        RECEIVED.append(("released", name))

    @flow
    async def renting() -> str:
        await ctx.resource("slow", release=slow_release, release_on_park=True)
        return await agent("x")

    w = world(settings=RunSettings(poll=5.0, lease=30.0))
    RELEASES.append(slowly)

    async def test() -> None:
        w.runner.wall_until = EPOCH + timedelta(hours=1)
        assert (await w.run(renting)).ok
        assert RECEIVED == [("released", "slow")]

    played(test)


def test_a_release_that_fails_stays_on_the_ledger_and_the_reaper_tries_again() -> None:
    async def test() -> None:
        TROUBLE.append("the vendor is down")

        @flow
        async def renting() -> None:
            await ctx.resource("gpu", release=released)

        w = world()
        assert (await w.run(renting)).ok
        [row] = await w.engine.resources()
        assert (row.state, row.tries) == (ResourceState.FAILED, 1)
        assert row.trouble.startswith("OSError (test_cleanup.py, line ")
        TROUBLE.clear()
        module = sys.modules[__name__]
        take = partial(claim_run, w.host)
        [reaped] = await reap(w.engine, w.clock, lambda _run: module, take)
        assert (reaped.what, reaped.trouble) == ("release gpu", "")
        assert await w.engine.resources() == []

    played(test)


def test_of_two_that_clean_up_at_once_one_does_it() -> None:
    async def fails(_name: str) -> None:
        raise OSError("the vendor is down")

    async def gives_back(name: str) -> None:
        RECEIVED.append(("released", name))
        await asyncio.sleep(0)  # the other one may come between

    async def test() -> None:
        @flow
        async def renting() -> None:
            await ctx.resource("gpu", release=slow_release)
            await agent("x", label="a", on_end=received)

        w = world()
        RELEASES[:], TROUBLE[:] = [fails], ["the vendor is down"]
        assert (await w.run(renting)).ok
        RELEASES[:] = [gives_back, gives_back]
        TROUBLE.clear()
        RECEIVED.clear()
        module, both_look = sys.modules[__name__], asyncio.Barrier(2)

        async def take(run: RunRecord, lease: float) -> Claim | None:
            await both_look.wait()
            return await claim_run(w.host, run, lease)

        both = await asyncio.gather(
            *(reap(w.engine, w.clock, lambda _run: module, take) for _ in range(2))
        )
        assert sorted(RECEIVED) == [("a", "completion"), ("released", "gpu")]
        assert sorted(map(len, both)) == [0, 2]
        assert await w.engine.resources() == []
        RELEASES.clear()
        before = await w.engine.runs()
        assert [(run.state, run.owner) for run in before] == [(RunState.FINISHED, "")]

    played(test)


def test_the_reaper_leaves_live_runs_alone_and_takes_what_is_overdue() -> None:
    async def test() -> None:
        clock = VirtualClock(EPOCH)
        engine = open_run_store("sqlite:///:memory:", wall=clock.wall)
        now = clock.wall()
        for run_id, lease in (("live", 1e6), ("dead", 1.0)):
            run = RunRecord(run_id, "f", "", b"{}")
            await engine.create(run, owner="o", lease=lease)
            row = ResourceRecord(run_id, "x", "", "", False, now + 60, ResourceState.HELD, now)
            await engine.save_resource(row)
            await engine.save_resource(replace(row, name="y", lease_until=None))
        await clock.advance(100)

        def take(run: RunRecord, lease: float) -> Awaitable[Claim | None]:
            return engine.claim(run.run_id, owner="me", lease=lease)

        reaped = await reap(engine, clock, lambda _run: None, take)
        assert [(one.run_id, one.what) for one in reaped] == [("dead", "release x")]

    played(test)


# --- worktrees ---------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_a_worktree_is_removed_only_when_it_is_clean(tmp_path: Path) -> None:
    repository, tree = tmp_path / "repository", tmp_path / "tree"
    repository.mkdir()
    git(repository, "init", "-q")
    (repository / "file").write_text("1")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "one")
    git(repository, "worktree", "add", "-q", str(tree))
    (tree / "new").write_text("unsaved work")

    @flow
    async def renting() -> None:
        await ctx.resource("tree", release=release_of_worktree(tree))

    async def test() -> None:
        w = world()
        await w.run(renting)
        [row] = await w.engine.resources()
        assert row.trouble == "kept: 1 changed or new files are not committed"
        assert (tree / "new").read_text() == "unsaved work"
        (tree / "new").unlink()
        assert await remove_if_clean(tree) == ""
        assert not tree.exists()
        assert await remove_if_clean(tree) == "", "one that is gone is released"
        tree.mkdir()
        assert (await remove_if_clean(tree)).startswith("kept: git cannot say")

    played(test)


async def _of(task: asyncio.Task[Outcome[Any]]) -> Outcome[Any]:
    return await task
