"""A running gateway can be used and stopped while the configuration has faults."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.gateways import Place

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and folders of POSIX")
SLIP = '[hold]\nquota = "banana"\n'


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A gateway whose state folder is named by the file that will have a fault."""
    file = tmp_path / "jackline.toml"
    file.write_text(f'state = "{tmp_path / "state"}"\n')
    here = Place(tmp_path, "http://127.0.0.1:1")
    here.more |= {"JACKLINE_CONFIG": str(file), "JACKLINE_STATE": ""}
    yield here
    here.ends()


def spoil(place: Place, text: str = SLIP) -> None:
    with Path(place.more["JACKLINE_CONFIG"]).open("a") as file:
        file.write(text)


def test_a_gateway_that_runs_can_be_seen_and_ended(place: Place) -> None:
    assert place.jackline("up", "-d").code == 0
    spoil(place)
    shown = place.jackline("open", "--print")
    assert (shown.code, shown.out.startswith(place.url)) == (0, True)
    for words in (("status",), ("status", "--json"), ("status", "--watch"), ("logs",)):
        reported = place.jackline(*words)
        assert (reported.code, bool(reported.out)) == (0, True), reported.err
        assert "warning: the configuration has a fault:\n  " in reported.err
    ended = place.jackline("down")
    assert ended.code == 0
    assert "warning: the configuration has a fault:\n  " in ended.err
    assert 'hold.quota: "banana" is no duration' in ended.err
    assert place.state.running() is None
    assert not place.answers()


@pytest.mark.parametrize("slip", [SLIP, "upstream = [\n"], ids=["a wrong value", "no TOML"])
def test_where_none_is_found_the_fault_is_the_error(place: Place, slip: str) -> None:
    """The faulty file may say where one runs: "no gateway runs" would be a guess."""
    spoil(place, slip)
    for verb in ("down", "open", "status", "logs"):
        answer = place.jackline(verb)
        assert answer.code == 2
        assert "error: the configuration has a fault:" in answer.err
        assert answer.err.count("the configuration has") == 1
        assert "hint:  correct what is named" in answer.err


def test_a_client_gets_its_own_settings_back(place: Place) -> None:
    settings = place.folder / "home" / ".claude" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"model": "opus"}')
    assert place.jackline("connect", "claude-code").code == 0
    assert "ANTHROPIC_BASE_URL" in settings.read_text()
    spoil(place)
    answer = place.jackline("disconnect", "claude-code")
    assert answer.code == 0, answer.err
    assert json.loads(settings.read_text()) == {"model": "opus"}
