"""The control endpoint of the simulator is closed to web pages and reads no file for a request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from http.client import RemoteDisconnected
from pathlib import Path

import pytest

from jackline.errors import BadArgumentError, UnreadableError
from jackline.simulator.scenario import MOST_TOKENS, SCENARIO_BYTES, Scenario
from jackline.testing import SimulatedProvider
from tests.simulator.http_client import ask, send


@pytest.fixture
def provider() -> Iterator[SimulatedProvider]:
    with SimulatedProvider() as running:
        yield running


def test_a_scenario_is_named_over_http_and_never_a_file(
    provider: SimulatedProvider, tmp_path: Path
) -> None:
    there = tmp_path / "mine.toml"
    there.write_text('models = ["from-a-file"]')
    answers = [
        send(provider, "POST", "/_control/settings", {"scenario": str(path)})
        for path in (there, tmp_path / "missing.toml", tmp_path, os.devnull)
    ]
    assert {got.status for got in answers} == {404}
    assert len({got.body for got in answers}) == 1, "nothing tells whether a file exists"
    assert "outage" in answers[0].json["error"]["hint"]
    assert "from-a-file" not in send(provider, "GET", "/_control/settings").json["models"]


@pytest.mark.parametrize("name", ["../scenarios/outage", "outage.toml", "outage\x00", ""])
def test_only_the_exact_names_of_packaged_scenarios_are_accepted(
    provider: SimulatedProvider, name: str
) -> None:
    assert send(provider, "POST", "/_control/settings", {"scenario": name}).status == 404


@pytest.mark.parametrize(
    "document",
    [
        {"answer_tokens": MOST_TOKENS + 1},
        {"rule": [{"prompt": "x", "tokens": MOST_TOKENS + 1}]},
    ],
)
def test_an_answer_that_would_fill_the_memory_is_refused(
    provider: SimulatedProvider, document: dict[str, object]
) -> None:
    got = send(provider, "POST", "/_control/settings", document)
    assert got.status == 400
    assert "tokens" in got.json["error"]["message"]


def test_the_longest_answer_and_large_quotas_are_accepted() -> None:
    Scenario.parse("x", f"answer_tokens = {MOST_TOKENS}")
    Scenario.parse("x", '[[window]]\nclaim = "five_hour"\ntokens = 50000000000')


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost."},
        {"Host": "evil.example@127.0.0.1"},
        {"Host": ""},
        {"Host": "0.0.0.0"},  # noqa: S104 -- sent, not bound
        {"Origin": "http://evil.example", "Content-Type": "text/plain"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/_control/ledger"),
        ("GET", "/anything/_control/summary"),
        ("POST", "/_control/reset"),
        ("POST", "/_control/settings"),
        ("POST", "/_control/faults"),
        ("DELETE", "/_control/faults"),
    ],
)
def test_a_page_of_another_site_neither_reads_nor_changes_anything(
    provider: SimulatedProvider, method: str, path: str, headers: dict[str, str]
) -> None:
    ask(provider)
    body = {"effect": "throttled"} if path.endswith("faults") else {}
    got = send(provider, method, path, body, headers)
    assert got.status == 403
    assert set(got.json) == {"error"}
    assert send(provider, "GET", "/_control/faults").json["faults"] == []
    assert send(provider, "GET", "/_control/summary").json["requests"] == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST", "127.0.0.1:9"])
def test_programs_and_what_the_user_opens_come_in_by_any_name_of_this_machine(
    provider: SimulatedProvider, host: str
) -> None:
    for more in ({}, {"Sec-Fetch-Site": "none"}, {"Origin": f"http://{host}"}):
        got = send(provider, "GET", "/_control/summary", None, {"Host": host, **more})
        assert got.status == 200, more


def test_a_request_with_two_hosts_is_refused(provider: SimulatedProvider) -> None:
    headers = {"Host": "evil.example", "host": "127.0.0.1"}
    with pytest.raises(RemoteDisconnected):
        send(provider, "GET", "/_control/summary", None, headers)


def test_model_calls_come_in_by_any_name(provider: SimulatedProvider) -> None:
    assert ask(provider, headers={"Host": "api.anthropic.com"}).status == 200


def test_a_scenario_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    full = tmp_path / "full.toml"
    full.write_bytes(b"# " + b"x" * SCENARIO_BYTES)
    with pytest.raises(UnreadableError, match="larger"):
        Scenario.load(str(full))


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="has no device files")
def test_a_device_is_no_scenario() -> None:
    # Not /dev/zero: whoever reads it would take all memory before the test fails.
    with pytest.raises(UnreadableError, match="regular"):
        Scenario.load("/dev/null")


def test_a_scenario_in_a_file_is_read_as_ever(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('description = "Größe."', encoding="utf-8")
    assert Scenario.load(str(mine)).description == "Größe."
    mine.write_bytes(b"\xff\xfe")
    with pytest.raises(BadArgumentError, match="UTF-8"):
        Scenario.load(str(mine))
