"""Sharing work between processes gives the same answers as doing it alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jackline.events import Event, TranscriptsRead
from jackline.transcripts import reader
from jackline.transcripts.reader import read
from jackline.transcripts.sources import find
from tests.transcripts.transcript_data import DATA, NOWHERE

FORKS = sys.platform == "linux"


def to_nobody(_count: int) -> None:
    """Hear nothing."""


def test_little_work_is_done_alone_and_told_step_by_step() -> None:
    heard: list[int] = []
    answers = list(reader.share(lambda n: n * n, [1, 2, 3], [1, 1, 1], reached=heard.append))
    assert answers == [1, 4, 9]
    assert heard == [1, 2, 3]


@pytest.mark.skipif(not FORKS, reason="work is shared on Linux only")
def test_shared_answers_come_in_the_order_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_can_share", lambda: True)
    work = list(range(500))
    sizes = [1 << 20] * len(work)
    heard: list[int] = []
    shared = list(reader.share(lambda n: (n, n % 7), work, sizes, reached=heard.append))
    assert shared == [(n, n % 7) for n in work]
    assert heard[-1] == len(work)


@pytest.mark.skipif(not FORKS, reason="work is shared on Linux only")
def test_work_of_a_helper_that_died_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first_process = os.getpid()

    def do(number: int) -> int:
        if os.getpid() != first_process:
            os._exit(7)
        return -number

    monkeypatch.setattr(reader, "_can_share", lambda: True)
    sizes = [8 << 20] * 40
    assert list(reader.share(do, list(range(40)), sizes, reached=to_nobody)) == [
        -n for n in range(40)
    ]


@pytest.mark.skipif(not FORKS, reason="work is shared on Linux only")
def test_stories_are_the_same_whoever_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = find([str(DATA)], stores=NOWHERE)
    alone = read(sources)
    monkeypatch.setattr(reader, "_can_share", lambda: True)
    monkeypatch.setattr(reader, "WORTH_A_HELPER", 0)
    monkeypatch.setattr(reader, "BATCH", 50_000)
    assert read(sources) == alone


def test_progress_ends_with_everything_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"type":"user","sessionId":"s"}\n')
    heard: list[Event] = []
    sources = find([str(tmp_path)], stores=NOWHERE)
    read(sources, announce=heard.append)
    size = sources[0].size
    assert heard == [TranscriptsRead(1, 1, size, size)]
