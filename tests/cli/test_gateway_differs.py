"""A command that wants another gateway than the one that runs prints a warning and a next step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import jackline
from tests.cli.gateways import Place
from tests.ports import free_port

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and folders of POSIX")
HOME = "http://127.0.0.1:1"
ELSEWHERE = "http://127.0.0.1:2"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    here = Place(tmp_path, HOME)
    yield here
    here.ends()


def test_a_gateway_that_sends_elsewhere_is_not_passed_off_as_the_requested_one(
    place: Place,
) -> None:
    words = f"it sends to {HOME}, not to {ELSEWHERE}"
    with place.up():
        same = place.jackline("up", "--upstream", HOME)
        assert (same.code, "warning" in same.err) == (0, False)
        by_flag = place.jackline("up", "--upstream", ELSEWHERE)
        assert (by_flag.code, words in by_flag.err) == (0, True)
        assert "hint:  jackline down" in by_flag.err
        by_variable = jackline(
            "exec", "--", "true", env={**place.env, "JACKLINE_UPSTREAM": ELSEWHERE}
        )
        assert (by_variable.code, words in by_variable.err) == (0, True)
        assert place.jackline("exec", "--", "true").err == ""


def test_flags_that_only_a_start_can_heed_are_named(place: Place) -> None:
    with place.up():
        again = place.jackline("up", "-d", "--afk", "--read-only")
        assert again.code == 0
        assert "--afk and --read-only cannot change a gateway that runs" in again.err


def test_a_gateway_that_fails_to_start_behind_reports_its_own_next_step(place: Place) -> None:
    with Place(place.folder / "other", HOME, port=place.port).up():
        behind = place.jackline("up", "-d")
        assert behind.code == 5
        assert f"port {place.port} is held by another Jackline gateway" in behind.err
        assert f"use another: jackline up --port {place.port + 1}" in behind.err


def test_a_shell_that_does_not_find_the_command_is_shown_how_to_find_it(place: Place) -> None:
    place.more["PATH"] = str(place.folder)
    lost = place.jackline("up", "-d").err
    place.ends()
    place.more["PATH"] = str(Path(sys.executable).parent)
    found = place.jackline("up", "-d").err
    assert sys.prefix != sys.base_prefix, "these tests run in a virtual environment"
    assert lost.endswith("bin/activate)\n")
    assert found.endswith("jackline down stops it\n")


def test_env_says_when_no_gateway_answers_at_its_address_yet(place: Place) -> None:
    none = place.jackline("env")
    assert f"no gateway answers at {place.url} yet; next: jackline up -d" in none.err
    with place.up():
        assert place.jackline("env").err == ""
        port = free_port()
        other = place.jackline("env", "--port", str(port))
        assert f"no gateway answers at http://127.0.0.1:{port} yet" in other.err
