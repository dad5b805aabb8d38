"""The clock as adversary of what is kept and shown: records, histories, paces, messages."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from jackline.calls import CallManager
from jackline.cli.journal_views import LogFollower
from jackline.clock import VirtualClock
from jackline.control.observatory import Observatory
from jackline.events import ClockMoved, WindowsReported
from jackline.journal import Journal, JournalReader
from jackline.lane_id import LaneId
from jackline.lanes import LaneController
from jackline.notifications.incidents import WAIT, Condition, Incidents
from jackline.notifications.settings import IncidentKind
from jackline.testing import ScriptedUpstream
from tests.attacks.test_clock import DAY, GOOD, HOUR, JUMPS
from tests.gateway.desk_world import START, World, play
from tests.journal import made

# --- the journal ------------------------------------------------------------------------------


class _Times:
    """A wall clock that can be set, beside real time that cannot."""

    def __init__(self) -> None:
        self.elapsed = 500.0
        self.ahead = made.NOON - self.elapsed

    def wall(self) -> float:
        return self.elapsed + self.ahead

    def journal(self, path: Path, keep_days: float = 30.0) -> Journal:
        settings = replace(made.AT_ONCE, sweep_seconds=0.0, keep=keep_days * 86400)
        return Journal(path, settings=settings, wall=self.wall, elapsed=lambda: self.elapsed)


@pytest.mark.parametrize("years", [1, 10])
def test_a_clock_set_years_ahead_deletes_no_record(tmp_path: Path, years: int) -> None:
    path, times = tmp_path / "journal.db", _Times()
    with times.journal(path) as journal:
        for number in range(20):
            journal.announce(made.call(number, at=times.wall()))
        made.written(journal)
        times.ahead += years * 365 * DAY
        for _ in range(12):
            times.elapsed += HOUR
            made.written(journal)
        assert made.saved_numbers(path) == list(range(20))
        times.ahead -= years * 365 * DAY
        times.elapsed += 5 * DAY
        made.written(journal)
    assert made.saved_numbers(path) == list(range(20))


def test_a_clock_that_is_years_ahead_at_the_start_deletes_no_record(tmp_path: Path) -> None:
    path, times = tmp_path / "journal.db", _Times()
    with times.journal(path) as journal:
        for number in range(20):
            journal.announce(made.call(number, at=times.wall()))
        made.written(journal)
    times.ahead += 10 * 365 * DAY
    with times.journal(path) as journal:
        journal.announce(made.call(20, at=times.wall()))
        made.written(journal)
        times.elapsed += HOUR
        made.written(journal)
        assert made.saved_numbers(path) == list(range(21))
        times.ahead -= 10 * 365 * DAY
        times.elapsed += 2 * DAY
        made.written(journal)
    assert made.saved_numbers(path) == list(range(21))


def test_records_grow_old_by_a_clock_that_has_been_set_for_a_day(tmp_path: Path) -> None:
    path, times = tmp_path / "journal.db", _Times()
    with times.journal(path) as journal:
        journal.announce(made.call(0, at=times.wall()))
        made.written(journal)
        times.ahead += 40 * DAY
        times.elapsed += 60
        made.written(journal)
        assert made.saved_numbers(path) == [0]
        times.elapsed += 1.1 * DAY
        journal.announce(made.call(1, at=times.wall()))
        made.written(journal)
    assert made.saved_numbers(path) == [1], "it is the time by now, not a slip"


def test_records_grow_old_while_the_machine_sleeps(tmp_path: Path) -> None:
    path, times = tmp_path / "journal.db", _Times()
    with times.journal(path) as journal:
        journal.announce(made.call(0, at=times.wall()))
        made.written(journal)
        times.elapsed += 31 * DAY
        journal.announce(made.call(1, at=times.wall()))
        made.written(journal)
    assert made.saved_numbers(path) == [1]


# --- what people are shown --------------------------------------------------------------------


class _Watched:
    """An observatory that hears what the gateway announces."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START)
        self.observatory = Observatory(self.clock)
        controller = LaneController([], lambda: 0.5, now=self.clock.steady())
        upstream = ScriptedUpstream(self.clock)
        self.carrier = CallManager(controller, upstream, self.clock, self.observatory.announce)

    def answered(self, number: int = 0) -> None:
        self.observatory.announce(made.call(number, at=self.clock.wall()))

    def jump(self, seconds: float) -> None:
        self.clock.jump_wall(seconds)
        self.carrier.follow_clock()

    def doing(self) -> str:
        (member,) = map(self.observatory.fleet.member, self.observatory.fleet.known())
        assert member is not None
        return member.resting_state(self.clock.wall()).value


@pytest.mark.parametrize("jump", JUMPS)
def test_an_agent_is_quiet_by_how_long_it_was_not_heard(jump: float) -> None:
    async def scene() -> None:
        watched = _Watched()
        watched.answered()
        assert watched.doing() == "between calls"
        watched.jump(jump)
        assert watched.doing() == "between calls"
        await watched.clock.advance(150)
        assert watched.doing() == "quiet"
        await watched.clock.advance(900)
        assert watched.doing() == "finished"

    asyncio.run(scene())


def test_an_agent_that_was_silent_while_the_machine_slept_was_silent() -> None:
    async def scene() -> None:
        watched = _Watched()
        watched.answered()
        watched.clock.suspend(HOUR)
        watched.carrier.follow_clock()
        assert watched.doing() == "finished"

    asyncio.run(scene())


@pytest.mark.parametrize("jump", JUMPS)
def test_the_pace_of_spending_and_of_a_window_is_what_it_was(jump: float) -> None:
    async def scene() -> None:
        watched = _Watched()
        resets = START.timestamp() + jump + 5 * HOUR
        for minute in range(30):
            watched.answered(minute)
            now = watched.clock.wall()
            windows = (("5h", 0.30 + 0.01 * minute, resets),)
            watched.observatory.announce(
                WindowsReported(now, LaneId("anthropic", "opus", "a"), windows)
            )
            if minute == 20:
                watched.jump(jump)
            await watched.clock.advance(60)
        now = watched.clock.wall()
        told = sum(
            m.lanes[LaneId("anthropic", "opus")].calls
            for m in watched.observatory.burn.series(now, 31)
            if m.lanes
        )
        assert told >= 29
        recent = watched.observatory.burn.since(now - 900).calls
        assert 14 <= recent <= 16
        (forecast,) = watched.observatory.windows.forecasts(now)
        assert forecast.per_hour == pytest.approx(0.58, abs=0.1)

    asyncio.run(scene())


@pytest.mark.parametrize("jump", [-DAY, -HOUR, HOUR, DAY])
def test_a_person_is_told_of_trouble_in_time(jump: float) -> None:
    clock = VirtualClock(START)
    incidents = Incidents()
    down = Condition(IncidentKind.PARKED, "anthropic", "it is parked")

    async def scene() -> None:
        assert incidents.look(clock.steady(), [down], quiet=False) == []
        clock.jump_wall(jump)
        await clock.advance(WAIT + 1)
        assert len(incidents.look(clock.steady(), [down], quiet=False)) == 1

    asyncio.run(scene())


def test_a_set_clock_is_told_once_as_what_it_is() -> None:
    async def scene(world: World) -> None:
        await world.pass_time(2)
        world.clock.jump_wall(HOUR)
        await world.pass_time(3)
        world.clock.suspend(DAY)
        await world.pass_time(3)
        world.clock.jump_wall(0.2)
        await world.pass_time(3)

    world = play([GOOD], scene)
    moved = [event for event in world.events if isinstance(event, ClockMoved)]
    assert [(round(each.by), round(each.slept)) for each in moved] == [(3600, 0), (86400, 86400)]


@pytest.mark.parametrize("jump", [-DAY, -HOUR, HOUR, DAY])
def test_who_follows_the_log_goes_on_hearing(tmp_path: Path, jump: float) -> None:
    path, times = tmp_path / "journal.db", _Times()
    with times.journal(path) as journal:
        for number in range(20):
            journal.announce(made.call(number, at=times.wall()))
            times.elapsed += 600
        made.written(journal)
        with JournalReader(path) as reader:
            # As `logs -f` does: the latest five were printed.
            printed = list(LogFollower(0.0).new_events(reader, 1000))[-5:]
            following = LogFollower(printed[-1].at, printed)
            assert list(following.new_events(reader, 1000)) == []
            times.ahead += jump
            if jump < 0:
                following.clock_set_back(reader, times.wall())
            for number in range(20, 23):
                times.elapsed += 1
                journal.announce(made.call(number, at=times.wall()))
            made.written(journal)
            news = [getattr(event, "call", "") for event in following.new_events(reader, 1000)]
            assert news == ["call-20", "call-21", "call-22"]
