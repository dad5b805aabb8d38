"""The demo says only what its ledger says, passes as a drill does, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from jackline.drills.demo import DEMO, SCENES, describe
from jackline.drills.evaluation import Figures, RunEvidence
from tests.cli.commands import jackline
from tests.cli.gateways import PATIENCE
from tests.hiccups import tried_again_after_a_hiccup

# At its speed a standstill of so long is three seconds of silence.
HICCUP = 0.4
PAGE = re.compile(r"The page: (http://127\.0\.0\.1:\d+) ")


def figures(**numbers: int) -> Figures:
    """A side in which nothing has happened but this."""
    (part,) = DEMO.crews
    nothing = RunEvidence(part, 1.0).figures()
    return replace(nothing, **numbers)  # type: ignore[arg-type]


@tried_again_after_a_hiccup(HICCUP)
def test_it_is_shown_scene_by_scene_and_all_agents_get_through(tmp_path: Path) -> None:
    state = tmp_path / "state"
    shown = jackline("demo", "--fast", "--no-open", env={"JACKLINE_STATE": str(state)})
    assert shown.code == 0, shown.out + shown.err
    titles = [title for scene in SCENES for title in (scene.title, scene.over)]
    places = [shown.out.index(title) for title in titles]
    assert places == sorted(places)
    assert re.search(r"agents finished +0 of 8 +8 of 8", shown.out)
    assert re.search(r"errors that clients saw +8 +0\n", shown.out)
    assert "MISS" not in shown.out
    # What the sentences count since each scene began cannot be more than the ledger has in all.
    ours = [line for line in shown.out.splitlines() if line.startswith("      Jackline")]
    wasted = re.search(r"of these wasted +\d+ +(\d+)", shown.out)
    counts = [int(n) for line in ours[1::2] for n in re.findall(r"(\d+) requests? failed", line)]
    assert wasted is not None
    assert 0 < sum(counts) <= int(wasted[1])
    assert all("no errors reached an agent" in line for line in ours)
    assert "straight  8 of 8 agents were dead before it began." in shown.out
    assert "and reports: “0 of 8 agents answering, 8 parked until" in shown.out
    assert not state.exists(), "the user's own state is not touched"
    is_gone(shown.out)


def is_gone(output: str) -> None:
    """Nobody listens at the page's address any more."""
    page = PAGE.search(output)
    assert page is not None, output
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page[1], timeout=10)  # noqa: S310 -- the demo's own


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_ctrl_c_ends_it_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """In real time, where the gateway is a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "jackline", "demo", "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "The page: " not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], "it ended early"
        page = PAGE.search(lines[-1])
        assert page is not None
        with urllib.request.urlopen(f"{page[1]}/_jackline/status", timeout=60) as answer:  # noqa: S310
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in errors
    is_gone(lines[-1])
    assert list(tmp_path.glob("jackline-*")) == [], "its folders are deleted"


def test_a_port_in_use_is_reported_before_anything_begins() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        answer = jackline("demo", "--no-open", "--port", str(used.getsockname()[1]))
    assert answer.code == 2
    assert "cannot be used" in answer.err


def test_a_browser_is_opened_only_when_wanted(tmp_path: Path) -> None:
    """Without a terminal there is no question, and nobody's browser starts."""
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n", "utf-8")
    browser.chmod(0o700)
    shown = jackline("demo", "--fast", env={"BROWSER": str(browser)}, stdin=b"")
    assert PAGE.search(shown.out)
    assert not (tmp_path / "started").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pseudo-terminals")
@pytest.mark.parametrize("answer", ["n", "y"])
def test_on_a_terminal_it_asks_before_it_opens_a_browser(answer: str, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/started\n', "utf-8")
    browser.chmod(0o700)
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "jackline", "demo", "--fast"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "BROWSER": f"{browser} %s"},
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + PATIENCE
        try:
            while b"STORM" not in shown and time.monotonic() < deadline:
                if select.select([ours], [], [], 0.5)[0]:
                    shown += os.read(ours, 1000)
                elif b"The page: " not in shown:
                    # What comes before the question is quite ready is thrown away.
                    os.write(ours, f"{answer}\n".encode())
        finally:
            process.kill()
    os.close(ours)
    assert shown.index(b"in your browser?") < shown.index(b"8 agents do the same work")
    page = PAGE.search(shown.decode())
    assert page is not None
    started = tmp_path / "started"
    assert (started.read_text().strip() if started.exists() else "") == (
        page[1] if answer == "y" else ""
    )


def test_a_side_that_was_dead_before_is_said_to_be_so() -> None:
    dead = figures(agents=8, died=8, unfinished=0, requests=9)
    assert describe(dead, dead) == "8 of 8 agents were dead before it began."


def test_what_went_wrong_on_our_side_is_said_as_well() -> None:
    before = figures(agents=8, unfinished=8)
    now = figures(agents=8, unfinished=7, died=1, errors_seen=1, wasted=3, sent_into_the_wall=2)
    assert describe(before, now) == (
        "7 of 8 agents are alive; 1 died; 1 error reached an agent;"
        " 3 requests failed at the provider; 2 requests went into the known wall."
    )
