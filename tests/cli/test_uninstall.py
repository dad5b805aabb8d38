"""After `jackline uninstall` everything is as it was before Jackline, byte for byte."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackline.cli.system_steps import Write
from jackline.cli.wake_timer import set_timers, timer_removal
from jackline.testing import SimulatedProvider
from tests.cli.gateways import Place

POSIX = pytest.mark.skipif(os.name == "nt", reason="the fake client is a script of POSIX")

# The part of Claude Code's `plugin` command that changes its settings.
FAKE_CLAUDE = """\
#!{python}
import json, os, sys
from pathlib import Path
file = Path(os.environ["CLAUDE_CONFIG_DIR"]) / "settings.json"
settings = json.loads(file.read_text()) if file.exists() else {{}}
words = sys.argv[1:]
if words[:2] == ["plugin", "install"]:
    settings.setdefault("enabledPlugins", {{}})[words[2]] = True
    file.write_text(json.dumps(settings, indent=2))
if words[:2] == ["plugin", "uninstall"]:
    settings.get("enabledPlugins", {{}}).pop(words[2], None)
    file.write_text(json.dumps(settings, indent=2))
if words == ["plugin", "list"]:
    print(*settings.get("enabledPlugins", {{}}))
"""
# Written by hand: no program would write them alike.
CLAUDE = b'{"b":1,\n   "env": {"X": "1"}  ,  "a": [1,2]}'
CODEX = b'model = "x"\n\n[a]\nb=1'


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A home with clients of its own settings, and nothing of Jackline."""
    with SimulatedProvider() as provider:
        here = Place(tmp_path, provider.url)
        home = tmp_path / "home"
        (home / "claude").mkdir(parents=True)
        (home / "codex").mkdir()
        (home / "claude" / "settings.json").write_bytes(CLAUDE)
        (home / "codex" / "config.toml").write_bytes(CODEX)
        (home / "bin").mkdir()
        client = home / "bin" / "claude"
        client.write_text(FAKE_CLAUDE.format(python=sys.executable))
        client.chmod(0o755)
        here.more |= {
            "CLAUDE_CONFIG_DIR": str(home / "claude"),
            "CODEX_HOME": str(home / "codex"),
            "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "XDG_STATE_HOME": str(home / "saved"),
        }
        yield here
        here.ends()


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def set_up(place: Place) -> None:
    """All that writes something outside of the package."""
    assert place.jackline("connect", "claude-code", "--plugin").code == 0
    assert place.jackline("connect", "codex").code == 0
    assert place.jackline("up", "-d").code == 0
    home = place.folder / "home"
    units = home / "systemd" / "user"
    units.mkdir(parents=True)
    for name in ("jackline.service", "jackline-wake-ab.timer", "jackline-wake-ab.service"):
        (units / name).write_text("[Unit]\n")


@POSIX
@pytest.mark.skipif(sys.platform == "darwin", reason="the units are systemd's")
def test_all_is_as_it_was_byte_for_byte(place: Place) -> None:
    before = files(place.folder)
    set_up(place)
    assert files(place.folder) != before
    shown = place.jackline("uninstall", "--state", "--dry-run")
    assert shown.code == 0
    assert place.answers(), "nothing was changed"
    for part in ("login service", "wakes run ab", "the gateway at", "plugin of Claude Code"):
        assert part in shown.out
    for part in ("settings of claude-code", "settings of codex", "all that was saved"):
        assert part in shown.out
    done = place.jackline("uninstall", "--state", "--yes")
    assert (done.code, done.out) == (0, shown.out), done.err
    assert files(place.folder) == before
    assert not place.answers()
    again = place.jackline("uninstall", "--state", "--yes")
    assert (again.code, again.out, again.err) == (0, "", "there is nothing to undo\n")


@POSIX
def test_without_state_what_was_saved_stays_and_is_named(place: Place) -> None:
    set_up(place)
    done = place.jackline("uninstall", "--yes")
    assert done.code == 0, done.err
    assert f"stays: what was saved, in {place.state.folder}" in done.err
    left = files(place.folder / "state")
    assert {"salt", "journal.db"} <= set(left)
    assert "connected.json" not in left
    assert (place.folder / "home" / "claude" / "settings.json").read_bytes() == CLAUDE
    assert (place.folder / "home" / "codex" / "config.toml").read_bytes() == CODEX


@POSIX
def test_nobody_who_did_not_agree_loses_anything(place: Place) -> None:
    set_up(place)
    before = files(place.folder / "home")
    codes = [place.jackline("uninstall", *words).code for words in ((), ("--json",))]
    shown = place.jackline("uninstall", "--dry-run", "--json")
    assert ([*codes, shown.code], files(place.folder / "home")) == ([2, 2, 0], before)
    assert place.answers()
    document = json.loads(shown.out)
    assert document["schema"] == "jackline.uninstall/1"
    assert len(document["parts"]) >= 5
    assert document["failed"] == []


@POSIX
def test_what_was_changed_since_stays_with_the_copy_of_the_file(place: Place) -> None:
    assert place.jackline("connect", "claude-code", "--no-plugin").code == 0
    file = place.folder / "home" / "claude" / "settings.json"
    settings = json.loads(file.read_text())
    settings["env"]["ENABLE_TOOL_SEARCH"] = "mine"
    settings["new"] = True
    file.write_text(json.dumps(settings))
    done = place.jackline("uninstall", "--yes")
    assert done.code == 0
    assert "env.ENABLE_TOOL_SEARCH" in done.err
    left = json.loads(file.read_text())
    assert left == {"b": 1, "a": [1, 2], "new": True,
                    "env": {"X": "1", "ENABLE_TOOL_SEARCH": "mine"}}  # fmt: skip
    assert (file.parent / "settings.json.before-jackline").read_bytes() == CLAUDE


@POSIX
def test_disconnect_alone_gives_the_bytes_back_too(place: Place) -> None:
    for client, name, text in (
        ("claude-code", "claude/settings.json", CLAUDE),
        ("codex", "codex/config.toml", CODEX),
    ):
        file = place.folder / "home" / name
        assert place.jackline("connect", client, "--no-plugin").code == 0
        assert file.read_bytes() != text
        assert place.jackline("disconnect", client).code == 0
        assert file.read_bytes() == text


def test_the_timers_that_are_set_are_found_by_their_files(tmp_path: Path) -> None:
    where = {"XDG_CONFIG_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    assert set_timers(home=tmp_path, environ=where) == []
    for run_id in ("a1", "b-2"):
        timer = timer_removal(run_id, home=tmp_path, environ=where)
        for step in timer.install:
            if isinstance(step, Write):
                step.apply()
    assert set_timers(home=tmp_path, environ=where) == ["a1", "b-2"]


@POSIX
def test_connect_asks_nobody_who_is_not_there(place: Place) -> None:
    file = place.folder / "home" / "claude" / "settings.json"
    asked = place.jackline("connect", "claude-code")
    assert asked.code == 0
    assert "next:  jackline plugin install" in asked.err
    assert "enabledPlugins" not in json.loads(file.read_text())
    assert place.jackline("connect", "claude-code", "--plugin").code == 0
    assert json.loads(file.read_text())["enabledPlugins"] == {"jackline@jackline": True}
    again = place.jackline("connect", "claude-code")
    assert "plugin" not in again.err
    wrong = place.jackline("connect", "codex", "--plugin")
    assert (wrong.code, "there is no plugin for codex" in wrong.err) == (2, True)
