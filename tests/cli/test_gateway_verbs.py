"""`up`, `down` and `status` do for a user what they say, as processes."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackline.testing import SimulatedProvider
from tests.cli.commands import jackline
from tests.cli.gateways import Calling, Place, call, until
from tests.ports import free_port

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and folders of POSIX")


@pytest.fixture
def provider() -> Iterator[SimulatedProvider]:
    with SimulatedProvider() as simulated:
        yield simulated


@pytest.fixture
def place(tmp_path: Path, provider: SimulatedProvider) -> Iterator[Place]:
    here = Place(tmp_path, provider.url)
    yield here
    here.ends()


def test_up_says_where_it_listens_and_what_to_do_next(place: Place) -> None:
    with place.up() as gateway:
        until(lambda: "jackline status" in gateway.output, "the next step")
        assert f"{place.url}  sends to {place.upstream}" in gateway.output
        assert f"ANTHROPIC_BASE_URL={place.url} claude" in gateway.output
        assert "jackline down" in gateway.output


def test_the_whole_ladder_is_named(place: Place) -> None:
    file = place.folder / "jackline.toml"
    urls = [place.upstream, "http://127.0.0.1:1"]
    tables = [f'[[upstream]]\nname = "at{n}"\nurl = "{url}"\n' for n, url in enumerate(urls)]
    file.write_text("\n".join(tables))
    place.more |= {"JACKLINE_CONFIG": str(file), "JACKLINE_UPSTREAM": ""}
    ladder = f"sends to {urls[0]}, then {urls[1]}"
    with place.up() as gateway:
        until(lambda: "jackline status" in gateway.output, "the next step")
        assert f"{place.url}  {ladder}\n" in gateway.output
        assert f"{place.url} {ladder}, process " in place.jackline("status").out
        assert place.status()["upstreams"] == urls


def test_calls_pass_with_the_clients_own_credentials(
    place: Place, provider: SimulatedProvider
) -> None:
    with place.up():
        assert call(place.url).status == 200
        assert call(place.url, stream=True).body.count(b"event: message_stop") == 1
    assert provider.ledger.useful == 2


def test_ctrl_c_lets_running_calls_finish_and_ends_in_good_order(
    place: Place, provider: SimulatedProvider
) -> None:
    provider.slow_drip(slowness=3.0)
    with place.up() as gateway:
        client = Calling(place.url)
        until(lambda: provider.ledger.open == 1 or client.got, "the call")
        gateway.interrupt()
        client.join()
        assert gateway.code() == 0
        assert client.got is not None
        assert client.got.status == 200
    assert place.state.running() is None


def test_ctrl_c_twice_cuts_running_calls(place: Place, provider: SimulatedProvider) -> None:
    provider.hang()
    with place.up() as gateway:
        client = Calling(place.url)
        until(lambda: provider.ledger.open == 1, "the call")
        gateway.interrupt()
        until(lambda: "Ctrl-C again" in gateway.output, "the hint")
        gateway.interrupt()
        assert gateway.code() == 130
        client.join()
        assert client.error is not None


def test_a_second_up_says_so_and_is_content(place: Place) -> None:
    with place.up() as gateway:
        again = place.jackline("up")
        assert (again.code, again.out) == (0, "")
        assert f"a gateway runs already at {place.url}" in again.err
        assert f"(process {gateway.process.pid})" in again.err
        behind = place.jackline("up", "-d")
        assert behind.code == 0
        assert "runs already" in behind.err
        # The folder decides, not the port.
        other_port = place.jackline("up", "--port", str(free_port()))
        assert (other_port.code, "runs already" in other_port.err) == (0, True)


def test_in_the_background_it_outlives_the_command_until_down(place: Place) -> None:
    begun = place.jackline("up", "-d")
    assert begun.code == 0, begun.err
    pid = re.search(r"process (\d+)", begun.out)
    assert pid is not None
    assert place.url in begun.out
    assert str(place.state.log) in begun.out
    assert stat.S_IMODE(place.state.log.stat().st_mode) == 0o600
    assert call(place.url).status == 200
    assert place.jackline("status").code == 0
    ended = place.jackline("down")
    assert ended.code == 0
    assert place.url in ended.err
    assert not place.answers()
    assert place.state.running() is None
    again = place.jackline("down")
    assert (again.code, again.err) == (0, "no gateway runs\n")
    after = place.jackline("up", "-d")
    assert after.code == 0, "the port and the folder are free again at once"


def test_down_waits_for_running_calls(place: Place, provider: SimulatedProvider) -> None:
    assert place.jackline("up", "-d").code == 0
    provider.slow_drip(slowness=3.0)
    client = Calling(place.url)
    until(lambda: provider.ledger.open == 1 or client.got, "the call")
    assert place.jackline("down").code == 0
    client.join()
    assert client.got is not None
    assert client.got.status == 200


def test_status_without_a_gateway_is_an_error_of_its_own(place: Place) -> None:
    answer = place.jackline("status")
    assert (answer.code, answer.out) == (5, "")
    assert answer.err.startswith(f"error: no gateway runs for {place.state.folder}\n")
    assert "jackline up" in answer.err
    assert place.jackline("status", "--json").code == 5


STATUS_KEYS = {
    "schema", "verdict", "at", "version", "url", "upstream", "upstreams", "started", "lanes",
    "waiting", "calls_waiting", "calls_in_flight", "connections", "outcomes",
    "held_and_delivered", "joined", "input_tokens", "output_tokens", "journal_ok",
    "journal_problem", "journal_lost", "journal_gap", "notes", "forecast", "cache_advice",
    "answered_instead", "believed_at", "calls_survived", "needs",
}  # fmt: skip
LANE_KEYS = {
    "known_limits", "upstream",
    "name", "state", "why", "until", "in_flight", "window", "waiting", "limits", "cause", "paused",
}  # fmt: skip
CALL_KEYS = {
    "call", "session", "agent", "tag", "model", "lane", "state", "why", "until", "since",
    "attempts", "label", "turn",
}  # fmt: skip


def test_status_shows_the_verdict_the_lanes_and_who_waits_for_what(
    place: Place, provider: SimulatedProvider
) -> None:
    provider.quota_wall(resets_in=600.0)
    with place.up():
        Calling(place.url, path="/t/night/v1/messages")
        until(lambda: place.status()["calls_waiting"] == 1, "the waiting call")
        reported = place.status()
        assert set(reported) == STATUS_KEYS
        assert reported["schema"] == "jackline.status/1"
        assert reported["journal_ok"] is True
        (lane,) = reported["lanes"]
        (held,) = reported["waiting"]
        assert set(lane) == LANE_KEYS
        assert set(held) == CALL_KEYS
        assert (lane["name"], lane["state"]) == ("anthropic/claude-sonnet-4-6", "parked")
        assert (held["tag"], held["model"]) == ("night", "claude-sonnet-4-6")
        assert held["until"] is not None
        text = place.jackline("status")
        first, *rest = text.out.splitlines()
        assert first.startswith(reported["verdict"].partition(" until")[0])
        assert "anthropic/claude-sonnet-4-6 is parked until" in first
        assert "waiting, 1 call:" in rest
        assert "#" not in text.out, "no account's fingerprint"


def test_a_port_of_another_program_is_reported_with_its_holder(place: Place) -> None:
    with socket.create_server(("127.0.0.1", place.port)):
        answer = place.jackline("up")
        assert answer.code == 1
        assert f"port {place.port} is held by " in answer.err
        if Path("/proc/net/tcp").exists():
            name = Path("/proc/self/comm").read_text().strip()
            assert f"{name} (process {os.getpid()})" in answer.err
        assert "jackline up --port" in answer.err
        assert "Traceback" not in answer.err
        behind = place.jackline("up", "-d")
        assert behind.code == 5
        assert f"port {place.port} is held by " in behind.err
    assert not place.state.journal.exists(), "a port in use leaves no journal behind"


def test_a_port_of_another_gateway_is_reported_as_that(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path / "other", place.upstream, port=place.port)
    with other.up() as running:
        answer = place.jackline("up")
        assert answer.code == 1
        assert f"port {place.port} is held by another Jackline gateway" in answer.err
        assert f"process {running.process.pid}" in answer.err
        assert str(other.state.folder) in answer.err
        assert f"jackline down --state {other.state.folder}" in answer.err
        # What is theirs is not ours, though it answers on our port.
        assert place.jackline("status").code == 5
        assert place.jackline("down").err == "no gateway runs\n"
        assert other.answers()


def test_the_record_of_a_killed_gateway_is_not_used_for_another_on_its_port(
    place: Place, tmp_path: Path
) -> None:
    with place.up() as gateway:
        gateway.process.kill()
    assert place.state.running() is not None
    other = Place(tmp_path / "other", place.upstream, port=place.port)
    with other.up():
        assert place.jackline("status").code == 5


def test_an_address_that_is_not_this_machines_is_reported_without_a_traceback(place: Place) -> None:
    place.more["JACKLINE_LISTEN_HOST"] = "192.0.2.1"
    place.more["JACKLINE_LISTEN_TOKEN"] = "env:GATE"  # noqa: S105 -- a reference
    place.more["GATE"] = "secret-of-the-gate"
    answer = place.jackline("up")
    assert answer.code == 1
    assert "192.0.2.1" in answer.err
    assert "bug" not in answer.err


def test_flags_do_what_variables_do(place: Place, provider: SimulatedProvider) -> None:
    elsewhere = free_port()
    state = place.folder / "elsewhere"
    bare = Place(place.folder, "http://127.0.0.1:9", port=elsewhere)
    with bare.up("--upstream", provider.url, "--state", str(state), "--port", str(elsewhere)):
        assert call(bare.url).status == 200
        assert (state / "journal.db").exists()
        assert bare.jackline("status").code == 5
        reported = bare.jackline("status", "--state", str(state))
        assert reported.code == 0
        assert provider.url in reported.out
        assert bare.jackline("down", "--state", str(state)).code == 0
        assert not bare.answers()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104 -- with a token
def test_with_a_token_the_commands_still_find_their_gateway(place: Place, host: str) -> None:
    place.more["JACKLINE_LISTEN_HOST"] = host
    place.more["JACKLINE_LISTEN_TOKEN"] = "env:GATE"  # noqa: S105 -- a reference
    place.more["GATE"] = "secret-of-the-gate"
    begun = place.jackline("up", "-d")
    assert begun.out.startswith(f"{place.url} "), "an address that clients can use"
    assert call(place.url).status == 401
    assert place.jackline("status").code == 0
    assert "runs already" in place.jackline("up").err
    assert place.jackline("down").code == 0
    assert not place.answers()


def test_install_only_shows_what_it_would_write(place: Place) -> None:
    answer = place.jackline("up", "--install", "--dry-run", "--port", "9123")
    # Where nothing starts programs at login, it says what to do instead.
    assert answer.code == 0 or "crontab" in answer.err
    assert "9123" in answer.err
    assert not (place.folder / "home").exists()


def test_an_unwritable_state_folder_is_reported_and_stops_no_traffic(
    tmp_path: Path, provider: SimulatedProvider
) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    place = Place(tmp_path, provider.url)
    with place.up() as gateway:
        assert call(place.url).status == 200
        reported = place.status()
        assert reported["journal_ok"] is False
        assert "The journal is not written" in reported["verdict"]
        assert any("cannot be written to" in note for note in reported["notes"])
        text = place.jackline("status")
        assert "cannot be written to" in text.out
        assert "runs already" in place.jackline("up").err
        down = place.jackline("down")
        assert down.code == 5
        assert str(gateway.process.pid) in down.err
        assert call(place.url).status == 200
        gateway.interrupt()
        assert gateway.code() == 0
    behind = place.jackline("up", "-d")
    assert behind.code == 5
    assert "JACKLINE_STATE" in behind.err


def test_a_faulty_configuration_is_reported_in_full_and_nothing_starts(place: Place) -> None:
    place.more["JACKLINE_HOLD_QUOTA"] = "soon"
    place.more["JACKLINE_LIMITS_BODY"] = "large"
    for verb in ("up", "status", "down"):
        answer = place.jackline(verb)
        assert answer.code == 2
        assert "JACKLINE_HOLD_QUOTA" in answer.err
        assert "JACKLINE_LIMITS_BODY" in answer.err
    assert not place.state.folder.exists()


def test_a_port_means_the_gateway_there_and_no_other(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path / "other", place.upstream)
    with place.up(), other.up():
        # From here the other one is found by its port alone, although its folder is another.
        shown = place.jackline("status", "--json", "--port", str(other.port))
        assert json.loads(shown.out)["url"] == other.url
        assert json.loads(place.jackline("status", "--json").out)["url"] == place.url
        free = free_port()
        for words in ((), ("--watch",)):
            none = place.jackline("status", "--port", str(free), *words)
            assert (none.code, none.out) == (5, "")
            assert f"no gateway of yours runs at port {free}" in none.err
        down = place.jackline("down", "--port", str(free))
        assert (down.code, down.err) == (
            0,
            f"no gateway runs at port {free}; the one at {place.url} goes on\n",
        )
        assert place.answers()


def test_help_of_every_gateway_verb_is_there() -> None:
    for verb in ("up", "down", "status", "exec"):
        answer = jackline(verb, "--help")
        assert answer.code == 0
        assert "Usage: jackline" in answer.out


def test_the_log_of_a_gateway_in_the_background_is_one_json_document_a_line(
    place: Place, provider: SimulatedProvider
) -> None:
    assert place.jackline("up", "-d").code == 0
    provider.throttle()
    client = Calling(place.url)
    until(lambda: provider.ledger.wasted, "the throttled attempt")
    provider.heal()
    client.join()
    assert place.jackline("down").code == 0
    lines = place.state.log.read_text().splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    assert any("throttle" in record["message"] for record in records), lines
