"""`jackline open`, `jackline up --read-only`, and the commands that the page names."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from jackline.cli.main import _VERBS
from jackline.dashboard.handler import PageFiles
from tests.cli.gateways import Place


def test_the_address_with_its_token_is_printed_only_when_asked_for(tmp_path: Path) -> None:
    place = Place(tmp_path, "http://127.0.0.1:9")
    with place.up():
        running = place.state.running()
        assert running is not None
        printed = place.jackline("open", "--print")
        assert printed.code == 0
        assert printed.out.strip() == f"{place.url}/#token={running.token}"
        # The browser sends nothing of what stands behind the #.
        assert running.token not in urlsplit(printed.out)._replace(fragment="").geturl()
        place.more["BROWSER"] = "false"
        opened = place.jackline("open")
        assert opened.code == 0
        assert running.token not in opened.out + opened.err
        assert "no browser was found" in opened.err
        assert "jackline open --print" in opened.err


def test_without_a_gateway_open_says_how_to_start_one(tmp_path: Path) -> None:
    answer = Place(tmp_path, "http://127.0.0.1:9").jackline("open", "--print")
    assert answer.code == 5
    assert "jackline up" in answer.err


def test_read_only_is_a_flag_and_a_setting(tmp_path: Path) -> None:
    place = Place(tmp_path, "http://127.0.0.1:9")
    shown = place.jackline("config", "show")
    assert "read_only = false" in shown.out
    place.more["JACKLINE_LISTEN_READ_ONLY"] = "true"
    assert "read_only = true" in place.jackline("config", "show").out
    help_text = place.jackline("up", "--help").out
    assert "--read-only" in help_text


def test_every_command_that_the_page_names_is_one() -> None:
    text = "\n".join(
        file.read_text() for name, file in PageFiles()._files.items() if name.endswith(".js")
    )
    named = set(re.findall(r"jackline ([a-z]+)", text))
    named |= {twin for _, twin in re.findall(r'panel\("([\w ]+)", "(\w+)', text)}
    assert {"status", "drill", "ls", "logs", "open", "show", "resume"} <= named
    assert named <= set(_VERBS)
