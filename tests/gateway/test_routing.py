"""Who is let in where, and what is said while the gateway stops."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest

from jackline.assembly import Service, StateDir
from tests.assembly.world import (
    Got,
    Pair,
    answered,
    ask,
    gateway,
    port_of,
    provider,
    question,
    read_answer,
    request,
    run,
    until,
)
from tests.planted import TOKEN
from tests.upstream.loopback import Server, Wire

STATUS, STOP = b"/_jackline/status", b"/_jackline/stop"


async def told(service: Service, method: bytes, path: bytes, *headers: Pair) -> Got:
    return await ask(service.url, request(method, path, b"", *headers, key=None))


def control_token(folder: Path) -> bytes:
    running = StateDir(folder / "state").running()
    assert running is not None
    return running.token.encode()


@pytest.mark.parametrize(
    ("host", "headers"),
    [
        (b"evil.example", ()),
        (b"evil.example:8766", ()),
        (b"127.0.0.1.evil.example", ()),
        (b"127.0.0.1", ((b"Origin", b"http://evil.example"),)),
        (b"127.0.0.1", ((b"Origin", b"null"),)),
        (b"127.0.0.1", ((b"Sec-Fetch-Site", b"cross-site"),)),
    ],
)
@pytest.mark.parametrize("path", [STATUS, b"/", b"/healthz", b"/readyz"])
def test_strangers_learn_nothing_on_control_paths(
    tmp_path: Path, path: bytes, host: bytes, headers: tuple[Pair, ...]
) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            got = await ask(service.url, request(b"GET", path, b"", *headers, host=host, key=None))
            assert got.status == 403
            assert set(got.json) == {"type", "error"}

    run(main())


def test_an_order_needs_the_token_even_from_this_machine(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            right = (b"x-jackline-control", control_token(tmp_path))
            for headers in ((), ((b"x-jackline-control", b""),), ((b"x-jackline-control", b"no"),)):
                assert (await told(service, b"POST", STOP, *headers)).status == 401
            assert (await told(service, b"GET", STOP, right)).status == 405
            foreign = request(b"POST", STOP, b"", right, host=b"evil.example", key=None)
            assert (await ask(service.url, foreign)).status == 403
            assert not service.stop_asked.is_set()
            assert (await told(service, b"POST", STOP, right)).json == {"stopping": True}
            assert service.stop_asked.is_set()

    run(main())


def test_an_unknown_control_path_is_never_the_vendors(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (scripted, url), gateway(tmp_path, url) as service:
            for method in (b"GET", b"POST", b"DELETE"):
                assert (await told(service, method, b"/_jackline/nonsense")).status == 404
            assert scripted.asked == []

    run(main())


def test_the_picture_of_now_is_one_document_that_nobody_keeps(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9") as service:
            got = await told(service, b"GET", STATUS)
            assert got.header(b"cache-control") == b"no-store"
            assert got.json["schema"] == "jackline.status/1"
            assert got.json["verdict"].startswith("Nothing is under way.")
            assert (await told(service, b"GET", b"/healthz")).json == {"ok": True}
            assert (await told(service, b"GET", b"/readyz")).json == {"ok": True}

    run(main())


def test_with_a_token_every_path_asks_for_it_except_our_own_commands(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            provider(answered()) as (scripted, url),
            gateway(tmp_path, url, token=TOKEN) as service,
        ):
            control = (b"x-jackline-control", control_token(tmp_path))
            for path in (STATUS, b"/", b"/healthz"):
                assert (await told(service, b"GET", path)).status == 401
                assert (await told(service, b"GET", path, control)).status == 200
            for given in (None, b"wrong", control[1]):
                headers = () if given is None else ((b"x-jackline-token", given), control)
                raw = request(b"POST", b"/v1/messages", question(), *headers)
                assert (await ask(service.url, raw)).status == 401
            assert scripted.asked == []
            right = (b"X-Jackline-Token", TOKEN.encode())
            raw = request(b"POST", b"/v1/messages", question(), right)
            assert (await ask(service.url, raw)).status == 200
            assert scripted.asked[0].header(b"x-jackline-token") is None

    run(main())


def test_what_it_leaves_for_the_users_commands_is_for_the_user_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with gateway(tmp_path, "http://127.0.0.1:9"):
            files = list((tmp_path / "state").iterdir())
            assert {"gateway.json", "salt", "journal.db"} <= {file.name for file in files}
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
            assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
        assert not (tmp_path / "state" / "gateway.json").exists()

    run(main())


def test_while_it_stops_running_calls_finish_and_new_ones_are_answered_retry_later(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def serve(wire: Wire) -> None:
            await wire.request()
            asked.set()
            await go_on.wait()
            await wire.say(answered())

        async with Server(serve) as server:
            async with gateway(tmp_path, server.url) as service:
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(service.url))
                writer.write(request(body=question()))
                await asyncio.wait_for(asked.wait(), 30.0)

                async def knock() -> None:
                    await until(lambda: service._listener.draining)
                    for target in (b"/v1/messages", b"/v1/files"):
                        got = await ask(service.url, request(b"POST", target, question()))
                        assert got.status == 503
                        assert int(got.header(b"retry-after") or b"0") > 0
                        assert got.json["error"]["type"] == "overloaded_error"
                    ready = await told(service, b"GET", b"/readyz")
                    assert (ready.status, ready.json) == (503, {"ok": False})
                    go_on.set()

                knocking = asyncio.ensure_future(knock())
            await knocking
            got = await read_answer(reader)
            assert got.status == 200
            assert json.loads(got.body)["type"] == "message"
            writer.close()
            await writer.wait_closed()

    run(main())


def test_who_does_not_want_to_wait_for_running_calls_cuts_them(tmp_path: Path) -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def serve(wire: Wire) -> None:
            await wire.request()
            asked.set()
            await wire.reader.read()

        async with Server(serve) as server:
            async with gateway(tmp_path, server.url) as service:
                reader, writer = await asyncio.open_connection("127.0.0.1", port_of(service.url))
                writer.write(request(body=question()))
                await asyncio.wait_for(asked.wait(), 30.0)

                async def cut() -> None:
                    await until(lambda: service._listener.draining)
                    service.cut_short()

                cutting = asyncio.ensure_future(cut())
            await cutting
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await read_answer(reader)
            writer.close()

    run(main())
