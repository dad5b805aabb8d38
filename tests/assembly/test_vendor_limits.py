"""A gateway with an admin key begins with its vendor's limits, and says whose they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jackline.assembly import Service
from jackline.control.text import limit_text
from jackline.lanes import KnownLimits
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.simulator.limits import BucketSettings, Counts
from jackline.simulator.provider import ProviderSettings
from jackline.simulator.server import SimulatorServer
from tests.assembly.world import (
    answered,
    ask,
    config_for,
    http,
    provider,
    question,
    request,
    run,
    until,
)
from tests.planted import KEY, WORD, leaks

ADMIN = f"sk-ant-admin01-{WORD}-{'C' * 20}"
REQUESTS = BucketSettings(Counts.REQUESTS, 5, headers=False, retry_after=False, labelled=False)
UNTOLD = ProviderSettings(
    buckets=(REQUESTS, BucketSettings(Counts.OUTPUT_TOKENS, 9000, headers=False)), admin_key=ADMIN
)
LANE = "main/claude-opus-4-8"


def upstream(url: str, **more: Any) -> UpstreamSettings:
    return UpstreamSettings(
        "main", url, credential=Credential.API_KEY, secret=KEY, admin_key="env:ADMIN", **more
    )


@asynccontextmanager
async def living(folder: Path, settings: UpstreamSettings) -> AsyncIterator[Service]:
    config = config_for(folder, settings.url)
    config = replace(config, gateway=replace(config.gateway, upstreams=(settings,)))
    async with Service(config) as service:
        yield service
        service.cut_short()


@pytest.fixture(autouse=True)
def _admin_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADMIN", ADMIN)


def notes(service: Service) -> str:
    told = service.status()["notes"]
    assert isinstance(told, tuple)
    return "\n".join(told)


def lane_of(service: Service) -> dict[str, Any]:
    (lane,) = json.loads(json.dumps(service.status()))["lanes"]
    assert isinstance(lane, dict)
    return lane


async def read(service: Service) -> None:
    await until(lambda: bool(service.desk.limit_readings))


def is_settled(service: Service) -> bool:
    return bool(service.desk.limit_readings) or "401" in notes(service)


def crowd(service: Service, many: int = 8) -> list[asyncio.Task[Any]]:
    return [
        asyncio.create_task(ask(service.url, request(body=question(f"number {number}"))))
        for number in range(many)
    ]


async def dismiss(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_lane_begins_with_the_true_limit_and_nothing_is_throttled(tmp_path: Path) -> None:
    async def throttled(settings: UpstreamSettings, server: SimulatorServer, folder: Path) -> int:
        """How many of eight calls at once the provider has refused, once five are answered."""
        async with living(folder, settings) as service:
            if settings.admin_key is not None:
                await read(service)
            tasks = crowd(service)
            await until(lambda: sum(task.done() for task in tasks) == 5)
            if settings.admin_key is not None:
                lane = lane_of(service)
                assert (lane["in_flight"], lane["waiting"]) == (0, 3)
                assert lane["known_limits"]["requests"]["per_minute"] == 5
                assert lane["known_limits"]["requests"]["origin"] == "vendor"
            await dismiss(tasks)
        summary: Any = server.playing.provider.ledger.summary()
        return int(summary["wasted"])

    async def main() -> None:
        async with SimulatorServer(UNTOLD, speed=20.0) as server:
            assert await throttled(upstream(server.url), server, tmp_path / "with") == 0
        async with SimulatorServer(UNTOLD, speed=20.0) as server:
            without = replace(upstream(server.url), admin_key=None)
            assert await throttled(without, server, tmp_path / "without") > 0

    run(main())


def test_every_limit_is_shown_with_its_origin(tmp_path: Path) -> None:
    told = ProviderSettings(
        buckets=(*UNTOLD.buckets, BucketSettings(Counts.INPUT_TOKENS, 40_000)), admin_key=ADMIN
    )

    async def main() -> None:
        async with SimulatorServer(told) as server:
            settings = upstream(server.url, limits=KnownLimits(requests_per_minute=3))
            async with living(tmp_path, settings) as service:
                await read(service)
                assert (await ask(service.url, request(body=question()))).status == 200
                known = lane_of(service)["known_limits"]
                at = service.desk.limit_readings["main"].read_at
                assert known == {
                    "requests": {"per_minute": 3, "origin": "written", "read_at": None},
                    "input": {"per_minute": 40_000, "origin": "vendor", "read_at": at},
                    "output": {"per_minute": 9_000, "origin": "vendor", "read_at": at},
                }
                now = datetime.fromtimestamp(at, UTC)
                assert limit_text(lane_of(service), now) == (
                    "3 requests a minute (written by you); 40,000 input tokens, 9,000 output tokens"
                    f" a minute (from the vendor's rate-limits API, read {now:%H:%M})"
                )

    run(main())


def test_headers_are_the_truth_of_the_moment(tmp_path: Path) -> None:
    headers = (
        (b"anthropic-ratelimit-requests-limit", b"70"),
        (b"anthropic-ratelimit-requests-remaining", b"69"),
    )

    async def main() -> None:
        listing = json.dumps(
            {
                "data": [
                    {
                        "group_type": "model_group",
                        "models": ["claude-opus-4-8"],
                        "limits": [{"type": "requests_per_minute", "value": 50}],
                    }
                ]
            }
        ).encode()
        body = answered().partition(b"\r\n\r\n")[2]
        async with provider(http(200, listing), http(200, body, *headers)) as (scripted, url):
            async with living(tmp_path, upstream(url)) as service:
                await read(service)
                assert (await ask(service.url, request(body=question()))).status == 200
                assert lane_of(service)["known_limits"]["requests"] == {
                    "per_minute": 70,
                    "origin": "headers",
                    "read_at": None,
                }
            assert ADMIN.encode() in scripted.asked[0].raw
            assert [ADMIN.encode() in each.raw for each in scripted.asked[1:]] == [False]

    run(main())


def test_the_service_is_up_before_its_vendor_has_answered(tmp_path: Path) -> None:
    """The provider answers calls at once, and the API never."""

    async def main() -> None:
        async with (
            provider(b"", answered()) as (scripted, url),
            living(tmp_path, upstream(url)) as service,
        ):
            await until(lambda: len(scripted.asked) == 1)
            assert (await ask(service.url, request(body=question()))).status == 200
            assert service.desk.limit_readings == {}

    run(main())


def test_a_lane_that_was_open_before_follows_the_reading(tmp_path: Path) -> None:
    async def main() -> None:
        wrong = replace(UNTOLD, admin_key="another")
        async with (
            SimulatorServer(wrong) as server,
            living(tmp_path, upstream(server.url)) as service,
        ):
            await until(lambda: "the key was refused (status 401)" in notes(service))
            assert (await ask(service.url, request(body=question()))).status == 200
            assert lane_of(service)["known_limits"] == {}
            server.playing.restart(UNTOLD)
            limits = service._limits
            limits.use(())
            limits.use((upstream(server.url),))
            await read(service)
            assert lane_of(service)["known_limits"]["requests"]["origin"] == "vendor"
            assert "limits of" not in notes(service)

    run(main())


def test_the_admin_key_is_written_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")

    async def main() -> None:
        for number, key in enumerate((ADMIN, "another")):
            settings = replace(UNTOLD, admin_key=key)
            folder = tmp_path / str(number)
            async with SimulatorServer(settings) as server:
                async with living(folder, upstream(server.url)) as service:
                    await until(partial(is_settled, service))
                    await ask(service.url, request(body=question()))
                    assert WORD not in json.dumps(service.status())
                    assert WORD not in repr(service.config)
                ledger = json.dumps(server.playing.provider.ledger.to_json(), default=str)
                assert "sk-ant-admin" not in ledger

    run(main())
    assert leaks(tmp_path) == []
    assert WORD not in caplog.text


def test_openais_models_begin_with_the_limits_of_their_project(tmp_path: Path) -> None:
    async def main() -> None:
        settings = replace(UNTOLD, models=("gpt-5.5",))
        async with SimulatorServer(settings) as server:
            place = upstream(
                f"{server.url}/v1",
                kind=UpstreamKind.OPENAI_CHAT,
                project="proj_1",
                models={"claude-*": "gpt-5.5"},
            )
            async with living(tmp_path, replace(place, credential=Credential.BEARER)) as service:
                await read(service)
                assert (await ask(service.url, request(body=question()))).status == 200
                assert lane_of(service)["known_limits"]["requests"]["per_minute"] == 5

    run(main())
