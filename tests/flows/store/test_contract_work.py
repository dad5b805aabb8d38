"""Calls, notebooks, resources, hooks and logs: what is kept is whole, in order, and stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jackline.errors import InternalError, JournalError, UnreadableError, UsageError
from jackline.flows.records import CallRecord, CallState, ResourceState, RunState
from jackline.flows.store.run_store import Claim, RunStore
from tests.flows.store import made
from tests.flows.store.made import LEASE, LONG, NOON, World


async def _begun(engine: RunStore, run_id: str = "run-1") -> Claim:
    return await engine.create(made.run(run_id), owner="me", lease=LEASE)


def test_calls_come_back_whole_in_the_order_they_were_first_begun(world: World) -> None:
    failed = made.call(
        "c", CallState.FAILED, outcome=LONG, ended_at=NOON + 1, terminated_by="quota", attempts=2
    )
    again = made.call("c", attempts=3)
    ended = made.done("b", LONG, outcome=b"{}", tokens=12, cost=0.5, terminated_by="completion")

    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        for key in ("c", "b", "a"):
            await engine.begin_call(claim, made.call(key))
        await engine.end_call(claim, ended)
        await engine.end_call(claim, failed)
        assert await engine.calls("run-1") == [failed, ended, made.call("a")]
        await engine.begin_call(claim, again)
        await engine.end_call(claim, made.done("d", b"unbegun"))

    world.run(story)
    kept = world.run(lambda engine: engine.calls("run-1"))
    assert kept == [again, ended, made.call("a"), made.done("d", b"unbegun")]
    assert isinstance(kept[0].state, CallState)


def test_a_done_call_is_never_written_over(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        await engine.end_call(claim, made.done("a", b"first"))
        for write in (
            engine.begin_call(claim, made.call("a")),
            engine.end_call(claim, made.done("a", b"second")),
            engine.end_call(claim, made.call("a", CallState.FAILED)),
        ):
            with pytest.raises(InternalError, match="done already"):
                await write
        await engine.end_call(claim, made.done("a", b"other", occurrence=1))
        assert [one.value for one in await engine.calls("run-1")] == [b"first", b"other"]

    world.run(story)


def test_a_forgotten_call_leaves_no_value_no_outcome_and_no_notebook(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        for key in ("a", "b"):
            await engine.end_call(claim, made.done(key, LONG, outcome=LONG, tokens=5, cost=1.0))
            await engine.write_entry(claim, made.entry(1, f"run-1/{key}/0", data=LONG))
        await engine.forget_calls(claim, [("a", 0), ("a", 7), ("none", 0)])
        assert [one.key for one in await engine.calls("run-1")] == ["b"]
        assert await engine.entries("run-1/a/0") == []
        assert await engine.find_task("run-1/a/0") is None
        assert [line.data for line in await engine.entries("run-1/b/0")] == [LONG]
        await engine.begin_call(claim, made.call("a"))
        await engine.write_entry(claim, made.entry(1))
        await engine.end_call(claim, made.done("a", b"new", tokens=5, cost=1.0))
        assert await engine.spent_since(NOON) == (15, 3.0)

    world.run(story)


def test_forgetting_in_a_fork_leaves_the_first_run_its_notebook(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        await engine.end_call(claim, made.done())
        await engine.write_entry(claim, made.entry(1))
        fork = await engine.fork("run-1", made.run("run-2"), owner="me", lease=LEASE, without=[])
        await engine.forget_calls(fork, [("a", 0)])
        assert await engine.entries("run-1/a/0") == [made.entry(1)]
        with pytest.raises(InternalError, match="another run"):
            await engine.write_entry(fork, made.entry(2))

    world.run(story)


def test_a_notebook_has_every_line_once_and_in_order(world: World) -> None:
    lines = [made.entry(number, data=LONG if number == 2 else b"{}") for number in (1, 2, 3)]

    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        assert await engine.entries("run-1/a/0") == []
        for wrong in (0, 2):
            with pytest.raises(JournalError, match="1 would be the next"):
                await engine.write_entry(claim, made.entry(wrong))
        for line in lines:
            await engine.write_entry(claim, line)
        for wrong in (1, 3, 5):
            with pytest.raises(JournalError, match="4 would be the next"):
                await engine.write_entry(claim, made.entry(wrong))
        assert await engine.entries("run-1/a/0") == lines
        assert await engine.entries("run-1/b/0") == []

    world.run(story)


def test_a_session_leads_to_the_agent_that_carried_it_last(world: World) -> None:
    async def found(engine: RunStore, session_id: str) -> str | None:
        call = await engine.find_session(session_id)
        return None if call is None else call.key

    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        for key in ("a", "b"):
            await engine.begin_call(claim, made.call(key))
        await engine.write_entry(claim, made.entry(1, kind="session", data=b'{"session_id": "s"}'))
        assert await found(engine, "s") == "a"
        of_b = [b'{"session_id": "s"}', b'{"session_id": "t"}', b"[1]", b'{"session_id": 5}', b"x"]
        for number, data in enumerate(of_b, start=1):
            line = made.entry(number, "run-1/b/0", kind="session", data=data)
            await engine.write_entry(claim, line)
        assert [await found(engine, one) for one in ("s", "t", "u", "5", "")] == [
            *("b", "b", None, None, None),
        ]
        await engine.write_entry(claim, made.entry(2, kind="session", data=b'{"session_id": "s"}'))
        assert await found(engine, "s") == "a"
        await engine.forget_calls(claim, [("a", 0)])
        assert await found(engine, "s") == "b"

    world.run(story)


def test_an_agent_is_found_by_its_task(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        await engine.end_call(claim, made.done("step", task_id=""))
        await engine.end_call(claim, made.done("a", LONG))
        await engine.fork("run-1", made.run("run-2"), owner="me", lease=LEASE, without=[])
        assert await engine.find_task("run-1/a/0") == made.done("a", LONG)
        assert await engine.find_task("") is None
        assert await engine.find_task("nobody") is None

    world.run(story)


def test_spending_counts_every_token_once_and_from_its_hour_on(world: World) -> None:
    def costing(tokens: int, state: CallState, at: float | None) -> CallRecord:
        return made.call("a", state, tokens=tokens, cost=tokens / 4, ended_at=at)

    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        assert await engine.spent_since(0.0) == (0, 0.0)
        await engine.end_call(claim, costing(100, CallState.FAILED, NOON))
        # Begun again with what it has cost so far, and ended with the sum.
        await engine.begin_call(claim, costing(100, CallState.RUNNING, None))
        await engine.end_call(claim, costing(140, CallState.FAILED, NOON + 10))
        # Begun again from nothing.
        await engine.begin_call(claim, costing(0, CallState.RUNNING, None))
        await engine.end_call(claim, costing(8, CallState.DONE, NOON + 20))
        other = await _begun(engine, "run-2")
        await engine.end_call(other, made.done("z", run_id="run-2", tokens=4, cost=1.0))
        assert await engine.spent_since(NOON) == (152, 38.0)
        assert await engine.spent_since(NOON + 1) == (48, 12.0)
        assert await engine.spent_since(NOON + 20) == (8, 2.0)
        assert await engine.spent_since(NOON + 21) == (0, 0.0)

    world.run(story)


@pytest.mark.parametrize("claims", ["a new run", "a run that goes on"])
def test_spending_of_a_clock_that_was_ahead_counts_from_now_on(world: World, claims: str) -> None:
    years_ahead = NOON + 730 * 86_400

    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        await engine.end_call(claim, made.done("a", tokens=40, cost=10.0, ended_at=years_ahead))
        await engine.end_call(claim, made.done("b", tokens=4, cost=1.0, ended_at=NOON - 7200))
        if claims == "a new run":
            await _begun(engine, "run-2")
        else:
            await engine.let_go(claim, made.run("run-1"))
            assert await engine.claim("run-1", owner="other", lease=LEASE)
        now = world.now
        assert await engine.spent_since(now) == (40, 10.0)
        assert await engine.spent_since(now + 1) == (0, 0.0)

    world.run(story)


def test_resources_are_kept_by_run_and_name_until_released(world: World) -> None:
    gpu, disk = made.resource("gpu", taken_at=NOON + 1), made.resource("disk")
    failed = replace(gpu, state=ResourceState.FAILED, tries=2, trouble="no answer")
    given_back = replace(disk, state=ResourceState.RELEASED, released_at=NOON + 9)

    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        await engine.save_resource(gpu)
        await engine.save_resource(disk)
        assert await engine.resources() == [disk, gpu]
        await engine.save_resource(failed)
        await engine.save_resource(given_back)
        assert await engine.resources() == [failed]
        assert await engine.resources(held_only=False) == [given_back, failed]
        await engine.let_go(claim, made.run(state=RunState.FAILED))
        with pytest.raises(UsageError, match="still holds gpu"):
            await engine.delete_run("run-1")
        await engine.save_resource(replace(failed, state=ResourceState.RELEASED))
        await engine.delete_run("run-1")
        assert await engine.resources(held_only=False) == []

    world.run(story)


def test_a_hook_runs_once_for_one_end(world: World) -> None:
    async def story(engine: RunStore) -> None:
        await _begun(engine)
        assert await engine.begin_hook(made.hook(at=NOON))
        assert not await engine.begin_hook(made.hook(at=NOON))
        assert await engine.begin_hook(made.hook(end_id="another end", at=NOON + 1))
        assert await engine.begin_hook(made.hook(hook="another hook", at=NOON + 2))
        await engine.end_hook(made.hook(state="done", at=NOON))
        assert not await engine.begin_hook(made.hook(tries=1), again=True)
        kept = await engine.hooks("run-1")
        assert [(one.end_id, one.hook, one.state, one.tries) for one in kept] == [
            ("run-1/a/0#1", "tidy", "done", 1),
            ("another end", "tidy", "running", 1),
            ("run-1/a/0#1", "another hook", "running", 1),
        ]
        assert await engine.hooks("run-2") == []

    world.run(story)


@pytest.mark.parametrize("state", ["failed", "running"])
def test_of_several_that_retry_a_hook_one_may(world: World, state: str) -> None:
    async def story(engine: RunStore) -> None:
        await _begun(engine)
        await engine.begin_hook(made.hook())
        if state == "failed":
            await engine.end_hook(made.hook(state="failed", trouble="exit 3"))
        (seen,) = await engine.hooks("run-1")
        assert (seen.state, seen.tries) == (state, 1)
        assert not await engine.begin_hook(seen)
        assert await engine.begin_hook(seen, again=True)
        assert not await engine.begin_hook(seen, again=True)
        (now,) = await engine.hooks("run-1")
        assert (now.state, now.tries) == ("running", 2)

    world.run(story)


def test_a_hook_that_is_due_is_begun_by_the_first_who_comes(world: World) -> None:
    async def story(engine: RunStore) -> None:
        await _begun(engine)
        await engine.end_hook(made.hook(state="due"))
        (due,) = await engine.hooks("run-1")
        assert (due.state, due.tries) == ("due", 0)
        assert await engine.begin_hook(due)
        assert not await engine.begin_hook(due)

    world.run(story)


def test_runs_with_a_hook_that_is_not_done_are_known(world: World) -> None:
    async def story(engine: RunStore) -> None:
        await _begun(engine)
        assert await engine.owing_hooks() == []
        await engine.end_hook(made.hook(state="due"))
        await engine.end_hook(made.hook(end_id="another end", state="failed"))
        assert await engine.owing_hooks() == ["run-1"]
        await engine.end_hook(made.hook(state="done"))
        assert await engine.owing_hooks() == ["run-1"]
        await engine.begin_hook(made.hook(end_id="another end"), again=True)
        assert await engine.owing_hooks() == ["run-1"], "its process may have died under it"
        await engine.end_hook(made.hook(end_id="another end", state="done"))
        assert await engine.owing_hooks() == []

    world.run(story)


def test_a_log_is_numbered_and_can_be_followed(world: World) -> None:
    async def story(engine: RunStore) -> None:
        await _begun(engine)
        await _begun(engine, "run-2")
        detail: dict[str, object] = {"until": NOON, "who": ["a", None], "nested": {"ü": True}}
        await engine.note("run-1", NOON, "started", "", {})
        await engine.note("run-2", NOON, "started", "", {})
        await engine.note("run-1", NOON + 1, "parked", "agent", detail)
        first, second = await engine.notes("run-1")
        assert (first.number, first.what) == (1, "started")
        assert (second.number, second.at, second.label) == (2, NOON + 1, "agent")
        assert second.detail == detail
        assert await engine.notes("run-1", after=1) == [second]
        assert await engine.notes("run-1", after=2) == []
        assert await engine.notes("run-3") == []
        with pytest.raises(UnreadableError):
            await engine.note("run-3", NOON, "started", "", {})

    world.run(story)
