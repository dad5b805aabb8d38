"""`/metrics` of a whole service: readable, true, complete, and bounded."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from jackline.lane_id import LaneId
from jackline.telemetry.metrics import METRICS
from tests.assembly.world import answered, ask, gateway, http, provider, question, request, run
from tests.planted import KEY
from tests.telemetry.promtool import promtool
from tests.telemetry.test_counters import ended

_SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$")
TOKEN = b"a-token-of-ours"
_NAMED_IDS = ("session-", "agent-", "call-", "tag-")


def samples(page: str) -> dict[tuple[str, str], float]:
    found = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            match = _SAMPLE.match(line)
            assert match is not None, line
            found[match[1], match[2] or ""] = float(match[3])
    return found


async def scraped(url: str, *headers: tuple[bytes, bytes]) -> str:
    got = await ask(url, request(b"GET", b"/metrics", b"", *headers, key=None))
    assert got.status == 200
    assert got.header(b"content-type") == b"text/plain; version=0.0.4; charset=utf-8"
    return got.body.decode()


def test_a_new_service_has_every_metric_of_the_catalogue_and_promtool_reads_it(
    tmp_path: Path,
) -> None:
    async def main() -> str:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            return await scraped(service.url)

    page = run(main())
    shown = re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE)
    assert shown == [(metric.name, metric.kind.value) for metric in METRICS]
    promtool("check", "metrics", stdin=page.encode())


def test_what_is_reported_is_what_happened(tmp_path: Path) -> None:
    refusal = http(400, b'{"type":"error","error":{"type":"invalid_request_error","message":"x"}}')
    answers = (answered(), answered(), refusal)
    who = (b"x-claude-code-session-id", b"session-1")

    async def main() -> str:
        async with provider(*answers) as (_, url), gateway(tmp_path, url) as service:
            for number in range(3):
                await ask(
                    service.url, request(b"POST", b"/v1/messages", question(str(number)), who)
                )
            return await scraped(service.url)

    page = run(main())
    shown = samples(page)
    lane = 'lane="anthropic/claude-opus-4-8"'
    assert shown["jackline_calls_total", f'{lane},outcome="answered"'] == 2
    assert shown["jackline_calls_total", f'{lane},outcome="refused"'] == 1
    assert shown["jackline_failed_attempts_total", f'{lane},kind="invalid_request"'] == 1
    assert shown["jackline_lane_state", f'{lane},state="open"'] == 1
    assert shown["jackline_tokens_total", f'{lane},kind="input"'] == 20
    assert shown["jackline_tokens_total", f'{lane},kind="output"'] == 10
    assert shown["jackline_spend_usd_total", lane] == (20 * 5 + 10 * 25) / 1e6
    assert shown["jackline_call_seconds_count", lane] == 3
    assert sum(v for (name, _), v in shown.items() if name == "jackline_agents") == 1
    assert shown["jackline_gateway_overhead_seconds_count", ""] == 3
    promtool("check", "metrics", stdin=page.encode())
    assert KEY not in page


def test_counters_begin_at_zero_with_every_start_so_that_nothing_is_counted_twice(
    tmp_path: Path,
) -> None:
    async def one_life(calls: int) -> dict[tuple[str, str], float]:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            for _ in range(calls):
                await ask(service.url, request(b"POST", b"/v1/messages", question()))
            return samples(await scraped(service.url))

    lane = 'lane="anthropic/claude-opus-4-8"'
    first, second = run(one_life(3)), run(one_life(1))
    for name in ("jackline_calls_total", "jackline_tokens_total"):
        label = 'outcome="answered"' if name == "jackline_calls_total" else 'kind="input"'
        assert first[name, f"{lane},{label}"] == 3 * second[name, f"{lane},{label}"]
    spend = "jackline_spend_usd_total"
    assert round(first[spend, lane], 9) == round(3 * second[spend, lane], 9) > 0


def test_ten_thousand_sessions_make_no_more_series_than_one(tmp_path: Path) -> None:
    async def main() -> tuple[str, str]:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            service.observatory.announce(ended(LaneId("anthropic", "m", "1"), number=0))
            one = await scraped(service.url)
            for number in range(10_000):
                service.observatory.announce(ended(LaneId("anthropic", "m", "1"), number=number))
            own = (b"x-jackline-control", service._token.encode())
            return one, await scraped(service.url, own)

    one, many = run(main())
    assert set(samples(one)) == set(samples(many))
    assert samples(many)["jackline_calls_total", 'lane="anthropic/m",outcome="answered"'] == 10_001
    assert not any(name in many for name in _NAMED_IDS)


def test_access_is_the_same_as_for_other_readings(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            provider(answered()) as (_, url),
            gateway(tmp_path, url, token=TOKEN.decode()) as service,
        ):
            bare = await ask(service.url, request(b"GET", b"/metrics", key=None))
            assert bare.status == 401
            await scraped(service.url, (b"x-jackline-token", TOKEN))
            strange = request(b"GET", b"/metrics", key=None, host=b"evil.example")
            with_token = strange.replace(
                b"\r\n\r\n", b"\r\nx-jackline-token: " + TOKEN + b"\r\n\r\n"
            )
            assert (await ask(service.url, with_token)).status == 403

    run(main())


def test_metrics_are_only_read(tmp_path: Path) -> None:
    async def main() -> int:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            return (await ask(service.url, request(b"POST", b"/metrics", key=None))).status

    assert run(main()) == 405


def test_a_store_of_runs_that_cannot_be_read_leaves_out_its_metrics_alone(tmp_path: Path) -> None:
    async def main() -> str:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            store = tmp_path / "state" / "flows.db"
            await asyncio.to_thread(store.write_bytes, b"no database at all, whatever it is called")
            return await scraped(service.url)

    shown = samples(run(main()))
    assert not any(name == "jackline_runs" for name, _ in shown)
    assert shown["jackline_journal_ok", ""] == 1
