"""The service wakes parked runs when their limit has reset, each once, and no other."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from jackline.clock import VirtualClock
from jackline.flows.records import ResourceRecord, ResourceState, RunRecord, RunState
from jackline.flows.run_processes import Waker
from jackline.flows.settings import RunSettings, WakeSettings, encode_settings
from jackline.flows.store import open_run_store, run_store_url
from tests.assembly.world import run

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


async def park(path: Path, clock: VirtualClock, *runs: RunRecord) -> None:
    engine = open_run_store(run_store_url(path.parent), wall=clock.wall)
    for each in runs:
        claim = await engine.create(each, owner="me", lease=30)
        await engine.let_go(claim, replace(each, state=RunState.PARKED))
    await engine.close()


def parked(run_id: str, wake_at: float | None, settings: RunSettings | None = None) -> RunRecord:
    kept = encode_settings(settings or RunSettings())
    return RunRecord(run_id, "f", "/x/f.py", b"{}", kept, wake_at=wake_at)


def test_a_run_is_woken_at_its_reset_and_not_before(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock(NOON)
        woken: list[str] = []
        path = tmp_path / "flows.db"
        waker = Waker(
            path.parent, run_store_url(path.parent), clock, lambda each: woken.append(each.run_id)
        )
        assert await waker.look() == ()
        assert not path.exists()
        await park(path, clock, parked("r1", clock.wall() + 600), parked("r2", None))
        assert await waker.look() == []
        await clock.advance(601)
        assert await waker.look() == ["r1"]
        # The process that was started for it has not claimed it yet: not a second one.
        assert await waker.look() == []
        assert woken == ["r1"]

    run(main())


def test_what_an_ended_run_has_left_behind_is_given_back_and_not_in_a_circle(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        clock = VirtualClock(NOON)
        path = tmp_path / "flows.db"
        times: list[float] = []
        waker = Waker(
            path.parent,
            run_store_url(path.parent),
            clock,
            clean_up=lambda: times.append(clock.wall()),
        )
        engine = open_run_store(run_store_url(path.parent), wall=clock.wall)
        record = parked("r1", None)
        claim = await engine.create(record, owner="me", lease=30)
        lease = clock.wall() + 3600
        rented = ResourceRecord("r1", "gpu", "", "true", False, lease, ResourceState.HELD, 0.0)
        await engine.save_resource(rented)
        await engine.let_go(claim, replace(record, state=RunState.STOPPED))
        await waker.look()
        assert times == [], "a run that goes on keeps it until its lease ends"
        await clock.advance(3601)
        await waker.look()
        await waker.look()
        assert times == [lease + 1]
        await engine.save_resource(replace(rented, trouble="no network"))
        await clock.advance(300)
        await waker.look()
        await clock.advance(300)
        await waker.look()
        assert times == [lease + 1, lease + 301], "one that failed is tried ever more rarely"
        await clock.advance(300)
        await waker.look()
        assert times[2:] == [lease + 901]
        await engine.close()

    run(main())


def test_a_run_that_someone_carries_is_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock(NOON)
        path = tmp_path / "flows.db"
        await park(path, clock, parked("r1", clock.wall() - 1))
        engine = open_run_store(run_store_url(path.parent), wall=clock.wall)
        await engine.claim("r1", owner="another", lease=30)
        waker = Waker(path.parent, run_store_url(path.parent), clock, lambda _each: None)
        assert await waker.look() == []
        await clock.advance(31)
        assert await waker.look() == ["r1"]
        await engine.close()

    run(main())


def test_the_brakes_hold(tmp_path: Path) -> None:
    async def main() -> None:
        clock = VirtualClock(NOON)
        path = tmp_path / "flows.db"
        night = RunSettings(wake=WakeSettings(hours="22:00-07:00"))
        asked = RunSettings(wake=WakeSettings(confirm=True))
        due = clock.wall() - 1
        await park(path, clock, parked("night", due, night), parked("asked", due, asked))
        waker = Waker(path.parent, run_store_url(path.parent), clock, lambda _each: None)
        assert await waker.look() == []
        engine = open_run_store(run_store_url(path.parent), wall=clock.wall)
        await engine.allow_waking("asked")
        await engine.close()
        assert await waker.look() == ["asked"]
        await clock.advance(10 * 3600)
        assert "night" in await waker.look()

    run(main())


def test_a_run_that_stays_parked_is_tried_ever_more_rarely_until_it_has_met_another_wall(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        clock = VirtualClock(NOON)
        path = tmp_path / "flows.db"
        times: list[float] = []
        waker = Waker(
            path.parent, run_store_url(path.parent), clock, lambda _each: times.append(clock.wall())
        )
        record = parked("r1", clock.wall() - 1)
        await park(path, clock, record)
        begin = clock.wall()
        for _ in range(100):
            await waker.look()
            await clock.advance(60)
        assert [round(at - begin) for at in times] == [0, 300, 900, 2100, 4500]
        engine = open_run_store(run_store_url(path.parent), wall=clock.wall)
        claim = await engine.claim("r1", owner="me", lease=30)
        assert claim is not None
        again = replace(record, state=RunState.PARKED, wake_at=clock.wall() - 1)
        await engine.let_go(claim, again)
        await engine.close()
        await clock.advance(4 * 3600)
        begin = clock.wall()
        times.clear()
        for _ in range(10):
            await waker.look()
            await clock.advance(60)
        assert [round(at - begin) for at in times] == [0, 300]

    run(main())
