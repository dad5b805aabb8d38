"""No prompt, answer, key or token stands in anything that a gateway writes or says of itself."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackline.cli.foreground import log_to
from tests.assembly.world import (
    Pair,
    answered,
    ask,
    gateway,
    http,
    provider,
    question,
    request,
    run,
    until,
)
from tests.cli.gateways import Place
from tests.gateway.test_wire import OPENING, START_OF_STREAM, block, event, streamed
from tests.planted import (
    ANSWER,
    BEARER,
    KEPT_BY_USERS,
    KEY,
    PROMPT,
    TOKEN,
    TOOL_INPUT,
    WORD,
    _leaks_in_rows,
    leaks,
)
from tests.upstream.loopback import Server, Wire

JSON = (b"content-type", b"application/json")


def error(status: int, kind: str, message: str, *headers: Pair) -> bytes:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    return http(status, body, JSON, *headers)


SPOKEN = streamed(
    OPENING,
    *block(0, "text", {"text": ""}, {"type": "text_delta", "text": ANSWER}),
    *block(
        1,
        "tool_use",
        {"id": "toolu_1", "name": "Bash", "input": {}},
        {"type": "input_json_delta", "partial_json": json.dumps({"command": TOOL_INPUT})},
    ),
    event({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}),
    event({"type": "message_stop"}),
)
QUOTED = f"invalid x-api-key {KEY} for the prompt {PROMPT}"
THROTTLED = error(
    429,
    "rate_limit_error",
    f"Server is temporarily limiting requests (not your usage limit) {KEY}",
    (b"request-id", b"req_1"),
    (b"set-cookie", b"session=" + WORD.encode()),
)
BROKEN = START_OF_STREAM + OPENING
# The last of them is met by the call behind it, which then waits no longer than it wants to.
WALL = error(
    429,
    "rate_limit_error",
    f"This request would exceed your account's rate limit. Please try again later. {KEY}",
    (b"anthropic-ratelimit-unified-status", b"rejected"),
    (b"anthropic-ratelimit-unified-representative-claim", b"five_hour"),
    (b"anthropic-ratelimit-unified-reset", b"%d" % (time.time() + 30 * 86400)),
    (b"set-cookie", b"session=" + WORD.encode()),
)


def raw(target: bytes = b"/v1/messages", *, stream: bool = False) -> bytes:
    tools = [{"name": "t", "input_schema": {"x": TOOL_INPUT}}]
    return request(
        b"POST",
        target,
        question(stream=stream, metadata={"user_id": PROMPT}, tools=tools),
        (b"authorization", b"Bearer " + BEARER.encode()),
        (b"x-jackline-token", TOKEN.encode()),
        (b"cookie", b"session=" + WORD.encode()),
    )


@pytest.fixture
def logged(tmp_path: Path) -> Iterator[Path]:
    """The log of this process in a file, as `jackline up` writes it."""
    before = {name: logging.getLogger(name) for name in ("jackline", "asyncio")}
    kept = {n: (log.handlers, log.propagate, log.level) for n, log in before.items()}
    path = tmp_path / "log.jsonl"
    with path.open("w") as stream:
        log_to(stream, "debug")
        yield path
    for name, log in before.items():
        log.handlers, log.propagate, level = kept[name]
        log.setLevel(level)


def check(folder: Path, *told: object) -> None:
    assert leaks(folder) == []
    for each in told:
        assert WORD not in str(each)


async def cut_off(wire: Wire, answers: list[bytes]) -> None:
    """Say these answers one after the other; a stream that was only begun is cut."""
    while await wire.request():
        answer = answers.pop(0)
        await wire.say(answer)
        if answer == BROKEN:
            wire.reset()
            return


def test_nothing_of_the_traffic_is_written_or_told(tmp_path: Path, logged: Path) -> None:
    told: list[object] = []

    async def main() -> None:
        answers = [
            answered(),
            SPOKEN,
            error(400, "invalid_request_error", QUOTED),
            error(401, "authentication_error", QUOTED),
            error(404, "not_found_error", QUOTED),
            http(200, f"<html>{ANSWER}</html>".encode(), (b"content-type", b"text/html")),
            THROTTLED,
            answered(),
            BROKEN,
            SPOKEN,
        ]

        async def serve(wire: Wire) -> None:
            await cut_off(wire, answers)

        async with Server(serve) as server, gateway(tmp_path, server.url, token=TOKEN) as service:
            for target, stream in (
                (b"/v1/messages", False),
                (b"/t/night/v1/messages", True),
                (b"/v1/messages", True),
                (b"/v1/messages", False),
                (b"/v1/messages/count_tokens", False),
                (b"/v1/files?x=1", False),
                (b"/v1/messages", False),
                (b"/v1/messages", True),
            ):
                await ask(service.url, raw(target, stream=stream))
                told.append(service.status())
            assert answers == []
            told.extend((repr(service.config), repr(service), repr(service.config.gateway)))
            await asyncio.to_thread(service._journal.flush)
            check(tmp_path)

    run(main())
    check(tmp_path, *told)
    assert "throttle" in logged.read_text()


def test_nothing_of_a_walls_words_is_written_that_could_be_a_secret(
    tmp_path: Path, logged: Path
) -> None:
    """They are kept over a restart: without keys that they quote, and without cookies."""

    async def main() -> None:
        async with provider(WALL) as (_, url):
            # After a restart in our own words: the vendor's may hold anything.
            for words in ("This request would exceed", "You've hit your session limit"):
                async with gateway(tmp_path, url) as service:
                    got = await ask(service.url, raw())
                    assert got.status == 429
                    assert got.json["error"]["message"].startswith(words)
                    check(tmp_path, service.status())

    run(main())
    check(tmp_path)
    assert "is parked until" in logged.read_text()


def test_a_bug_is_logged_without_the_data_that_it_stumbled_over(
    tmp_path: Path, logged: Path
) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            service.desk.take = stumble  # type: ignore[method-assign,assignment]
            got = await ask(service.url, raw())
            assert (got.status, got.json["error"]["type"]) == (500, "api_error")
            assert WORD.encode() not in got.body
            asyncio.get_running_loop().call_soon(stumble)
            service._keep(fall_over())
            await until(lambda: "part of the gateway" in logged.read_text())

    def stumble(*_: object) -> None:
        try:
            int(PROMPT)
        except ValueError as cause:
            raise KeyError(KEY) from cause

    async def fall_over() -> None:
        raise ValueError(ANSWER)

    run(main())
    text = logged.read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert any("KeyError" in record.get("trace", "") for record in records)
    places = [record for record in records if "stumble" in record.get("trace", "")]
    assert len(places) == 2, "where it happened: in a request, and in the event loop's own round"
    check(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_processes_and_their_errors_tell_nothing_either(tmp_path: Path) -> None:
    """`up` with everything switched on that makes it talk, and the verbs beside it."""

    async def main() -> None:
        answers = [answered(), error(400, "invalid_request_error", QUOTED), THROTTLED, SPOKEN, WALL]
        async with provider(*answers) as (_, url):
            await asyncio.to_thread(verbs, url)

    said: list[str] = []

    def verbs(url: str) -> None:
        place = Place(tmp_path, url)
        place.more |= {
            "JACKLINE_DEBUG": "1",
            "JACKLINE_LOG_LEVEL": "debug",
            "JACKLINE_LISTEN_TOKEN": "env:GATE_TOKEN",
            "GATE_TOKEN": TOKEN,
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_AUTH_TOKEN": BEARER,
        }
        with place.up() as gateway:
            for stream in (False, False, True, False):
                run(ask(place.url, raw(stream=stream)))
            for verb in (["status"], ["status", "--json"], ["up"], ["env"], ["config", "show"]):
                answer = place.jackline(*verb)
                said.extend((answer.out, answer.err))
            gateway.interrupt()
            assert gateway.code() == 0
            said.append(gateway.output)
            assert "throttle" in gateway.output

    run(main())
    check(tmp_path, *said)
    assert any("jackline.status/1" in each for each in said)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("JACKLINE_LISTEN_TOKEN", TOKEN),
        ("JACKLINE_UPSTREAM", f"https://user:{WORD}@example.com"),
        ("JACKLINE_UPSTREAM", f"ftp://example.com/?key={KEY}"),
    ],
    ids=["token", "password", "key"],
)
def test_a_secret_in_the_wrong_place_is_refused_without_being_repeated(
    tmp_path: Path, variable: str, value: str
) -> None:
    place = Place(tmp_path, "http://127.0.0.1:9")
    place.more[variable] = value
    answer = place.jackline("up")
    assert answer.code == 2
    assert variable in answer.err
    assert WORD not in answer.err + answer.out


def test_a_leak_in_any_test_fails_the_whole_run(tmp_path: Path) -> None:
    inner = tmp_path / KEPT_BY_USERS
    inner.mkdir()
    (inner / "pytest.ini").write_text("[pytest]\n")
    (inner / "test_leaky.py").write_text(
        "from tests.planted import KEY\n"
        "def test_leaks(tmp_path):\n"
        "    (tmp_path / 'gateway.log').write_text('said ' + KEY)\n"
        "def test_does_not(tmp_path):\n"
        "    (tmp_path / 'gateway.log').write_text('said nothing')\n"
    )
    root = Path(__file__).parent.parent
    for workers in ([], ["-n", "1"]):
        words = ["-q", "-p", "tests.leak_guard", "-p", "no:cacheprovider", *workers]
        base = f"--basetemp={inner / 'run'}"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, base, "-c", inner / "pytest.ini", inner],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        assert "2 passed" in done.stdout
        assert "planted secrets were written down" in done.stdout
        assert "test_leaks0" in done.stdout
        assert "test_does_not" not in done.stdout


def test_a_database_that_has_gone_since_it_was_listed_is_no_leak_and_is_not_made_anew(
    tmp_path: Path,
) -> None:
    assert not _leaks_in_rows(tmp_path / "journal.db")
    assert not _leaks_in_rows(tmp_path / "gone" / "journal.db")
    assert list(tmp_path.iterdir()) == []
