"""A terminal cuts no word at its edge, and times are as long ago as people count."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.cli.terminal import _wrapped_line, wrapped
from jackline.control.text import ago_text

words = st.text("ab-/.é中", min_size=1, max_size=30)


@given(st.lists(words, min_size=1, max_size=20), st.integers(20, 80), st.integers(0, 12))
def test_lines_end_between_words_and_no_word_is_lost(
    found: list[str], width: int, indent: int
) -> None:
    line = "  " + " ".join(found)
    lines = _wrapped_line(line, width, indent).split("\n")
    assert " ".join(lines).split() == found
    for each in lines:
        assert len(each) <= width or len(each.split()) == 1


def test_a_pipe_gets_one_line_per_fact() -> None:
    text = "word " * 100
    assert wrapped(text, io.StringIO()) == text


@pytest.mark.skipif(os.name == "nt", reason="a pseudo-terminal is what POSIX has")
@pytest.mark.parametrize("columns", [24, 50])
def test_an_error_on_a_terminal_is_wrapped_at_word_ends(columns: int, tmp_path: Path) -> None:
    import pty  # noqa: PLC0415 -- only there

    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "jackline", "status", "--port", "1"],
        env={**os.environ, "COLUMNS": str(columns), "JACKLINE_STATE": str(tmp_path / "state")},
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    os.close(theirs)
    shown = os.read(ours, 65536).decode().replace("\r\n", "\n")
    os.close(ours)
    assert done.returncode == 5
    lines = shown.splitlines()
    assert len(lines) > 2
    assert all(len(line) <= columns for line in lines)
    assert " ".join(shown.split()).startswith("error: no gateway of yours runs at port 1 hint:")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "just now"),
        (-5, "just now"),
        (1, "1 s ago"),
        (59.9, "59 s ago"),
        (200, "3 min ago"),
        (3 * 3600 + 1, "3 h ago"),
        (9 * 86_400, "9 d ago"),
    ],
)
def test_past_times_are_relative_and_exact_on_demand(seconds: float, text: str) -> None:
    now = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
    at = now.timestamp() - seconds
    assert ago_text(at, now) == text
    assert "UTC" in ago_text(at, now, exact=True)
