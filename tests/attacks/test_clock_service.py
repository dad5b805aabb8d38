"""The clock as adversary of a whole service: real sockets, a real journal, a clock that is set."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jackline.assembly import Service
from jackline.clock import SystemClock
from jackline.journal import JournalReader
from tests.assembly.world import (
    PATIENCE,
    Got,
    answered,
    ask,
    config_for,
    http,
    journalled,
    provider,
    question,
    request,
    run,
)
from tests.attacks.test_clock import numbers_in

HOUR, DAY = 3600.0, 86_400.0
UNTIL_RESET = (b"x-jackline-hold", b"until-reset")


class SetClock(SystemClock):
    """The machine's clock, as somebody sets it."""

    ahead = 0.0

    def wall(self) -> float:
        return time.time() + self.ahead

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)


def wall_until(moment: float) -> bytes:
    """The vendor's refusal with a date."""
    return http(
        429,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"Please try again later."}}',
        (b"Content-Type", b"application/json"),
        (b"anthropic-ratelimit-unified-status", b"rejected"),
        (b"anthropic-ratelimit-unified-representative-claim", b"five_hour"),
        (b"anthropic-ratelimit-unified-reset", b"%d" % moment),
    )


async def status(service: Service) -> dict[str, Any]:
    """What `jackline status` reads, over the wire."""
    got = await ask(service.url, request(b"GET", b"/_jackline/status"))
    assert got.status == 200
    told: dict[str, Any] = got.json
    return told


async def until_waiting(service: Service) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while not (told := await status(service))["waiting"]:  # noqa: ASYNC110 -- from outside
            await asyncio.sleep(0.02)
        return told


@pytest.mark.parametrize("first", [0.0, -DAY])
def test_a_service_lives_through_a_clock_that_is_set_to_and_fro(
    tmp_path: Path, first: float
) -> None:
    clock = SetClock()
    clock.ahead = 100 * DAY

    async def main() -> None:
        date = clock.wall() + first + 5 * HOUR
        async with (
            provider(wall_until(date), answered()) as (vendor, url),
            Service(config_for(tmp_path, url), clock=clock) as service,
        ):
            clock.ahead += first  # before the first call: forgotten conversions show
            call = request(b"POST", b"/v1/messages", question(), UNTIL_RESET)
            asking = asyncio.create_task(ask(service.url, call))
            told = await until_waiting(service)
            (lane,) = told["lanes"]
            assert lane["until"] == pytest.approx(int(date), abs=0.01)
            assert abs(told["waiting"][0]["since"] - clock.wall()) < 60
            assert "in 5 h" in told["verdict"] or "in 4 h" in told["verdict"]

            clock.ahead -= 3 * HOUR
            await noted(service, "back by 3 h")
            told = await status(service)
            assert told["lanes"][0]["until"] == pytest.approx(int(date), abs=0.01)
            assert not asking.done()
            assert len(vendor.asked) == 1
            assert 0 <= told["at"] - told["started"] < 60, "it was started a moment ago"

            clock.ahead += 9 * HOUR
            got: Got = await asyncio.wait_for(asking, PATIENCE)
            assert got.status == 200
            assert len(vendor.asked) == 2

            told = await status(service)
            assert all(map(math.isfinite, numbers_in(told)))
            assert abs(told["at"] - clock.wall()) < 60
            metrics = await ask(service.url, request(b"GET", b"/metrics"))
            assert metrics.status == 200
            assert b"nan" not in metrics.body.lower()

    run(main())
    (ended,) = journalled(tmp_path)
    assert ended.outcome == "answered"
    assert 0 <= ended.waited <= ended.took < 60
    assert abs(ended.at - clock.wall()) < 120, "records carry the time that the clock showed"
    with JournalReader(tmp_path / "state" / "journal.db") as reader:
        notes = [note.detail for note in reader.notes(0.0) if note.what == "clock set"]
    assert any("back by 3 h" in note for note in notes)
    assert any("forward by 9 h" in note for note in notes)


async def noted(service: Service, words: str) -> None:
    """Wait until the service has said so."""
    async with asyncio.timeout(PATIENCE):
        while not any(words in getattr(each, "detail", "") for each in service.observatory.news):
            service.observatory.settle()
            await asyncio.sleep(0.02)
