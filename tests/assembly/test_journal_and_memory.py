"""What a call leaves behind, and what a gateway still knows after any end."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from jackline.assembly import Service
from jackline.events import CallEnded
from jackline.gateway.settings import HoldSettings
from jackline.journal import JournalReader
from jackline.testing import SimulatedProvider
from tests.assembly.world import (
    MODEL,
    answered,
    ask,
    config_for,
    gateway,
    http,
    journalled,
    port_of,
    provider,
    question,
    read_answer,
    request,
    run,
    until,
)
from tests.cli.gateways import Calling, Place, call
from tests.cli.gateways import until as wait_until
from tests.planted import KEY

JSON = (b"content-type", b"application/json")
THROTTLED = http(
    429,
    b'{"type":"error","error":{"type":"rate_limit_error","message":"Server is temporarily limiting'
    b' requests (not your usage limit)"}}',
    JSON,
    (b"request-id", b"req_throttled"),
)


@pytest.fixture
def simulated() -> Iterator[SimulatedProvider]:
    with SimulatedProvider() as one:
        yield one


def one_call(folder: Path, raw: bytes, *answers: bytes) -> CallEnded:
    async def main() -> None:
        async with provider(*answers) as (_, url), gateway(folder, url) as service:
            await ask(service.url, raw)

    run(main())
    (ended,) = journalled(folder)
    return ended


def test_a_call_is_recorded_with_who_asked_and_what_became_of_it(tmp_path: Path) -> None:
    raw = request(
        b"POST",
        b"/t/night/v1/messages",
        question(),
        (b"x-claude-code-session-id", b"session-1"),
        (b"x-claude-code-agent-id", b"agent-2"),
        (b"x-claude-code-parent-agent-id", b"agent-1"),
    )
    ended = one_call(tmp_path, raw, answered())
    assert (ended.outcome, ended.status, ended.attempts) == ("answered", 200, 1)
    assert (ended.session, ended.agent, ended.parent) == ("session-1", "agent-2", "agent-1")
    assert (ended.tag, ended.model, ended.stream) == ("night", MODEL, False)
    assert (ended.input_tokens, ended.output_tokens) == (10, 5)
    assert ended.request_id == "req_vendor"
    assert ended.lane is not None
    assert ended.lane.label == f"anthropic/{MODEL}"
    assert 0.0 <= ended.waited <= ended.took


def test_a_refusal_is_recorded_with_its_status(tmp_path: Path) -> None:
    body = b'{"type":"error","error":{"type":"invalid_request_error","message":"no"}}'
    ended = one_call(tmp_path, request(body=question()), http(400, body, JSON))
    assert (ended.outcome, ended.status, ended.attempts) == ("refused", 400, 1)


def test_a_failed_attempt_is_recorded_with_its_kind_and_the_call_as_answered(
    tmp_path: Path,
) -> None:
    ended = one_call(tmp_path, request(body=question()), THROTTLED, answered())
    assert (ended.outcome, ended.attempts) == ("answered", 2)
    with JournalReader(tmp_path / "state" / "journal.db") as reader:
        (failed,) = reader.attempts(ended.call)
        assert (failed.kind, failed.status) == ("server_throttle", 429)
        assert failed.request_id == "req_throttled"
        notes = [note.what for note in reader.notes(0.0)]
    assert notes == ["started", "stopping"]


def test_side_calls_are_recorded_too(tmp_path: Path) -> None:
    raw = request(b"POST", b"/v1/messages/count_tokens", question())
    ended = one_call(tmp_path, raw, http(200, b'{"input_tokens":7}', JSON))
    assert (ended.outcome, ended.model) == ("answered", "count_tokens")


def test_an_account_is_one_lane_over_a_restart_and_another_account_another(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url):
            for key in (b"one", b"one", b"two"):
                async with gateway(tmp_path, url) as service:
                    await ask(service.url, request(body=question(), key=key))

    run(main())
    first, again, other = [ended.lane for ended in journalled(tmp_path)]
    assert first == again
    assert first != other


# --- walls ------------------------------------------------------------------------------------


def test_a_wall_is_known_after_a_restart_and_nothing_is_sent_before_its_reset(
    tmp_path: Path, simulated: SimulatedProvider
) -> None:
    """The first gateway meets it; the second holds its call and sends it once, after the reset."""

    async def main() -> None:
        simulated.quota_wall(resets_in=10.0)
        async with gateway(tmp_path, simulated.url, hold=HoldSettings(quota=0.0)) as service:
            refused = await ask(service.url, request(body=question()))
            assert refused.status == 429
            assert refused.header(b"x-jackline-resets-at") is not None
        async with gateway(tmp_path, simulated.url) as service:
            lanes = service.status()["lanes"]
            assert isinstance(lanes, list | tuple)
            assert [lane["state"] for lane in lanes] == ["parked"]
            got = await ask(service.url, request(body=question()))
            assert got.status == 200
            assert float(got.header(b"x-jackline-waited") or b"0") > 0.0

    run(main())
    ledger = simulated.ledger
    assert ledger.after_wall == 0
    assert (len(ledger), ledger.useful) == (2, 1)


def test_requests_that_come_before_all_is_known_wait_for_it(
    tmp_path: Path, simulated: SimulatedProvider
) -> None:
    async def main() -> None:
        simulated.quota_wall(resets_in=3600.0)
        async with gateway(tmp_path, simulated.url) as first:
            assert (await ask(first.url, request(body=question()))).status == 429
        service = Service(config_for(tmp_path, simulated.url))
        service._build()
        await service._listener.open()
        asking = asyncio.ensure_future(ask(service.url, request(body=question())))
        await until(lambda: len(service._early) == 1)
        await service._open()
        service._let_in()
        assert (await asking).status == 429
        await service.__aexit__(None, None, None)

    run(main())
    assert len(simulated.ledger) == 1


def without_its_id(refusal: dict[str, Any]) -> dict[str, Any]:
    """What the vendor says to every call."""
    return {name: value for name, value in refusal.items() if name != "request_id"}


def test_a_wall_is_told_after_a_restart_in_the_vendors_words(
    tmp_path: Path, simulated: SimulatedProvider
) -> None:
    async def main() -> None:
        simulated.quota_wall(resets_in=7200.0)
        told = []
        for _ in range(2):
            async with gateway(tmp_path, simulated.url) as service:
                told.append(await ask(service.url, request(body=question())))
        first, second = told
        assert (first.status, second.status) == (429, 429)
        assert second.json == without_its_id(first.json)
        reset = b"anthropic-ratelimit-unified-reset"
        assert first.header(reset) == second.header(reset)
        assert first.header(b"x-jackline-resets-at") == second.header(b"x-jackline-resets-at")
        assert second.header(b"x-jackline-attempts") == b"0"

    run(main())
    assert len(simulated.ledger) == 1


def test_a_wall_of_one_upstream_says_nothing_of_another(
    tmp_path: Path, simulated: SimulatedProvider
) -> None:
    """Whoever tried something against a simulator goes on with the real vendor."""

    async def main() -> None:
        simulated.quota_wall(resets_in=7200.0)
        async with gateway(tmp_path, simulated.url) as service:
            assert (await ask(service.url, request(body=question()))).status == 429
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            assert service.status()["lanes"] == ()
            assert (await ask(service.url, request(body=question()))).status == 200

    run(main())


# --- the hardest ends -------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_killed_in_the_middle_of_traffic_it_corrupts_nothing_and_forgets_no_wall(
    tmp_path: Path, simulated: SimulatedProvider
) -> None:
    place = Place(tmp_path, simulated.url)
    seen = 0
    simulated.hang(share=0.3)
    for _ in range(3):
        with place.up() as running:
            clients = [Calling(place.url, stream=number % 2 == 0) for number in range(12)]
            before = seen
            wait_until(lambda: len(journalled(tmp_path)) >= before + 3, "some records")  # noqa: B023
            running.process.kill()
            running.process.wait()
            for client in clients:
                client.join(30.0)
        assert whole(tmp_path / "state" / "journal.db")
        assert len(journalled(tmp_path)) >= seen + 3, "what was read once is still there"
        seen = len(journalled(tmp_path))

    simulated.heal()
    simulated.quota_wall(resets_in=7200.0)
    with place.up() as running:
        first = call(place.url)
        assert first.status == 429
        wait_until(lambda: b"parked" in known(tmp_path), "the wall in the journal")
        running.process.kill()
        running.process.wait()
    asked = len(simulated.ledger)
    with place.up():
        again = [call(place.url, stream=stream) for stream in (True, False, True)]
        assert [each.status for each in again] == [429, 429, 429]
        words = without_its_id(json.loads(first.body))
        assert [json.loads(each.body) for each in again] == [words] * 3
        assert "is parked until" in place.status()["verdict"]
    assert len(simulated.ledger) == asked, "nothing is sent before the reset"
    assert whole(tmp_path / "state" / "journal.db")


def whole(database: Path) -> bool:
    with closing(sqlite3.connect(database)) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
        return bool(verdict == "ok")


def known(folder: Path) -> bytes:
    with JournalReader(folder / "state" / "journal.db") as reader:
        memory = reader.lane_memory()
    return b"" if memory is None else memory[1]


def test_a_deleted_journal_is_begun_anew_and_traffic_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            assert (await ask(service.url, request(body=question()))).status == 200
            state = tmp_path / "state"
            await until(lambda: len(journalled(tmp_path)) == 1)
            for file in state.glob("journal.db*"):
                file.unlink()
            journal = state / "journal.db"

            for _ in range(5):
                assert (await ask(service.url, request(body=question()))).status == 200
            await until(lambda: journal.exists() or service.status()["journal_ok"] is False)
            assert (await ask(service.url, request(body=question()))).status == 200

    run(main())


def test_a_journal_that_is_no_database_is_put_aside_and_nothing_stops(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "journal.db").write_bytes(b"this is no database" * 100)

    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            assert (await ask(service.url, request(body=question()))).status == 200

    run(main())
    assert list((tmp_path / "state").glob("journal.db.damaged-*"))
    assert len(journalled(tmp_path)) == 1


@pytest.mark.parametrize("memory", [b"", b"[]", b"{", b'{"lanes":{"lanes":{"a":7}},"walls":[1]}'])
def test_a_memory_that_makes_no_sense_is_left_out(tmp_path: Path, memory: bytes) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url):
            async with gateway(tmp_path, url) as service:
                await ask(service.url, request(body=question()))
            with closing(sqlite3.connect(tmp_path / "state" / "journal.db")) as database:
                database.execute("UPDATE lane_memory SET memory = ?", (memory,))
                database.commit()
            async with gateway(tmp_path, url) as service:
                assert (await ask(service.url, request(body=question()))).status == 200

    run(main())


def test_a_client_that_leaves_before_all_is_known_is_not_carried(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (scripted, url):
            service = Service(config_for(tmp_path, url))
            service._build()
            await service._listener.open()
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(service.url))
            writer.write(request(body=question()))
            reader, waiting = await asyncio.open_connection("127.0.0.1", port_of(service.url))
            waiting.write(request(body=question()))
            await until(lambda: len(service._early) == 2)
            writer.close()
            await until(lambda: any(exchange.gone for exchange in service._early))
            await service._open()
            service._let_in()
            assert (await read_answer(reader)).status == 200
            assert len(scripted.asked) == 1
            waiting.close()
            await service.__aexit__(None, None, None)

    run(main())


def test_what_is_kept_over_a_restart_is_plain_json_without_the_clients_words(
    tmp_path: Path, simulated: SimulatedProvider
) -> None:
    async def main() -> None:
        simulated.quota_wall(resets_in=7200.0)
        async with gateway(tmp_path, simulated.url) as service:
            await ask(service.url, request(body=question()))

    run(main())
    kept = json.loads(known(tmp_path))
    assert set(kept) == {"upstream", "lanes", "walls", "clients", "logins"}
    assert KEY not in json.dumps(kept), "clients are known by digests alone"
