"""The page's files, its stream and its requests, over real sockets of a real gateway."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jackline.assembly import Service
from jackline.control.open_documents import MOST_AT_ONCE, OpenDocuments
from jackline.dashboard import handler
from jackline.dashboard.feed import MOST_WATCHERS
from jackline.dashboard.handler import DashboardHandler, PageFiles
from jackline.events import CallEnded
from jackline.flows.records import (
    CallKind,
    CallRecord,
    CallState,
    NoteRecord,
    ResourceRecord,
    ResourceState,
    RunRecord,
)
from jackline.flows.store import open_run_store, run_store_url
from jackline.flows.store.sqlite import SqliteRunStore
from jackline.journal import JournalReader
from tests.assembly.world import answered as answer_of_provider
from tests.assembly.world import (
    ask,
    config_for,
    gateway,
    port_of,
    question,
    request,
    run,
    until,
)
from tests.assembly.world import provider as scripted
from tests.dashboard.fleets import merged
from tests.planted import ANSWER, KEY, PROMPT

HTML = (b"Accept", b"text/html,application/xhtml+xml")
SESSION = (b"x-claude-code-session-id", b"session-1")
FROM_PAGE = (b"Sec-Fetch-Site", b"same-origin")


class Stream:
    """One open page, as far as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def received(self) -> dict[str, Any]:
        """The next message."""
        while True:
            line = await asyncio.wait_for(self._reader.readline(), 120)
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                result: dict[str, Any] = json.loads(line[6:])
                return result

    async def until(self, complete: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Everything received, once it is what it should be: runs are read now and then."""
        document: dict[str, Any] = {}
        while not complete(document):
            parts = {name: each for name, each in (await self.received()).items() if _is_part(each)}
            document = {name: dict(part) for name, part in merged(document, parts).items()}
        return document

    def leave(self) -> None:
        self._writer.transport.abort()


def _is_part(result: object) -> bool:
    return isinstance(result, dict)


@asynccontextmanager
async def watching(url: str) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url), limit=1 << 26)
    try:
        writer.write(request(b"GET", b"/_jackline/feed", key=None))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head
        assert b"text/event-stream" in head
        yield Stream(reader, writer)
    finally:
        writer.transport.abort()


def face(service: Service) -> DashboardHandler:
    return service._page


def order(path: bytes, body: object, token: str | None, *more: tuple[bytes, bytes]) -> bytes:
    headers = [*more] if token is None else [(b"x-jackline-control", token.encode()), *more]
    return request(b"POST", path, json.dumps(body).encode(), *headers, key=None)


def test_browsers_get_the_page_and_all_others_what_they_got_before(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            page = await ask(service.url, request(b"GET", b"/", b"", HTML, key=None))
            assert page.status == 200
            assert page.body.startswith(b"<!doctype html>")
            hello = await ask(service.url, request(b"GET", b"/", key=None))
            assert "jackline" in hello.json

    run(main())


def test_the_page_may_load_and_run_nothing_but_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            page = await ask(service.url, request(b"GET", b"/", b"", HTML, key=None))
            policy = page.header(b"content-security-policy") or b""
            assert policy.startswith(b"default-src 'self';")
            assert b"unsafe" not in policy
            assert b"http" not in policy
            for name in (b"app.js", b"style.css", b"mark.svg"):
                path = b"/_jackline/page/" + name
                file = await ask(service.url, request(b"GET", path, key=None))
                assert file.status == 200, name
                assert file.header(b"x-content-type-options") == b"nosniff"
            for path in (b"/_jackline/page/../face.py", b"/_jackline/page/", b"/_jackline/page/x"):
                got = await ask(service.url, request(b"GET", path, key=None))
                assert got.status in (400, 404), path

    run(main())


def test_the_whole_page_is_at_most_64_kb_and_names_no_other_place() -> None:
    files = PageFiles()
    assert files.size <= 112_000
    for name, file in files._files.items():
        text = file.read_text()
        text = text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, name
        assert "https://" not in text, name
        assert "innerHTML" not in text, name


def test_other_sites_and_other_names_see_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            for headers, host in (
                ([(b"Origin", b"http://evil.test")], b"127.0.0.1"),
                ([(b"Sec-Fetch-Site", b"cross-site")], b"127.0.0.1"),
                ([], b"evil.test"),
            ):
                raw = request(b"GET", b"/_jackline/feed", b"", *headers, key=None, host=host)
                assert (await ask(service.url, raw)).status == 403

    run(main())


def test_a_stream_begins_with_all_there_is_then_sends_what_changes(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            scripted(answer_of_provider()) as (_, upstream),
            gateway(tmp_path, upstream) as service,
        ):
            async with watching(service.url) as stream:
                first = await stream.received()
                assert first["schema"] == "jackline.board/1"
                assert first["head"]["verdict"] == service.status()["verdict"]
                await ask(service.url, request(b"POST", b"/v1/messages", question(), SESSION))
                result = await stream.received()
                while "agents" not in result:
                    assert "schema" not in result
                    result = await stream.received()
                assert result["agents"]["session-1|"]["calls"] == 1
            async with watching(service.url) as other:
                assert (await other.received())["schema"]
                assert "session-1|" in (await other.received())["agents"]

    run(main())


def test_nothing_secret_is_reported(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            scripted(answer_of_provider()) as (_, upstream),
            gateway(tmp_path, upstream) as service,
        ):
            await ask(service.url, request(b"POST", b"/v1/messages", question(), SESSION))
            async with watching(service.url) as stream:
                result = json.dumps([await stream.received(), await stream.received()])
            agent = request(b"GET", b"/_jackline/agent?session=session-1&agent=", key=None)
            await until(lambda: service.desk.counts.outcomes.get("answered", 0) == 1)
            result += (await ask(service.url, agent)).body.decode()
            for secret in (KEY, PROMPT, ANSWER, service._token):
                assert secret not in result

    run(main())


def test_more_pages_than_can_be_kept_are_refused_with_a_reason(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            streams = []
            for _ in range(MOST_WATCHERS):
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(service.url))
                writer.write(request(b"GET", b"/_jackline/feed", key=None))
                await reader.readuntil(b"\r\n\r\n")
                streams.append(writer)
            more = await ask(service.url, request(b"GET", b"/_jackline/feed", key=None))
            assert more.status == 503
            assert b"close one" in more.body
            for writer in streams:
                writer.transport.abort()
            await until(lambda: face(service)._feed.watchers == 0)

    run(main())


def test_orders_to_runs_need_the_token(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            path = b"/_jackline/run/cancel"
            for token in (None, "wrong"):
                got = await ask(service.url, order(path, {"run": "x"}, token))
                assert got.status == 401
            known = await ask(service.url, order(path, {"run": "x"}, service._token))
            assert known.status == 400
            assert known.json["error"]["hint"] == "`jackline ls` lists them"
            for run_id in ("--help", "", 7, "a b"):
                got = await ask(service.url, order(path, {"run": run_id}, service._token))
                assert got.status == 400
            assert (await ask(service.url, request(b"GET", path, key=None))).status == 405

    run(main())


@pytest.mark.parametrize(
    "path", [b"/_jackline/pause", b"/_jackline/drain", b"/_jackline/run/cancel", b"/_jackline/use"]
)
def test_a_read_only_service_takes_no_order_from_a_page_even_with_the_token(
    tmp_path: Path, path: bytes
) -> None:
    async def main() -> None:
        config = config_for(tmp_path, "http://127.0.0.1:9")
        listen = replace(config.gateway.listen, read_only=True)
        config = replace(config, gateway=replace(config.gateway, listen=listen))
        async with Service(config) as service:
            got = await ask(service.url, order(path, {"lane": "*"}, service._token, FROM_PAGE))
            assert got.status == 403
            assert "--read-only" in got.json["error"]["message"]
            # A command is no page.
            got = await ask(service.url, order(path, {"lane": "*"}, service._token))
            assert got.status == 400
            async with watching(service.url) as stream:
                assert (await stream.received())["head"]["read_only"] is True

    run(main())


async def kept_run(folder: Path) -> None:
    engine = open_run_store(run_store_url(folder / "state"))
    record = RunRecord("run1", "review", "", b'{"question": "asked-words"}', tokens=120)
    claim = await engine.create(record, owner="here:1:a", lease=60)
    done = CallRecord("run1", "k1", 0, CallKind.AGENT, "plan", "scope", "task-1", CallState.DONE)
    await engine.begin_call(claim, replace(done, state=CallState.RUNNING))
    await engine.end_call(claim, replace(done, value=b'"answered-words"', tokens=120))
    await engine.note("run1", 5.0, "warning", "", {"says": "four fifths are used"})
    await engine.save_resource(
        ResourceRecord("run1", "vm-1", "", "true", False, None, ResourceState.HELD, 5.0)
    )
    await engine.close()


def test_runs_are_reported_without_arguments_and_answers(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            await kept_run(tmp_path)
            async with watching(service.url) as stream:
                first = await stream.until(
                    lambda result: "run1|vm-1" in result.get("resources", {})
                )
                result = first["runs"]["run1"]
                assert (result["flow"], result["done"], result["tokens"]) == ("review", 1, 120)
                assert [call["label"] for call in result["calls"]] == ["plan"]
                assert first["labels"] == {"task-1": "plan"}
                assert first["resources"]["run1|vm-1"]["state"] == "held"
                assert any("four fifths" in each["what"] for each in first["events"].values())
            page = await ask(service.url, request(b"GET", b"/_jackline/run?id=run1", key=None))
            assert page.json["calls"][0]["label"] == "plan"
            assert page.json["notes"][-1]["says"] == "four fifths are used"
            for words in ("asked-words", "answered-words"):
                assert words not in json.dumps([first, page.json])
            none = await ask(service.url, request(b"GET", b"/_jackline/run?id=no", key=None))
            assert none.status == 404
            assert "jackline ls" in none.json["error"]["hint"]

    run(main())


def _of_run1(result: dict[str, Any]) -> dict[str, Any]:
    run1: dict[str, Any] = result.get("runs", {}).get("run1", {})
    return run1


def test_a_run_is_cancelled_by_order_and_the_page_shows_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            engine = open_run_store(run_store_url(tmp_path / "state"))
            claim = await engine.create(RunRecord("run1", "f", "", b"{}"), owner="x", lease=60)
            record = await engine.run("run1")
            assert record is not None
            await engine.let_go(claim, record)
            await engine.close()
            async with watching(service.url) as stream:
                await stream.until(lambda result: _of_run1(result).get("can") == ["cancel"])
                got = await ask(
                    service.url, order(b"/_jackline/run/cancel", {"run": "run1"}, service._token)
                )
                assert got.status == 200, got.body
                assert "cancelled" in got.json["says"]
                await stream.until(lambda result: _of_run1(result).get("state") == "cancelled")

    run(main())


# --- an agent's document takes long to read ------------------------------------------------------


class HeldReads:
    """Counts the reads of the journal, and holds them until `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.go = threading.Event()
        read = JournalReader.calls

        def held(
            reader: JournalReader, since: float, until: float, limit: int, session: str = ""
        ) -> list[CallEnded]:
            self.begun.append(session)
            assert self.go.wait(60)
            return read(reader, since, until, limit, session)

        monkeypatch.setattr(JournalReader, "calls", held)


def of_agent(session: str) -> bytes:
    path = f"/_jackline/agent?session={session}&agent=".encode()
    return request(b"GET", path, key=None)


def documents_of(service: Service) -> OpenDocuments:
    return next(each for each in service._router._handlers if isinstance(each, OpenDocuments))


def test_work_whose_client_has_left_is_dropped_and_piles_up_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        made: list[object] = []
        document = handler.agent_document

        def counted(*parts: Any) -> bytes:
            made.append(parts)
            return document(*parts)

        monkeypatch.setattr(handler, "agent_document", counted)
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            reads = HeldReads(monkeypatch)
            writers = []
            for number in range(30):
                _, writer = await asyncio.open_connection("127.0.0.1", port_of(service.url))
                writer.write(of_agent(f"s{number}"))
                writers.append(writer)
            await until(lambda: len(reads.begun) == MOST_AT_ONCE)
            reading = documents_of(service)._makings
            await until(lambda: all(each.is_wanted() for each in reading.values()))
            for writer in writers:
                writer.transport.abort()
            await until(lambda: not any(each.is_wanted() for each in reading.values()))
            reads.go.set()
            await until(lambda: not reading)
            assert made == []
            assert len(reads.begun) == MOST_AT_ONCE
            assert (await ask(service.url, of_agent("s0"))).status == 200
            assert len(made) == 1

    run(main())


def test_nothing_of_a_run_is_read_on_for_clients_that_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them got the whole run, megabytes, though nobody was there any more."""

    async def main() -> None:
        steps: list[str] = []
        go = asyncio.Event()
        calls, notes = SqliteRunStore.calls, SqliteRunStore.notes

        async def held_calls(store: SqliteRunStore, run_id: str) -> Sequence[CallRecord]:
            steps.append("calls")
            await go.wait()
            return await calls(store, run_id)

        async def counted_notes(
            store: SqliteRunStore, run_id: str, *, after: int = 0
        ) -> Sequence[NoteRecord]:
            steps.append("notes")
            return await notes(store, run_id, after=after)

        await kept_run(tmp_path)
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            await service._flow_book.look()
            monkeypatch.setattr(SqliteRunStore, "calls", held_calls)
            monkeypatch.setattr(SqliteRunStore, "notes", counted_notes)
            path = request(b"GET", b"/_jackline/run?id=run1", key=None)
            writers = []
            for _ in range(50):
                _, writer = await asyncio.open_connection("127.0.0.1", port_of(service.url))
                writer.write(path)
                writers.append(writer)
            making = documents_of(service)._makings
            await until(lambda: sum(len(each.waiting) for each in making.values()) == 50)
            assert steps == ["calls"]
            for writer in writers:
                writer.transport.abort()
            await until(lambda: not any(each.is_wanted() for each in making.values()))
            go.set()
            await until(lambda: not making)
            assert steps == ["calls"]
            assert (await ask(service.url, path)).json["run"] == "run1"

    run(main())


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ("agent_document", b"/_jackline/agent?session=s0&agent="),
        ("whole_run_document", b"/_jackline/run?id=run1"),
    ],
)
def test_large_documents_are_made_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: str, path: bytes
) -> None:
    async def main() -> None:
        made_in: list[int] = []
        make = getattr(handler, document)

        def watched(*parts: Any) -> bytes:
            made_in.append(threading.get_ident())
            made: bytes = make(*parts)
            return made

        monkeypatch.setattr(handler, document, watched)
        await kept_run(tmp_path)
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            assert (await ask(service.url, request(b"GET", path, key=None))).status == 200
        assert made_in
        assert threading.get_ident() not in made_in

    run(main())
