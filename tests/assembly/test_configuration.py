"""A running gateway takes up what its file says now, and keeps what it had when that is faulty."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from jackline.assembly import Service
from jackline.clock import SystemClock
from jackline.config import Config, HomeFolders, load
from jackline.events import ServiceNoted
from jackline.journal import JournalReader
from jackline.testing import SimulatedProvider
from tests.assembly.world import (
    answered,
    ask,
    gateway,
    http,
    port_of,
    provider,
    question,
    request,
    run,
    until,
)
from tests.ports import free_port


class QuickRounds(SystemClock):
    """A clock whose rounds of a second come twenty times as often."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 20 if seconds == 1.0 else seconds)


@dataclass
class Written:
    """A gateway that lives by a file."""

    file: Path
    service: Service

    def write(self, text: str) -> None:
        self.file.write_text(text)

    @property
    def notes(self) -> tuple[str, ...]:
        notes = self.service.status()["notes"]
        assert isinstance(notes, tuple)
        return notes

    async def noted(self, words: str) -> None:
        await until(lambda: any(words in note for note in self.notes))


@asynccontextmanager
async def living_by_a_file(folder: Path, text: str, port: int | None = 0) -> AsyncIterator[Written]:
    file = folder / "jackline.toml"
    file.write_text(text)

    def read() -> Config:
        return load(
            flags={"port": port, "state": str(folder / "state"), "config": str(file)},
            environ={},
            cwd=folder,
            folders=HomeFolders(folder / "home", folder / "home"),
        )

    async with Service(read(), reload=read, clock=QuickRounds()) as service:
        yield Written(file, service)


def file_for(url: str, rest: str = "") -> str:
    return f'[[upstream]]\nurl = "{url}"\n{rest}'


def test_a_changed_hold_limit_holds_for_the_next_call(tmp_path: Path) -> None:
    async def main(simulated: SimulatedProvider) -> None:
        simulated.quota_wall(resets_in=600.0)
        text = file_for(simulated.url)
        async with living_by_a_file(tmp_path, f'{text}[hold]\nquota = "1m"\n') as written:
            url = written.service.url
            assert (await ask(url, request(body=question()))).status == 429
            written.write(f'{text}[hold]\nquota = "1h"\n')
            await written.noted("configuration read: changed: hold.quota")
            asking = asyncio.ensure_future(ask(url, request(body=question())))
            await until(lambda: written.service.status()["calls_waiting"] == 1)
            # Back again: who waits already does so by the limit of its own time.
            written.write(f'{text}[hold]\nquota = "1m"\n')
            await until(lambda: written.service.config.gateway.hold.quota == 60.0)
            assert (await ask(url, request(body=question()))).status == 429
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await until(lambda: not written.service.desk.calls)
        assert len(simulated.ledger) == 1

    with SimulatedProvider() as simulated:
        run(main(simulated))


def test_a_faulty_file_changes_nothing_and_is_told_until_it_is_cured(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url):
            good = file_for(url)
            async with living_by_a_file(tmp_path, good) as written:
                before = written.service.config
                written.write(f'{good}[hold]\nquota = "soon"\nnonsense = 1\n')
                await written.noted("the old configuration stays")
                (note,) = written.notes
                assert "hold.quota" in note
                assert "hold.nonsense" in note
                assert written.service.config is before
                assert (await ask(written.service.url, request(body=question()))).status == 200
                written.write(good)
                await until(lambda: not written.notes)

    run(main())
    with JournalReader(tmp_path / "state" / "journal.db") as reader:
        noted: list[ServiceNoted] = reader.notes(0.0)
    assert [note.what for note in noted] == ["started", "misconfigured", "stopping"]


def test_another_upstream_is_asked_by_the_calls_that_come_then(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            provider(answered("from the first")) as (first, first_url),
            provider(answered("from the second")) as (second, second_url),
            living_by_a_file(tmp_path, file_for(first_url)) as written,
        ):
            url = written.service.url
            assert b"from the first" in (await ask(url, request(body=question()))).body
            written.write(file_for(second_url))
            await written.noted("configuration read: changed: upstream.url")
            assert b"from the second" in (await ask(url, request(body=question()))).body
            relayed = await ask(url, request(b"GET", b"/v1/files"))
            assert b"from the second" in relayed.body
            assert written.service.status()["upstream"] == second_url
            assert (len(first.asked), len(second.asked)) == (1, 2)

    run(main())


def test_a_call_that_waits_at_a_wall_moves_to_an_upstream_that_is_added(tmp_path: Path) -> None:
    async def main(walled: SimulatedProvider) -> None:
        async with (
            provider(answered("from the second")) as (_, second_url),
            living_by_a_file(tmp_path, file_for(walled.url)) as written,
        ):
            url = written.service.url
            # Its key is one that its own vendor has accepted: others do not get ours.
            assert (await ask(url, request(body=question()))).status == 200
            walled.quota_wall(resets_in=600.0)
            asking = asyncio.ensure_future(ask(url, request(body=question("next"))))
            await until(lambda: written.service.status()["calls_waiting"] == 1)
            secret = tmp_path / "KEY"
            secret.write_text("sk-of-the-second")
            secret.chmod(0o600)
            second = f'name = "second"\ncredential = "file:{secret}"\n'
            written.write(file_for(walled.url) + file_for(second_url, second))
            assert b"from the second" in (await asking).body
        assert len(walled.ledger) == 2

    with SimulatedProvider() as walled:
        run(main(walled))


def test_a_wall_at_the_old_upstream_is_none_at_the_new_one(tmp_path: Path) -> None:
    async def main(simulated: SimulatedProvider) -> None:
        simulated.quota_wall(resets_in=7200.0)
        async with (
            provider(answered()) as (_, url),
            living_by_a_file(tmp_path, file_for(simulated.url)) as written,
        ):
            assert (await ask(written.service.url, request(body=question()))).status == 429
            written.write(file_for(url))
            await written.noted("upstream.url")
            assert (await ask(written.service.url, request(body=question()))).status == 200

    with SimulatedProvider() as simulated:
        run(main(simulated))


def test_new_limits_reach_lanes_that_are_open_and_calls_that_wait_for_them(tmp_path: Path) -> None:
    async def main(simulated: SimulatedProvider) -> None:
        text = file_for(simulated.url)
        async with living_by_a_file(tmp_path, f"{text}limits.parallel = 1\n") as written:
            url = written.service.url
            simulated.hang()
            first, second = (
                asyncio.ensure_future(ask(url, request(body=question(f"call {n}"))))
                for n in range(2)
            )
            await until(lambda: written.service.status()["calls_waiting"] == 1)
            written.write(f"{text}limits.parallel = 2\n")
            await until(lambda: written.service.status()["calls_in_flight"] == 2)
            first.cancel()
            second.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
            await until(lambda: not written.service.desk.calls)

    with SimulatedProvider() as simulated:
        run(main(simulated))


def test_another_life_of_prompt_caches_reaches_lanes_that_are_open(tmp_path: Path) -> None:
    def marked(text: str) -> bytes:
        block = {"type": "text", "text": text * 2000, "cache_control": {"type": "ephemeral"}}
        return json.dumps({**json.loads(question()), "system": [block]}).encode()

    async def main(simulated: SimulatedProvider) -> None:
        text = file_for(simulated.url)
        async with living_by_a_file(tmp_path, text) as written:
            url = written.service.url
            assert (await ask(url, request(body=marked("before ")))).status == 200
            written.write(f'{text}cache_ttl = "1h"\n')
            await written.noted("upstream.cache_ttl")
            assert (await ask(url, request(body=marked("after ")))).status == 200
            written.write(f'{text}cache_ttl = "client"\n[cache.tags]\nnight = "1h"\n')
            await written.noted("cache.tags")
            assert (await ask(url, request(body=marked("by day ")))).status == 200
            night = request(b"POST", b"/t/night/v1/messages", marked("by night "))
            assert (await ask(url, night)).status == 200
        lives = [
            (entry.cache_write_5m_tokens > 0, entry.cache_write_1h_tokens > 0)
            for entry in simulated.ledger
        ]
        assert lives == [(True, False), (False, True), (True, False), (False, True)]

    with SimulatedProvider() as simulated:
        run(main(simulated))


def test_an_upstream_that_cannot_be_made_changes_nothing_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url):
            good = file_for(url)
            async with living_by_a_file(tmp_path, good) as written:
                before = written.service.config
                # What the file says is in order; only the way there is not.
                monkeypatch.setenv("HTTPS_PROXY", "http://[nonsense")
                far = '[[upstream]]\nname = "far"\nurl = "https://far.example"\n'
                written.write(f'{good}{far}[hold]\nquota = "1m"\n')
                await written.noted("the old configuration stays")
                assert "proxy" in written.notes[0]
                assert written.service.config is before
                assert written.service.desk.settings is before.gateway
                assert (await ask(written.service.url, request(body=question()))).status == 200
                monkeypatch.delenv("HTTPS_PROXY")
                written.write(f'{good}{far}[hold]\nquota = "2m"\n')
                await written.noted("configuration read")
                assert [each.name for each in written.service.desk.settings.upstreams] == [
                    "anthropic",
                    "far",
                ]

    run(main())


def test_a_changed_port_is_told_to_need_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url):
            port = free_port()
            text = file_for(url, f"[listen]\nport = {port}\n")
            async with living_by_a_file(tmp_path, text, port=None) as written:
                written.write(file_for(url, f"[listen]\nport = {port + 1}\n"))
                await written.noted("needs a restart: listen.port")
                assert port_of(written.service.url) == port
                assert (await ask(written.service.url, request(body=question()))).status == 200

    run(main())


def test_a_lower_limit_on_bodies_holds_for_the_next_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            provider(http(200, b"{}", (b"content-type", b"application/json"))) as (_, url),
            living_by_a_file(tmp_path, file_for(url)) as written,
        ):
            body = b"x" * 5000
            relayed = request(b"POST", b"/v1/files", body)
            assert (await ask(written.service.url, relayed)).status == 200
            written.write(file_for(url, '[limits]\nbody = "1KB"\n'))
            await written.noted("limits.body")
            assert (await ask(written.service.url, relayed)).status == 413

    run(main())


def test_a_gateway_without_a_file_takes_up_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            assert service.status()["notes"] == ()

    run(main())
