"""The clock as adversary: somebody sets it, a time server corrects it, or the laptop sleeps.

Played on the whole gateway in virtual time, with clients on paper and a scripted upstream. What a
vendor gave as a date follows the wall clock; everything else is a duration and must not notice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jackline.events import (
    AttemptFailed,
    CallEnded,
    Event,
    LaneChanged,
)
from jackline.gateway.control_plane import OperatorOrders
from jackline.gateway.settings import GatewaySettings, HoldSettings
from jackline.gateway.status_report import picture
from jackline.journal import JournalHealth
from jackline.lanes import LaneController, LaneSettings, export, restore
from jackline.lanes.settings import KnownLimits
from jackline.testing import Step
from jackline.testing.scripted_upstream import STREAMED
from tests.gateway.desk_world import START, THROTTLED, WHOLE, World, play, wall

HOUR, DAY = 3600.0, 86_400.0
JUMPS = [-10 * 365 * DAY, -DAY, -HOUR, -2.0, 2.0, HOUR, DAY, 10 * 365 * DAY]
BACK_OR_FORTH = [-HOUR, DAY]
HEALTHY = JournalHealth(True, "", 0, 0, None)
GOOD = Step()
UNTIL_RESET = GatewaySettings(hold=HoldSettings(until_reset=True))


def throttle(seconds: int) -> Step:
    """A vendor that asks to come back after so many seconds."""
    return Step(status=429, headers={"retry-after": str(seconds)}, body=THROTTLED.body, after=0.2)


def status(world: World) -> dict[str, Any]:
    """What `jackline status` reads."""
    started, at = START.timestamp(), world.clock.now()
    drawn = picture(world.desk, HEALTHY, url="", started=started, connections=0, at=at)
    return drawn.to_json("")


def durations_of(events: Iterable[Event]) -> list[float]:
    """Every duration that was announced."""
    told: list[float] = []
    for event in events:
        if isinstance(event, CallEnded):
            told += [event.took, event.waited]
        elif isinstance(event, AttemptFailed):
            told.append(event.took)
    return told


def numbers_in(value: object) -> list[float]:
    """Every number in a structure, however deep."""
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers_in(each)]
    if isinstance(value, list | tuple):
        return [number for each in value for number in numbers_in(each)]
    if is_dataclass(value):
        return [n for each in fields(value) for n in numbers_in(getattr(value, each.name))]
    return []


# --- the wall clock is set --------------------------------------------------------------------


@pytest.mark.parametrize("jump", JUMPS)
def test_a_throttle_lasts_as_long_as_the_vendor_asked_whatever_the_clock_shows(jump: float) -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.pass_time(2)
        world.clock.jump_wall(jump)
        await world.pass_time(2)
        assert len(world.upstream.attempts) == 1, "the pause has not passed yet"
        await world.until_over(client, longest=10)
        assert client.status == 200
        assert client.body == STREAMED

    world = play([throttle(5), GOOD], scene)
    assert [event.outcome for event in world.ended] == ["answered"]
    assert 0 < world.ended[0].took < 14


@pytest.mark.parametrize("jump", JUMPS)
def test_no_call_is_refused_because_the_clock_was_set(jump: float) -> None:
    async def scene(world: World) -> None:
        clients = [world.ask(agent=f"a{n}") for n in range(12)]
        clients.append(world.ask(agent="whole", stream=False))
        await world.pass_time(1)
        world.clock.jump_wall(jump)
        await world.pass_time(1)
        world.clock.jump_wall(-jump)
        await world.pass_time(1)
        world.clock.jump_wall(jump)
        await world.until_over(*clients, longest=400)
        assert {client.status for client in clients} == {200}

    whole = Step(says=WHOLE, headers={"content-type": "application/json"})
    world = play([throttle(5)] * 8 + [GOOD] * 12 + [whole], scene)
    assert all(0 <= each < 400 for each in durations_of(world.events))


@pytest.mark.parametrize("jump", [HOUR, DAY, 10 * 365 * DAY])
def test_a_reset_that_the_set_clock_says_has_passed_opens_the_lane(jump: float) -> None:
    async def scene(world: World) -> None:
        clients = [world.ask(agent=f"a{n}") for n in range(3)]
        await world.pass_time(5)
        world.clock.jump_wall(jump)
        await world.until_over(*clients, longest=30)
        assert {client.status for client in clients} == {200}

    play([wall(600), wall(600), wall(600), GOOD], scene)


def test_a_reset_follows_a_clock_that_is_set_back() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.pass_time(5)
        world.clock.jump_wall(-HOUR)
        await world.pass_time(600 + HOUR - 10)
        assert len(world.upstream.attempts) == 1, "nothing goes before the vendor's date"
        await world.until_over(client, longest=60)
        assert client.status == 200

    play([wall(600), GOOD], scene, UNTIL_RESET)


def test_a_clock_that_is_set_and_put_right_changes_nothing_in_the_end() -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.pass_time(5)
        world.clock.jump_wall(-HOUR)
        await world.pass_time(5)
        world.clock.jump_wall(HOUR)
        await world.pass_time(580)
        assert len(world.upstream.attempts) == 1
        await world.until_over(client, longest=30)
        assert client.status == 200

    play([wall(600), GOOD], scene)


def test_a_held_call_is_not_sent_away_because_the_clock_was_set_back() -> None:
    """Held for ten minutes within a limit of fifteen: setting the clock must not end that."""

    async def scene(world: World) -> None:
        client = world.ask()
        await world.pass_time(5)
        world.clock.jump_wall(-HOUR)
        await world.pass_time(500)
        assert not client.over, "it is held as was decided when it came"
        world.clock.jump_wall(HOUR)
        await world.until_over(client, longest=150)
        assert client.body.endswith(STREAMED)

    play([wall(600), GOOD], scene)


@pytest.mark.parametrize("jump", BACK_OR_FORTH)
def test_a_wall_told_in_seconds_lasts_so_many_seconds(jump: float) -> None:
    told = Step(
        status=429,
        headers={"retry-after": "600"},
        body=b'{"type":"error","error":{"type":"rate_limit_error","message":"You\'ve hit your '
        b'session limit"}}',
        after=0.2,
    )

    async def scene(world: World) -> None:
        client = world.ask()
        await world.pass_time(5)
        world.clock.jump_wall(jump)
        await world.pass_time(590)
        assert len(world.upstream.attempts) == 1, "the wall lasts six hundred seconds"
        await world.until_over(client, longest=30)
        assert client.body.endswith(STREAMED)

    play([told, GOOD], scene)


@pytest.mark.parametrize("jump", BACK_OR_FORTH)
def test_a_reset_in_words_is_read_by_the_clock_as_it_is_set_now(jump: float) -> None:
    moment = START + timedelta(seconds=jump + 600)
    words = f"You've hit your session limit · resets {moment:%I:%M%p} (UTC)".encode()
    told = Step(
        status=429,
        body=b'{"type":"error","error":{"type":"rate_limit_error","message":"' + words + b'"}}',
        after=0.2,
    )

    async def scene(world: World) -> None:
        world.clock.jump_wall(jump)
        client = world.ask()
        await world.pass_time(590)
        assert len(world.upstream.attempts) == 1, "the vendor's clock has not come to it"
        await world.until_over(client, longest=30)
        assert client.body.endswith(STREAMED)

    play([told, GOOD], scene)


@pytest.mark.parametrize("jump", BACK_OR_FORTH)
def test_a_broken_lane_is_tried_again_after_its_pause(jump: float) -> None:
    down = Step(status=500, body=b"{}", after=0.1)

    async def scene(world: World) -> None:
        clients = [world.ask(agent=f"a{n}") for n in range(8)]
        while not any(isinstance(e, LaneChanged) and e.state == "down" for e in world.events):
            await world.pass_time(1)
            assert world.clock.monotonic() < 60
        before = len(world.upstream.attempts)
        world.clock.jump_wall(jump)
        await world.pass_time(3)
        assert len(world.upstream.attempts) == before, "it is left alone for five seconds at least"
        await world.until_over(*clients, longest=180)
        assert {client.status for client in clients} == {200}

    world = play([down] * 18 + [GOOD], scene)
    assert all(0 <= each < 180 for each in durations_of(world.events))


@pytest.mark.parametrize("jump", [-DAY, -HOUR, HOUR, DAY])
def test_who_waits_is_kept_alive_while_the_clock_is_set(jump: float) -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.pass_time(70)
        before, starts = len(client.wire), client.events.count("message_start")
        world.clock.jump_wall(jump)
        world.clock.jump_wall(-jump - 10)
        for _ in range(6):
            await world.pass_time(20)
            assert len(client.wire) > before, "a client that hears nothing gives up"
            before = len(client.wire)
        assert 1 <= client.events.count("message_start") - starts <= 3
        await world.until_over(client)

    play([wall(400), GOOD], scene)


def test_a_whole_answer_is_sent_back_in_its_clients_time_not_the_clocks() -> None:
    async def scene(world: World) -> None:
        client = world.ask(stream=False, headers={"x-stainless-timeout": "120"})
        await world.pass_time(10)
        world.clock.jump_wall(DAY)
        world.clock.jump_wall(-DAY - HOUR)
        await world.pass_time(80)
        assert not client.over, "its patience has not ended"
        await world.pass_time(30)
        assert client.status == 503, "told to ask again before its own time-out"

    play([wall(5 * HOUR)], scene, UNTIL_RESET)


@pytest.mark.parametrize("jump", BACK_OR_FORTH)
def test_a_client_that_asks_again_keeps_its_place(jump: float) -> None:
    async def scene(world: World) -> None:
        first = world.ask()
        await world.pass_time(5)
        first.exchange.left()
        world.clock.jump_wall(jump)
        again = world.ask()
        await world.until_over(again, longest=60)
        assert again.status == 200
        assert world.ended[0].call == world.ended[-1].call, "the same call goes on"

    play([throttle(20), GOOD], scene)


@pytest.mark.parametrize("jump", JUMPS)
def test_what_is_told_is_true_after_the_clock_was_set(jump: float) -> None:
    async def scene(world: World) -> None:
        waits = world.ask()
        await world.pass_time(3)
        world.clock.jump_wall(jump)
        shown = status(world)
        (call,) = shown["waiting"]
        (lane,) = shown["lanes"]
        now = world.clock.wall()
        assert shown["at"] == pytest.approx(now)
        assert call["since"] == pytest.approx(now - 3, abs=1.1)
        # When it is tried again: soon if the date has passed, else at the vendor's date.
        assert lane["until"] == pytest.approx(START.timestamp() + 600, abs=1.1)
        await world.pass_time(2)
        world.clock.jump_wall(-jump)
        await world.until_over(waits)

    world = play([wall(600), GOOD], scene, UNTIL_RESET)
    every = [number for event in world.events for number in numbers_in(event)]
    assert all(math.isfinite(number) for number in every)
    assert all(each >= 0 for each in durations_of(world.events))


@pytest.mark.parametrize("jump", [-HOUR, DAY, 10 * 365 * DAY])
def test_events_carry_the_wall_clocks_time_and_true_durations(jump: float) -> None:
    async def scene(world: World) -> None:
        world.clock.jump_wall(jump)
        client = world.ask()
        await world.until_over(client, longest=60)

    world = play([throttle(5), GOOD], scene)
    begin = START.timestamp() + jump
    for event in world.events:
        assert begin <= event.at <= begin + 60, event  # type: ignore[union-attr]
    (ended,) = world.ended
    assert 5 <= ended.took < 20
    assert 5 <= ended.waited < 20


# --- the machine sleeps -----------------------------------------------------------------------


@pytest.mark.parametrize("asleep", [30.0, HOUR, 9 * HOUR, 10 * DAY])
def test_after_waking_nothing_is_refused_because_time_passed(asleep: float) -> None:
    short = GatewaySettings(hold=HoldSettings(quota=900.0, other=200.0))

    async def scene(world: World) -> None:
        clients = [world.ask(agent=f"a{n}") for n in range(12)]
        clients += [world.ask(agent=f"whole{n}", stream=False) for n in range(2)]
        await world.pass_time(2)
        world.clock.suspend(asleep)
        await world.until_over(*clients, longest=190)
        assert {client.status for client in clients} == {200}

    whole = Step(says=WHOLE, headers={"content-type": "application/json"})
    play([throttle(5)] * 8 + [GOOD] * 12 + [whole], scene, short)


def test_a_reset_that_passed_in_sleep_opens_the_lane_at_once() -> None:
    async def scene(world: World) -> None:
        client = world.ask(headers={"x-jackline-hold": "until-reset"})
        await world.pass_time(60)
        world.clock.suspend(6 * HOUR)
        await world.until_over(client, longest=30)
        assert client.body.endswith(STREAMED)

    play([wall(5 * HOUR), GOOD], scene)


def test_a_wall_told_in_seconds_passes_while_the_machine_sleeps() -> None:
    told = Step(
        status=429,
        headers={"retry-after": "18000"},
        body=b'{"type":"error","error":{"type":"rate_limit_error","message":"You\'ve hit your '
        b'session limit"}}',
        after=0.2,
    )

    async def scene(world: World) -> None:
        client = world.ask()
        await world.pass_time(60)
        world.clock.suspend(6 * HOUR)
        await world.until_over(client, longest=30)
        assert client.body.endswith(STREAMED)

    play([told, GOOD], scene, UNTIL_RESET)


def test_attempts_in_flight_are_not_given_up_for_the_silence_of_a_sleeping_machine() -> None:
    async def scene(world: World) -> None:
        clients = [world.ask(agent=f"a{n}") for n in range(8)]
        await world.pass_time(3)
        world.clock.suspend(9 * HOUR)
        await world.until_over(*clients, longest=30)
        assert len(world.upstream.attempts) == 8, "the answers were on their way"

    play([Step(after=6.0)], scene)


def test_a_moment_in_utc_is_what_a_refused_client_hears_after_a_jump() -> None:
    async def scene(world: World) -> None:
        world.clock.jump_wall(-HOUR)
        client = world.ask()
        await world.until_over(client, longest=5)
        assert client.status == 429
        assert client.headers["x-jackline-resets-at"] == "2026-11-15T14:00:00+00:00"

    play([wall(5 * HOUR)], scene)
    assert datetime.fromtimestamp(START.timestamp() + 5 * HOUR, UTC).hour == 14


# --- orders and memory ------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-DAY, -HOUR, HOUR, DAY])
def test_an_order_for_half_an_hour_holds_for_half_an_hour(jump: float) -> None:
    kept: list[bytes] = []

    async def scene(world: World) -> None:
        orders = OperatorOrders(world.desk, kept.append)
        orders.use({"upstream": "anthropic", "seconds": 1800})
        world.clock.jump_wall(jump)
        await world.pass_time(600)
        (told,) = orders.to_json()
        assert told["until"] == pytest.approx(world.clock.wall() + 1200)
        await world.pass_time(1201)
        assert orders.to_json() == []
        # What was kept holds dates: a service that starts now takes them for what they are.
        world.clock.jump_wall(-jump)
        world.desk.chooser.orders = ()
        orders.recall(kept[0])
        assert orders.to_json() == [], "its half hour is over"

    play([GOOD], scene)


@pytest.mark.parametrize("jump", [-DAY, -HOUR, 60.0, HOUR, DAY])
def test_a_wall_is_remembered_over_a_restart_by_its_date(jump: float) -> None:
    async def scene(world: World) -> None:
        client = world.ask()
        await world.pass_time(2)
        world.clock.jump_wall(jump)
        await world.pass_time(2)
        memory = export(world.carrier.controller, world.clock.steady())
        date = START.timestamp() + 2 * DAY
        assert isinstance(memory["lanes"], list)
        (lane,) = memory["lanes"]
        assert isinstance(lane, dict)
        assert lane["parked_until"] == pytest.approx(date)
        # A new service, whose line begins at the wall clock's time of now.
        started = world.clock.wall()
        after = LaneController([], lambda: 0.5, now=started)
        for name in world.carrier.controller.lanes:
            after.open_lane(started, LaneSettings(name, KnownLimits()))
        restore(after, memory, started)
        (parked,) = after.lanes.values()
        assert parked.reset_at == pytest.approx(date)
        client.exchange.left()

    play([wall(2 * DAY)], scene, UNTIL_RESET)
