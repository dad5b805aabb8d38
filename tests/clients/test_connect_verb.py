"""`connect` warns of what would go wrong, and `disconnect` reports only what it did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_processes

RESPONSES = '[[upstream]]\npreset = "openai"\ncredential = "pass-through"\n'


def connect(folder: Path, upstreams: str, *words: str) -> subprocess.CompletedProcess[str]:
    config = folder / "jackline.toml"
    config.write_text(upstreams)
    return warm_processes.run(
        [sys.executable, "-m", "jackline", "connect", "codex", "--dry-run", *words],
        env={
            **os.environ,
            "HOME": str(folder),
            "CODEX_HOME": str(folder / "codex"),
            "JACKLINE_CONFIG": str(config),
            "JACKLINE_STATE": str(folder / "state"),
        },
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize(("upstreams", "warned"), [("", True), (RESPONSES, False)])
def test_codex_is_warned_of_a_gateway_that_cannot_answer_it(
    upstreams: str, warned: bool, tmp_path: Path
) -> None:
    reported = connect(tmp_path, upstreams)
    assert ("jackline upstream add openai" in reported.stderr) == warned
    as_json = json.loads(connect(tmp_path, upstreams, "--json").stdout)
    assert (as_json["warning"] is not None) == warned


def claude(folder: Path, verb: str, state: str) -> subprocess.CompletedProcess[str]:
    """Connect or disconnect Claude Code by a service with that state folder."""
    return warm_processes.run(
        [sys.executable, "-m", "jackline", verb, "claude-code"],
        env={
            **os.environ,
            "HOME": str(folder),
            "CLAUDE_CONFIG_DIR": str(folder / "claude"),
            "XDG_CONFIG_HOME": str(folder),
            "JACKLINE_STATE": str(folder / state),
        },
        capture_output=True,
        text=True,
        check=True,
    )


def test_what_was_connected_by_a_service_that_is_gone_can_be_undone(
    tmp_path: Path,
) -> None:
    """Whoever tried it with a state folder of its own and deleted that is not stuck with it."""
    settings = tmp_path / "claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model": "opus", "env": {"MINE": "1"}}')
    claude(tmp_path, "connect", "tried")
    assert "ANTHROPIC_BASE_URL" in settings.read_text()
    reported = claude(tmp_path, "disconnect", "another")
    assert "calls its vendor directly" in reported.stderr
    assert json.loads(settings.read_text()) == {"model": "opus", "env": {"MINE": "1"}}


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:4000", "https://llm.example.com", "http://[no"]
)
def test_an_address_that_is_not_ours_stays_and_is_not_reported_as_the_vendors(
    address: str, tmp_path: Path
) -> None:
    settings = tmp_path / "claude" / "settings.json"
    settings.parent.mkdir()
    theirs = {"env": {"ANTHROPIC_BASE_URL": address}}
    settings.write_text(json.dumps(theirs))
    for connected in (False, True):
        if connected:
            claude(tmp_path, "connect", "state")
        reported = claude(tmp_path, "disconnect", "state").stderr
        assert f"ANTHROPIC_BASE_URL is still {address} in it" in reported
        assert "directly" not in reported
        assert json.loads(settings.read_text()) == theirs


def test_a_file_that_was_made_by_connecting_leaves_nothing_behind(tmp_path: Path) -> None:
    """A copy of it would bear the name of what was before Jackline, and connect whoever took it."""
    claude(tmp_path, "connect", "state")
    assert "before" not in claude(tmp_path, "disconnect", "state").stderr
    assert list((tmp_path / "claude").iterdir()) == []
