"""`jackline status --watch`: true, readable at 80 columns, and left cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from jackline.cli.fleet_screen import frame
from jackline.states import AgentState, LaneState
from jackline.testing import SimulatedProvider
from tests.cli.gateways import PATIENCE, Place, call, until

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
AT = NOW.timestamp()


def lane(state: str = "open", **more: Any) -> dict[str, Any]:
    row = {"name": "anthropic/opus", "state": state, "why": "", "until": None, "in_flight": 3}
    return {**row, "window": 8, "waiting": 0, "limits": {}, "paused": False, **more}


def agent(state: str, **more: Any) -> dict[str, Any]:
    row = {"session": "s1", "agent": "a1", "label": "", "tag": "", "model": "opus", "lane": "l"}
    sums = {"calls": 4, "failed": 0, "tokens": 1234, "waited": 0.0}
    return {**row, **sums, "state": state, "why": "", "since": AT - 12, "until": None, **more}


def document(**more: Any) -> dict[str, Any]:
    spend = {"dollars_today": 3.0, "dollars_per_hour": 1.5}
    return {
        "url": "http://127.0.0.1:8766",
        "verdict": "1 call running, none waiting.",
        "lanes": [lane()],
        "agents_by_state": {doing.value: 0 for doing in AgentState},
        "agents": [],
        "more_agents": 0,
        "spend": {**spend, "tokens_today": 12_345_678, "unpriced_tokens_today": 0},
        "runs": [],
        "forecast": [],
        **more,
    }


def drawn(reported: dict[str, Any], width: int = 80, height: int = 200) -> str:
    return frame(reported, NOW, width, height).plain


def test_the_verdict_comes_first_and_words_are_not_split() -> None:
    words = (
        "20 calls running, 9 waiting. " + "anthropic/opus is parked until 12:13 (in 13 min). " * 3
    )
    lines = drawn(document(verdict=words)).splitlines()
    assert " ".join(lines[1:5]).startswith("20 calls running, 9 waiting. anthropic/opus is parked")
    assert all(len(line) <= 80 for line in lines)


def test_whatever_waits_says_why_and_until_when() -> None:
    waiting = agent("parked", until=AT + 780, why="the 5-hour limit is used up")
    text = drawn(document(agents=[waiting], lanes=[lane("parked", until=AT + 780)]), width=200)
    assert text.count("until 12:13 UTC (in 13 min)") == 2
    assert "the 5-hour limit is used up" in text


def test_every_state_is_shown_by_a_glyph_and_its_name() -> None:
    for state in AgentState:
        line = next(x for x in drawn(document(agents=[agent(state)])).splitlines() if "a1" in x)
        assert state.value in line
        assert "·" not in line
    for lane_state in LaneState:
        line = next(
            x for x in drawn(document(lanes=[lane(lane_state)])).splitlines() if "opus" in x
        )
        assert f"{lane_state.value}  3 of 8" in line
        assert "·" not in line


def test_runs_and_forecast_are_reported() -> None:
    run = {"run": "r1", "flow": "many", "state": "parked", "why": "quota", "wake_at": AT + 60}
    run |= {"counts": "3 of 4 agents ok, 1 failed", "cost": 1.25}
    window = {"window": "5h", "used": 0.62, "resets_at": AT + 7200, "ends_at": AT + 3600}
    text = drawn(document(runs=[run], forecast=[window]), width=120)
    assert "r1  many  parked, until 12:01" in text
    assert "3 of 4 agents ok, 1 failed; $1.25; quota" in text
    assert "5h window 62% used, refills 14:00 UTC; at this pace it ends at 13:00 UTC" in text


def test_a_large_fleet_is_cut_and_says_so() -> None:
    crowd = [agent("answering", agent=f"a{number}") for number in range(400)]
    text = drawn(document(agents=crowd), height=24)
    assert len(text.splitlines()) <= 24
    assert "more" in text
    assert "burn" in text


names = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=60)


@given(
    st.lists(st.tuples(st.sampled_from(list(AgentState)), names, names), max_size=12),
    names,
    st.integers(min_value=20, max_value=200),
    st.integers(min_value=5, max_value=60),
)
def test_no_line_is_longer_than_the_terminal_and_no_picture_taller(
    crowd: list[tuple[AgentState, str, str]], verdict: str, width: int, height: int
) -> None:
    agents = [agent(doing, label=label, why=why) for doing, label, why in crowd]
    lines = drawn(document(agents=agents, verdict=verdict or "x"), width, height).split("\n")
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)


# --- the real thing -------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with SimulatedProvider() as provider:
        yield Place(tmp_path, provider.url)


def test_without_a_gateway_it_says_what_to_do(place: Place) -> None:
    done = place.jackline("status", "--watch")
    assert done.code == 5
    assert "jackline up" in done.err


def test_once_and_json_tell_the_same_as_status(place: Place) -> None:
    with place.up():
        assert call(place.url).status == 200
        status = place.status()
        reported = json.loads(place.jackline("status", "--watch", "--json").out)
        once = place.jackline("status", "--watch")
    assert reported["schema"] == "jackline.fleet/1"
    assert reported["verdict"] == status["verdict"]
    assert [row["name"] for row in reported["lanes"]] == [row["name"] for row in status["lanes"]]
    assert status["verdict"] in " ".join(once.out.split())
    assert "\x1b" not in once.out
    assert all(len(line) <= 80 for line in once.out.splitlines())


@pytest.mark.skipif(os.name == "nt", reason="a pseudo-terminal is what POSIX has")
@pytest.mark.parametrize("leave", ["q", "ctrl-c"])
def test_q_and_ctrl_c_leave_with_the_terminal_as_it_was(place: Place, leave: str) -> None:
    import pty  # noqa: PLC0415 -- only there
    import termios  # noqa: PLC0415

    with place.up():
        ours, theirs = pty.openpty()
        before = termios.tcgetattr(theirs)
        process = subprocess.Popen(
            [sys.executable, "-m", "jackline", "status", "--watch", "--every", "0.2"],
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **place.env},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        shown = bytearray()
        reader = threading.Thread(target=_read_all, args=(ours, shown), daemon=True)
        reader.start()
        try:
            until(lambda: b"Nothing is under way" in shown, "the first frame")
            if leave == "q":
                os.write(ours, b"q")
            else:
                process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
            after = termios.tcgetattr(theirs)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            os.close(theirs)
            reader.join(PATIENCE)
            os.close(ours)
    assert after == before
    assert b"\x1b[?1049l" in shown, "the screen that was there before is shown again"
    assert b"Traceback" not in shown


def _read_all(file: int, into: bytearray) -> None:
    while True:
        try:
            data = os.read(file, 65536)
        except OSError:
            return  # the other end was closed
        if not data:
            return
        into += data
