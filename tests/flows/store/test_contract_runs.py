"""Runs: one owner at a time, a standing that lasts, and words that reach whoever carries them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jackline.errors import (
    BadArgumentError,
    InternalError,
    LeaseLostError,
    UnreadableError,
    UsageError,
)
from jackline.flows.records import RunRecord, RunState
from jackline.flows.store.run_store import Claim, RunStore
from tests.flows.store import made
from tests.flows.store.made import LEASE, LONG, NOON, World


async def _begun(engine: RunStore, run_id: str = "run-1", owner: str = "me") -> Claim:
    return await engine.create(made.run(run_id), owner=owner, lease=LEASE)


async def _taken(engine: RunStore, owner: str, run_id: str = "run-1") -> Claim:
    claim = await engine.claim(run_id, owner=owner, lease=LEASE)
    assert claim is not None
    return claim


def test_a_run_comes_back_as_it_was_kept_with_its_owner(world: World) -> None:
    run = made.run(
        settings=b'{"b": 2}',
        cwd="/somewhere",
        why="because",
        wake_at=NOON + 5,
        outcome=b"{}",
        forked_from="other",
        tokens=7,
        cost=0.25,
        confirmed=True,
        ended_at=NOON + 1,
        owner="ignored",
        epoch=99,
        lease_until=1.0,
    )

    async def story(engine: RunStore) -> RunRecord | None:
        await engine.create(run, owner="me", lease=LEASE)
        return await engine.run("run-1")

    kept = world.run(story)
    assert kept == replace(run, owner="me", epoch=1, lease_until=NOON + LEASE)
    assert kept is not None
    assert isinstance(kept.state, RunState)
    assert world.run(lambda engine: engine.run("run-1")) == kept


def test_an_id_is_given_once(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        with pytest.raises(BadArgumentError, match="run-1 already"):
            await _begun(engine, owner="other")
        await engine.renew(claim, lease=LEASE)

    world.run(story)


def test_a_held_run_cannot_be_claimed_by_another(world: World) -> None:
    async def story(engine: RunStore) -> None:
        await _begun(engine)
        world.now += LEASE - 0.001
        assert await engine.claim("run-1", owner="other", lease=LEASE) is None
        assert await engine.claim("unknown", owner="other", lease=LEASE) is None
        run = await engine.run("run-1")
        assert run is not None
        assert (run.owner, run.epoch) == ("me", 1)

    world.run(story)


def test_a_dead_owner_s_lease_counts_for_nothing_and_only_that_owner_s(world: World) -> None:
    async def story(engine: RunStore) -> None:
        old = await _begun(engine)
        stranger = engine.claim("run-1", owner="other", lease=LEASE, instead_of="somebody")
        assert await stranger is None
        new = await engine.claim("run-1", owner="other", lease=LEASE, instead_of="me")
        assert new == Claim("run-1", "other", 2)
        with pytest.raises(LeaseLostError):
            await engine.begin_call(old, made.call())

    world.run(story)


def test_whoever_was_taken_over_can_write_nothing_more(world: World) -> None:
    async def story(engine: RunStore) -> None:
        old = await _begun(engine)
        await engine.begin_call(old, made.call())
        world.now += LEASE
        new = await _taken(engine, "other")
        assert new == Claim("run-1", "other", 2)
        before = (await engine.run("run-1"), await engine.calls("run-1"))
        writes = (
            engine.renew(old, lease=LEASE),
            engine.change(old, made.run(why="mine")),
            engine.let_go(old, made.run(state=RunState.FINISHED)),
            engine.begin_call(old, made.call("b")),
            engine.end_call(old, made.done()),
            engine.forget_calls(old, [("a", 0)]),
            engine.write_entry(old, made.entry(1)),
        )
        for write in writes:
            with pytest.raises(LeaseLostError, match="carried by other"):
                await write
        assert (await engine.run("run-1"), await engine.calls("run-1")) == before
        assert await engine.entries("run-1/a/0") == []
        await engine.end_call(new, made.done())

    world.run(story)


def test_the_same_owner_may_claim_again_and_its_older_claim_is_fenced(world: World) -> None:
    async def story(engine: RunStore) -> None:
        old = await _begun(engine)
        new = await _taken(engine, "me")
        with pytest.raises(LeaseLostError):
            await engine.begin_call(old, made.call())
        await engine.begin_call(new, made.call())

    world.run(story)


def test_an_owner_whose_lease_ran_out_goes_on_unless_it_was_taken_over(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        world.now += 100 * LEASE
        await engine.begin_call(claim, made.call())
        await engine.renew(claim, lease=LEASE)
        assert await engine.claim("run-1", owner="other", lease=LEASE) is None

    world.run(story)


def test_a_clock_set_back_leaves_no_run_with_a_dead_owner(world: World) -> None:
    async def story(engine: RunStore) -> None:
        old = await _begun(engine)
        world.now -= LEASE / 2
        assert await engine.claim("run-1", owner="other", lease=LEASE) is None
        world.now -= 3600
        await _taken(engine, "other")
        with pytest.raises(LeaseLostError):
            await engine.begin_call(old, made.call())

    world.run(story)


def test_a_run_let_go_keeps_its_standing_and_is_free(world: World) -> None:
    standing = made.run(
        state=RunState.PARKED, why="quota", wake_at=NOON + 60, outcome=LONG, tokens=3, cost=1.5
    )

    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        await engine.let_go(claim, replace(standing, flow="other", arguments=b"[]", epoch=50))
        run = await engine.run("run-1")
        assert run == replace(standing, epoch=1)
        with pytest.raises(LeaseLostError, match="carried by nobody"):
            await engine.change(claim, standing)
        again = await _taken(engine, "other")
        assert again.epoch == 2
        woken = await engine.run("run-1")
        assert woken is not None
        assert woken.state is RunState.PARKED

    world.run(story)


def test_an_owner_writes_only_to_its_own_run(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        await _begun(engine, "run-2", "other")
        for write in (
            engine.change(claim, made.run("run-2")),
            engine.let_go(claim, made.run("run-2")),
            engine.begin_call(claim, made.call(run_id="run-2")),
            engine.end_call(claim, made.done(run_id="run-2")),
        ):
            with pytest.raises(InternalError):
                await write

    world.run(story)


def test_a_confirmation_lasts_until_the_run_has_woken(world: World) -> None:
    async def confirmed(engine: RunStore) -> bool:
        run = await engine.run("run-1")
        assert run is not None
        return run.confirmed

    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        with pytest.raises(UsageError, match="not parked"):
            await engine.allow_waking("run-1")
        with pytest.raises(UnreadableError):
            await engine.allow_waking("run-2")
        parked = made.run(state=RunState.PARKED)
        await engine.change(claim, parked)
        await engine.allow_waking("run-1")
        await engine.let_go(claim, parked)
        assert await confirmed(engine)
        claim = await _taken(engine, "waker")
        assert await confirmed(engine)
        await engine.change(claim, made.run())
        assert not await confirmed(engine)
        await engine.change(claim, parked)
        assert not await confirmed(engine)

    world.run(story)


def test_a_word_to_stop_reaches_the_owner_and_the_stronger_one_stays(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        assert await engine.stop_request("run-1") == ""
        await engine.request_stop("run-1", "stop")
        assert await engine.stop_request("run-1") == "stop"
        await engine.request_stop("run-1", "cancel")
        await engine.request_stop("run-1", "stop")
        assert await engine.stop_request("run-1") == "cancel"
        await engine.let_go(claim, made.run(state=RunState.CANCELLED))
        assert await engine.stop_request("run-1") == ""
        await engine.request_stop("run-1", "cancel")
        assert await engine.stop_request("run-1") == ""
        with pytest.raises(UnreadableError):
            await engine.request_stop("run-2", "stop")
        with pytest.raises(BadArgumentError, match="explode"):
            await engine.request_stop("run-1", "explode")
        assert await engine.stop_request("run-2") == ""

    world.run(story)


def test_resuming_drops_a_word_to_stop_and_a_word_to_cancel_waits(world: World) -> None:
    async def story(engine: RunStore) -> None:
        await engine.let_go(await _begun(engine), made.run(state=RunState.PARKED))
        await engine.request_stop("run-1", "stop")
        claim = await _taken(engine, "me")
        assert await engine.stop_request("run-1") == ""
        await engine.request_stop("run-1", "cancel")
        await engine.let_go(claim, made.run(state=RunState.PARKED))
        await _taken(engine, "other")
        assert await engine.stop_request("run-1") == "cancel"

    world.run(story)


def test_a_run_is_found_by_any_beginning_that_means_only_it(world: World) -> None:
    async def story(engine: RunStore) -> None:
        for run_id in ("ab12", "ab1", "ab34", "cd%", "cd\U0010fffe"):
            await _begun(engine, run_id)
        for beginning, found in {"ab1": "ab1", "ab12": "ab12", "ab3": "ab34", "cd%": "cd%"}.items():
            run = await engine.run(beginning)
            assert run is not None
            assert run.run_id == found
        for nothing in ("", "x", "ab123", "AB1", "b12", "%"):
            assert await engine.run(nothing) is None
        with pytest.raises(UsageError, match="ab1, ab12, ab34") as caught:
            await engine.run("ab")
        assert caught.value.hint

    world.run(story)


def test_runs_come_newest_first_by_state_and_number(world: World) -> None:
    async def story(engine: RunStore) -> None:
        for number, state in enumerate([RunState.RUNNING, RunState.PARKED, RunState.PARKED]):
            run = made.run(f"run-{number}", state, created_at=NOON + number // 2)
            await engine.create(run, owner="me", lease=LEASE)

        async def ids(states: set[RunState] | None, limit: int = 200) -> list[str]:
            return [run.run_id for run in await engine.runs(states=states, limit=limit)]

        assert await ids(None) == ["run-2", "run-1", "run-0"]
        assert await ids({RunState.PARKED}) == ["run-2", "run-1"]
        assert await ids(None, 1) == ["run-2"]
        assert await ids({RunState.FAILED}) == []
        assert await ids(set()) == []

    world.run(story)


def test_a_fork_begins_with_the_done_calls_and_has_paid_nothing(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        for kept in (
            made.done("b", LONG, tokens=10, cost=1.0, outcome=b'{"o": 1}'),
            made.done("a", b"2", tokens=10, cost=1.0),
            made.done("a", b"3", occurrence=1),
            made.call("running"),
        ):
            await engine.end_call(claim, kept)
        new = await engine.fork(
            "run-1", made.run("run-2"), owner="f", lease=LEASE, without=[("a", 1), ("zzz", 0)]
        )
        assert new == Claim("run-2", "f", 1)
        copies = await engine.calls("run-2")
        assert [(one.key, one.value, one.tokens, one.cost) for one in copies] == [
            ("b", LONG, 0, 0.0),
            ("a", b"2", 0, 0.0),
        ]
        assert copies[0].outcome == b'{"o": 1}'
        assert copies[0].task_id == "run-1/b/0"
        forked = await engine.run("run-2")
        assert forked is not None
        assert (forked.forked_from, forked.owner) == ("run-1", "f")
        assert await engine.spent_since(0) == (20, 2.0)
        assert len(await engine.calls("run-1")) == 4
        await engine.begin_call(new, made.call("c", run_id="run-2"))
        with pytest.raises(UnreadableError):
            await engine.fork("no", made.run("run-3"), owner="f", lease=LEASE, without=[])
        with pytest.raises(BadArgumentError):
            await engine.fork("run-1", made.run("run-2"), owner="f", lease=LEASE, without=[])
        assert await engine.run("run-3") is None

    world.run(story)


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.PARKED, RunState.STOPPED])
def test_only_an_ended_run_can_be_deleted(world: World, state: RunState) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        await engine.let_go(claim, made.run(state=state))
        with pytest.raises(UsageError, match="not ended"):
            await engine.delete_run("run-1")
        retried = await _taken(engine, "me")
        await engine.change(retried, made.run(state=RunState.FAILED))
        with pytest.raises(UsageError, match="not ended"):
            await engine.delete_run("run-1")
        await engine.let_go(retried, made.run(state=RunState.FAILED))
        await engine.delete_run("run-1")
        assert await engine.run("run-1") is None
        with pytest.raises(UnreadableError):
            await engine.delete_run("run-1")
        with pytest.raises(LeaseLostError, match="no longer in the store"):
            await engine.renew(retried, lease=LEASE)

    world.run(story)


def test_deleting_takes_all_of_a_run_but_what_it_spent_and_what_a_fork_needs(world: World) -> None:
    async def story(engine: RunStore) -> None:
        claim = await _begun(engine)
        for key in ("a", "b"):
            await engine.end_call(claim, made.done(key, LONG, tokens=5, cost=0.5))
            await engine.write_entry(claim, made.entry(1, f"run-1/{key}/0", data=LONG))
        await engine.note("run-1", NOON, "started", "", {})
        await engine.begin_hook(made.hook())
        await engine.fork("run-1", made.run("run-2"), owner="f", lease=LEASE, without=[("b", 0)])
        await engine.let_go(claim, made.run(state=RunState.FINISHED))
        with pytest.raises(UsageError, match="still owes its clean-up"):
            await engine.delete_run("run-1")
        await engine.end_hook(made.hook(state="done", at=NOON))
        await engine.delete_run("run-1")
        assert await engine.calls("run-1") == []
        assert await engine.notes("run-1") == []
        assert await engine.hooks("run-1") == []
        assert await engine.entries("run-1/b/0") == []
        assert [line.data for line in await engine.entries("run-1/a/0")] == [LONG]
        assert [call.value for call in await engine.calls("run-2")] == [LONG]
        assert await engine.spent_since(NOON) == (10, 1.0)

    world.run(story)
