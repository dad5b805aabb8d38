"""`jackline doctor` finds faults between clients and upstreams, and shows what to do."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jackline.agents.claude_code.environment import CLIENT_VARIABLES
from jackline.control.doctor import (
    Finding,
    FindingLevel,
    StateSeen,
    client_findings,
    gateway_finding,
    nothing_fails,
    proxy_finding,
)
from jackline.testing import SimulatedProvider
from tests.cli.commands import Answer
from tests.cli.gateways import Place
from tests.planted import KEY, WORD

URL = "http://127.0.0.1:8766"
WANTED = {variable.name: variable.reason for variable in CLIENT_VARIABLES}
ALL_SET = {variable.name: variable.value for variable in CLIENT_VARIABLES}
# What whoever runs the tests has set must not decide them.
NEUTRAL = dict.fromkeys(
    [
        "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CONFIG_DIR",
        "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "HTTPS_PROXY", "HTTP_PROXY",
        "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy",
    ],
    "",
)  # fmt: skip


@pytest.fixture
def provider() -> Iterator[SimulatedProvider]:
    with SimulatedProvider() as simulated:
        yield simulated


@pytest.fixture
def place(tmp_path: Path, provider: SimulatedProvider) -> Iterator[Place]:
    here = Place(tmp_path, provider.url, more=dict(NEUTRAL))
    yield here
    here.ends()


def reported(answer: Answer) -> dict[str, dict[str, Any]]:
    document = json.loads(answer.out)
    assert document["schema"] == "jackline.doctor/1"
    assert document["ok"] is (answer.code == 0)
    return {finding["check"]: finding for finding in document["findings"]}


def test_all_is_well_with_a_gateway_and_an_environment_for_it(
    place: Place, provider: SimulatedProvider
) -> None:
    place.more.update(ANTHROPIC_BASE_URL=place.url, **ALL_SET)
    with place.up():
        answer = place.jackline("doctor")
        findings = reported(place.jackline("doctor", "--json"))
    assert answer.code == 0, answer.out
    assert {finding["mark"] for finding in findings.values()} == {"ok"}, answer.out
    assert "✓ ok    gateway" in answer.out
    assert "3 models" in findings["upstream anthropic"]["says"]
    assert len(provider.ledger) == 0, "no model was called"


def test_an_upstream_that_is_down_fails_with_its_fix(
    place: Place, provider: SimulatedProvider
) -> None:
    provider.refuse()
    answer = place.jackline("doctor")
    assert answer.code == 1
    lines = answer.out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("✗ fail  upstream anthropic"))
    assert "fix:" in lines[at + 1]
    assert "! warn  gateway" in answer.out
    assert "! warn  client" in answer.out


def test_a_log_in_page_is_reported(place: Place, provider: SimulatedProvider) -> None:
    provider.captive_portal()
    finding = reported(place.jackline("doctor", "--json"))["upstream anthropic"]
    assert finding["mark"] == "fail"
    assert "browser" in finding["fix"]


def test_a_port_that_somebody_else_has_fails(place: Place) -> None:
    with socket.create_server(("127.0.0.1", place.port)):
        finding = reported(place.jackline("doctor", "--json"))["gateway"]
    assert finding["mark"] == "fail"
    assert "--port" in finding["fix"]


def test_a_key_that_cannot_be_read_is_reported_and_the_rest_is_still_checked(
    place: Place, provider: SimulatedProvider
) -> None:
    file = place.folder / "jackline.toml"
    file.write_text(
        f'[[upstream]]\nname = "main"\nurl = "{provider.url}"\ncredential = "env:NO_SUCH_KEY"\n'
    )
    place.more["JACKLINE_UPSTREAM"] = ""
    answer = place.jackline("doctor", "--json", "--config", file)
    findings = reported(answer)
    assert answer.code == 1
    assert findings["configuration"]["mark"] == "fail"
    assert findings["upstream main"]["mark"] == "ok"


def test_a_file_that_makes_no_sense_is_one_finding(place: Place) -> None:
    file = place.folder / "jackline.toml"
    file.write_text("[listen]\nprot = 1\n")
    answer = place.jackline("doctor", "--json", "--config", file)
    assert (answer.code, list(reported(answer))) == (1, ["configuration"])


def test_no_key_is_shown(place: Place, provider: SimulatedProvider) -> None:
    file = place.folder / "jackline.toml"
    file.write_text(
        f'[[upstream]]\nname = "main"\nurl = "{provider.url}"\ncredential = "env:MY_KEY"\n'
    )
    provider.demand_credential()
    place.more.update(
        JACKLINE_UPSTREAM="", MY_KEY=KEY, ANTHROPIC_API_KEY=KEY, ANTHROPIC_AUTH_TOKEN=KEY
    )
    answer = place.jackline("doctor", "--config", file)
    assert KEY not in answer.out + answer.err
    assert "there, and not shown" in answer.out
    assert "both set" in answer.out


def test_the_clients_own_settings_go_over_the_shell(place: Place) -> None:
    folder = place.folder / "claude"
    folder.mkdir()
    (folder / "settings.json").write_text('{"env": {"ANTHROPIC_BASE_URL": "https://other.test"}}')
    place.more.update(ANTHROPIC_BASE_URL=place.url, CLAUDE_CONFIG_DIR=str(folder))
    finding = reported(place.jackline("doctor", "--json"))["client"]
    assert finding["mark"] == "warn"
    assert "settings.json" in finding["says"]


def test_a_status_page_is_read_and_its_incidents_reported(place: Place) -> None:
    pages = {
        "well": {"page": {"name": "Well"}, "incidents": []},
        "ill": {
            "page": {"name": "Ill"},
            "incidents": [
                {
                    "name": "Elevated errors on Opus",
                    "status": "investigating",
                    "started_at": "2026-11-15T12:45:00Z",
                    "incident_updates": [{"body": "We are looking into elevated errors."}],
                }
            ],
        },
        "lost": None,
    }
    with serving_pages(pages) as url:
        file = place.folder / "jackline.toml"
        file.write_text(
            "".join(
                f'[[upstream]]\nname = "{name}"\nurl = "{place.upstream}"\n'
                f'status_page = "{url}/{name}"\n'
                for name in pages
            )
        )
        place.more["JACKLINE_UPSTREAM"] = ""
        found = reported(place.jackline("doctor", "--json", "--config", file))
    well, ill, lost = (found[f"status page {name}"] for name in pages)
    assert (well["mark"], ill["mark"], lost["mark"]) == ("ok", "warn", "warn")
    assert "no incident" in well["says"]
    assert "Ill reports: Elevated errors on Opus, since" in ill["says"]
    assert ill["fix"]
    assert "status_page" in lost["fix"]


def test_limits_are_read_where_an_admin_key_is_named(place: Place) -> None:
    admin = f"sk-ant-admin01-{WORD}"
    limits = {"type": "requests_per_minute", "value": 50}
    listing = {"data": [{"group_type": "model_group", "models": ["m"], "limits": [limits]}]}
    with serving_pages({"good": listing, "bad": None}) as url:
        file = place.folder / "jackline.toml"
        file.write_text(
            "".join(
                f'[[upstream]]\nname = "{name}"\nurl = "{url}/{name}"\n'
                f'credential = "env:OWN"\nadmin_key = "env:{variable}"\n'
                for name, variable in (("good", "ADMIN"), ("bad", "ADMIN"), ("lost", "NOWHERE"))
            )
        )
        place.more |= {"JACKLINE_UPSTREAM": "", "OWN": "sk-own", "ADMIN": admin}
        printed = place.jackline("doctor", "--json", "--config", file)
        found = reported(printed)
    good, bad, lost = (found[f"limits {name}"] for name in ("good", "bad", "lost"))
    assert (good["mark"], bad["mark"], lost["mark"]) == ("ok", "warn", "warn")
    assert "lists 1 model" in good["says"]
    assert "status 404" in bad["says"]
    assert "leave admin_key out" in bad["fix"]
    assert "the environment variable NOWHERE is not set" in lost["says"]
    assert WORD not in json.dumps(found)


@contextmanager
def serving_pages(pages: Mapping[str, object]) -> Iterator[str]:
    """A server of status pages, at `/NAME` each; one that is None is not there."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.split("/")[1])
            body = json.dumps(page).encode()
            self.send_response(200 if page is not None else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests need no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_the_plugin_is_reported_as_in_the_clients_settings(place: Place) -> None:
    folder = place.folder / "claude"
    folder.mkdir()
    place.more["CLAUDE_CONFIG_DIR"] = str(folder)
    absent = reported(place.jackline("doctor", "--json"))["plugin"]
    assert (absent["mark"], "plugin install" in absent["fix"]) == ("ok", True)
    for on, mark in ((True, "ok"), (False, "warn")):
        enabled = {"enabledPlugins": {"jackline@jackline": on, "other@market": True}}
        (folder / "settings.json").write_text(json.dumps(enabled))
        found = reported(place.jackline("doctor", "--json"))["plugin"]
        assert (found["mark"], "jackline@jackline" in found["says"]) == (mark, True)


# --- judgements --------------------------------------------------------------------------


def client(environ: Mapping[str, str]) -> list[tuple[str, FindingLevel]]:
    found = client_findings(environ, URL, WANTED, {})
    assert all(finding.fix for finding in found if finding.mark is not FindingLevel.OK)
    return [(finding.check, finding.mark) for finding in found]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, [("client", FindingLevel.WARN)]),
        ({"ANTHROPIC_BASE_URL": "https://api.anthropic.com"}, [("client", FindingLevel.WARN)]),
        ({"ANTHROPIC_BASE_URL": "http://localhost:9999"}, [("client", FindingLevel.WARN)]),
        (
            {"ANTHROPIC_BASE_URL": "http://localhost:8766/", **ALL_SET},
            [("client", FindingLevel.OK)],
        ),
        (
            {"ANTHROPIC_BASE_URL": URL},
            [("client", FindingLevel.OK), ("client waiting", FindingLevel.WARN)],
        ),
        (
            {"ANTHROPIC_BASE_URL": URL, **ALL_SET, "CLAUDE_CODE_USE_BEDROCK": "1"},
            [("client", FindingLevel.OK), ("client conflict", FindingLevel.WARN)],
        ),
        (
            {"ANTHROPIC_BASE_URL": URL, **ALL_SET, "CLAUDE_CODE_USE_VERTEX": "0"},
            [("client", FindingLevel.OK)],
        ),
        ({"ANTHROPIC_BASE_URL": "http://[::1"}, [("client", FindingLevel.WARN)]),
    ],
)
def test_clients_go_through_the_gateway_or_it_is_reported(
    environ: Mapping[str, str], expected: list[tuple[str, FindingLevel]]
) -> None:
    assert client(environ) == expected


@pytest.mark.parametrize(
    ("environ", "mark"),
    [
        ({}, FindingLevel.OK),
        ({"https_proxy": "http://user:geheim@proxy.test:3128"}, FindingLevel.WARN),
        (
            {"HTTPS_PROXY": "http://user:geheim@proxy.test:3128", "NO_PROXY": "localhost"},
            FindingLevel.OK,
        ),
        ({"ALL_PROXY": "proxy.test:1", "no_proxy": "*"}, FindingLevel.OK),
    ],
)
def test_a_proxy_is_reported_without_its_password(
    environ: Mapping[str, str], mark: FindingLevel
) -> None:
    finding = proxy_finding(environ)
    assert finding.mark is mark
    assert "geheim" not in repr(finding)


@pytest.mark.parametrize(
    ("finding", "mark"),
    [
        (gateway_finding(URL, "1", "1"), FindingLevel.OK),
        (gateway_finding(URL, "1", "2"), FindingLevel.WARN),
        (gateway_finding(URL, None, "1"), FindingLevel.WARN),
        (gateway_finding(URL, None, "1", "another program"), FindingLevel.FAIL),
    ],
)
def test_the_gateway_runs_or_could(finding: Finding, mark: FindingLevel) -> None:
    assert finding.mark is mark


@pytest.mark.parametrize(
    ("free", "mark"),
    [
        (None, FindingLevel.WARN),
        (10, FindingLevel.FAIL),
        (500 << 20, FindingLevel.WARN),
        (9 << 30, FindingLevel.OK),
    ],
)
def test_a_full_disk_is_reported_before_it_is_full(free: int | None, mark: FindingLevel) -> None:
    assert StateSeen("/state", free_bytes=free).findings()[1].mark is mark


def test_warnings_do_not_fail() -> None:
    warning = Finding("a", FindingLevel.WARN, "b", "c")
    assert nothing_fails([warning])
    assert not nothing_fails([warning, Finding("a", FindingLevel.FAIL, "b", "c")])
