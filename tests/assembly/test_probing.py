"""The doctor sees broken names, certificates, clocks, proxies and pages for what they are."""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from jackline import event_loop
from jackline.clock import SystemClock
from jackline.control.doctor import (
    Finding,
    FindingLevel,
    Reached,
    clock_finding,
)
from jackline.control.probes import credential_problem, is_port_taken, look_at_state, reach
from jackline.errors import UsageError
from jackline.journal import Journal
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.state_dir import StateDir
from tests.ports import free_port
from tests.upstream.loopback import Server, Wire, answering

CLOCK = SystemClock()
SECRET = "sk-ant-not-to-be-shown-0123456789"  # noqa: S105 -- to look for it


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def models(*headers: str) -> bytes:
    return answer(b'{"data": [{"id": "claude-opus-4-8"}, {"id": "b"}]}', "200 OK", *headers)


ANTHROPIC_401 = answer(
    b'{"type": "error", "error": {"type": "authentication_error", "message": "x-api-key header is'
    b' required"}}',
    "401 Unauthorized",
)
PORTAL = answer(b"<html><head><title>Sign in to network</title></head></html>", "200 OK")
ELSEWHERE = answer(b"", "302 Found", "Location: http://login.cafe.test/")


def run(main: Coroutine[object, object, Reached]) -> Reached:
    return event_loop.run(main)


def seen(answered: bytes, **more: Any) -> Reached:
    async def main() -> Reached:
        async with Server(answering(answered)) as server:
            return await reach(UpstreamSettings(url=server.url, **more), {}, CLOCK)

    return run(main())


def findings(reached: Reached) -> dict[str, Finding]:
    told = reached.findings(datetime.now(UTC))
    for finding in told:
        assert SECRET not in repr(finding)
        assert finding.mark is FindingLevel.OK or finding.fix, (
            "whatever is wrong comes with its fix"
        )
    return {finding.check: finding for finding in told}


@pytest.mark.parametrize(
    ("answered", "mark", "words"),
    [
        (models(), FindingLevel.OK, "answers, 2 models"),
        (ANTHROPIC_401, FindingLevel.OK, "wants a credential"),
        (answer(b'{"error": "no"}', "404 Not Found"), FindingLevel.OK, "answers"),
        (PORTAL, FindingLevel.FAIL, "a web page answers"),
        (ELSEWHERE, FindingLevel.FAIL, "a web page answers"),
        (answer(b"", "503 Unavailable"), FindingLevel.FAIL, "status 503"),
        (
            answer(b'{"error": "slow down"}', "429 Too Many"),
            FindingLevel.WARN,
            "limits this account",
        ),
    ],
)
def test_an_upstream_is_judged_by_what_answers(
    answered: bytes, mark: FindingLevel, words: str
) -> None:
    finding = findings(seen(answered))["upstream anthropic"]
    assert finding.mark is mark
    assert words in finding.says


def test_a_key_that_is_refused_is_told_and_not_shown() -> None:
    finding = findings(seen(ANTHROPIC_401, credential=Credential.API_KEY, secret=SECRET))
    assert finding["upstream anthropic"].mark is FindingLevel.FAIL
    assert "refuses the credential" in finding["upstream anthropic"].says


def test_the_key_goes_along_and_only_models_are_asked_for() -> None:
    asked: list[bytes] = []

    async def handler(wire: Wire) -> None:
        asked.append(await wire.request())
        await wire.say(models())

    async def main() -> Reached:
        async with Server(handler) as server:
            settings = UpstreamSettings(
                url=f"{server.url}/v1",
                kind=UpstreamKind.OPENAI_CHAT,
                credential=Credential.BEARER,
                secret=SECRET,
            )
            return await reach(settings, {}, CLOCK)

    assert run(main()).status == 200
    head = asked[0].decode()
    assert head.startswith("GET /v1/models ")
    assert f"authorization: bearer {SECRET}" in head.lower().replace(SECRET.lower(), SECRET)


def test_a_closed_port_is_no_connection() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        reached = run(reach(UpstreamSettings(url=f"http://127.0.0.1:{port}"), {}, CLOCK))
    finding = findings(reached)["upstream anthropic"]
    assert finding.mark is FindingLevel.FAIL
    assert "network" in finding.fix


def test_a_name_that_does_not_exist_stops_at_the_name() -> None:
    reached = run(reach(UpstreamSettings(url="https://nowhere.invalid"), {}, CLOCK))
    (finding,) = findings(reached).values()
    assert (finding.check, finding.mark) == ("dns nowhere.invalid", FindingLevel.FAIL)


def test_a_name_on_this_machine_is_looked_up_and_needs_no_encryption() -> None:
    async def main() -> Reached:
        async with Server(answering(models())) as server:
            url = server.url.replace("127.0.0.1", "localhost")
            return await reach(UpstreamSettings(url=url), {}, CLOCK)

    told = findings(run(main()))
    assert [finding.mark for finding in told.values()] == [FindingLevel.OK] * 2
    assert next(iter(told)) == "dns localhost"


def tls_seen(authority: trustme.CA, names: list[str], ca_file: str | None) -> Reached:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)

    async def main() -> Reached:
        async with Server(answering(models()), context) as server:
            return await reach(UpstreamSettings(url=server.url, ca_file=ca_file), {}, CLOCK)

    return run(main())


def test_certificates_are_trusted_or_not(tmp_path: Path) -> None:
    ours, theirs = trustme.CA(), trustme.CA()
    ca_file = str(tmp_path / "ca.pem")
    ours.cert_pem.write_to_path(ca_file)
    trusted = findings(tls_seen(ours, ["127.0.0.1"], ca_file))
    assert [finding.mark for finding in trusted.values()] == [FindingLevel.OK] * 2
    for authority, name in ((theirs, "127.0.0.1"), (ours, "elsewhere.test")):
        told = findings(tls_seen(authority, [name], ca_file))
        (finding,) = told.values()
        assert finding.check.startswith("tls 127.0.0.1:")
        assert finding.mark is FindingLevel.FAIL
        assert "ca_file" in finding.fix


def test_plain_http_to_another_machine_is_warned_of() -> None:
    reached = Reached("a", "llm.example:80", secure=False, status=200, body=b"{}")
    assert findings(reached)["tls llm.example:80"].mark is FindingLevel.WARN


@pytest.mark.parametrize(
    ("off", "mark"),
    [
        (0, FindingLevel.OK),
        (-20, FindingLevel.OK),
        (90, FindingLevel.WARN),
        (-3600, FindingLevel.FAIL),
        (3600, FindingLevel.FAIL),
    ],
)
def test_the_date_of_an_answer_shows_a_wrong_clock(off: int, mark: FindingLevel) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=off), usegmt=True)
    finding = clock_finding([seen(models(f"Date: {date}"))])
    assert finding.mark is mark
    if mark is not FindingLevel.OK:
        assert ("behind" if off > 0 else "ahead") in finding.says


def test_one_clock_that_agrees_is_enough_and_none_is_no_fault() -> None:
    right, wrong = Reached("a", "a:1", secure=True, skew=1.0), Reached("b", "b:1", True, skew=9e9)
    assert clock_finding([wrong, right]).mark is FindingLevel.OK
    assert clock_finding([seen(models("Date: yesterday"))]).says.startswith("not compared")


def test_the_way_may_lead_through_a_proxy_whose_password_is_not_told() -> None:
    async def refuse(wire: Wire) -> None:
        await wire.request()
        await wire.say(answer(b"", "407 Proxy Authentication Required"))

    async def main() -> Reached:
        async with Server(refuse) as proxy:
            address = proxy.url.replace("//", f"//user:{SECRET}@")
            return await reach(
                UpstreamSettings(url="https://api.test"), {"HTTPS_PROXY": address}, CLOCK
            )

    reached = run(main())
    assert SECRET not in repr(reached)
    finding = findings(reached)["upstream anthropic"]
    assert finding.mark is FindingLevel.FAIL
    assert "proxy" in finding.says
    assert "password" in finding.fix


def test_a_huge_answer_is_not_read_to_its_end() -> None:
    async def flood(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
        while True:
            await wire.say(b" " * 65536)

    async def main() -> Reached:
        async with Server(flood) as server:
            return await reach(UpstreamSettings(url=server.url), {}, CLOCK)

    assert len(run(main()).body) <= 1024 * 1024


def test_a_credential_that_cannot_be_had_is_told() -> None:
    async def main() -> tuple[object, object]:
        broken = UpstreamSettings(credential=Credential.VENDOR)
        return await credential_problem(broken, {}), await credential_problem(
            UpstreamSettings(), {}
        )

    problem, none = event_loop.run(main())
    assert isinstance(problem, UsageError)
    assert none is None


# --- this machine ------------------------------------------------------------------------


def test_a_taken_port_is_seen_and_a_free_one_is_not() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert is_port_taken("127.0.0.1", port)
    assert not is_port_taken("127.0.0.1", port)
    assert not is_port_taken("127.0.0.1", 0)


def marks(folder: Path) -> dict[str, FindingLevel]:
    told = look_at_state(folder, CLOCK.wall()).findings()
    return {finding.check: finding.mark for finding in told}


def test_a_state_folder_is_judged_whether_it_is_there_or_not(tmp_path: Path) -> None:
    absent = tmp_path / "a" / "b"
    assert marks(absent) == {
        "state folder": FindingLevel.OK,
        "disk": FindingLevel.OK,
        "journal": FindingLevel.OK,
    }
    assert not absent.exists(), "nothing is changed"
    file = tmp_path / "file"
    file.write_text("x")
    assert marks(file / "state")["state folder"] is FindingLevel.FAIL


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_folder_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    assert marks(folder)["state folder"] is FindingLevel.WARN
    folder.chmod(0o700)
    assert marks(folder)["state folder"] is FindingLevel.OK


def test_a_journal_is_read_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "state")
    state.make()
    with Journal(state.journal):
        pass
    assert look_at_state(state.folder, CLOCK.wall()).calls == 0
    state.journal.write_bytes(b"not a database" * 100)
    told = look_at_state(state.folder, CLOCK.wall()).findings()
    assert told[-1].mark is FindingLevel.FAIL
    assert told[-1].fix
    assert json.dumps([finding.to_json() for finding in told])
