"""`jackline logs` without an ID: what the service did, from its journal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackline.cli.journal_views import LogFollower, latest
from jackline.control.event_lines import event_from
from jackline.events import Event, LaneChanged, ServiceNoted
from jackline.journal import Journal, JournalReader
from jackline.lane_id import LaneId
from jackline.testing import SimulatedProvider
from tests.cli.commands import jackline
from tests.cli.gateways import PATIENCE, Place, call, until
from tests.planted import KEY, PROMPT


def save(path: Path, *events: Event) -> None:
    with Journal(path) as journal:
        for event in events:
            journal.announce(event)
        assert journal.flush()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with SimulatedProvider() as provider:
        yield Place(tmp_path, provider.url)


def test_without_a_journal_it_says_what_to_do(tmp_path: Path) -> None:
    done = jackline("logs", "--state", tmp_path / "none")
    assert done.code != 0
    assert "jackline up" in done.err


def test_calls_lanes_and_notes_are_reported_in_their_order_and_json_is_replayable(
    place: Place,
) -> None:
    with place.up():
        assert call(place.url).status == 200
        until(lambda: "call answered" in place.jackline("logs").out, "the call in the journal")
        text = place.jackline("logs").out
        lines = place.jackline("logs", "--json").out.splitlines()
    assert text.index("service started") < text.index("call answered")
    events = [event_from(json.loads(line)) for line in lines]
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert KEY not in text + "".join(lines)
    assert PROMPT not in text + "".join(lines)


def test_only_the_latest_are_reported(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    save(journal, *(ServiceNoted(float(number), f"note {number}") for number in range(10)))
    with JournalReader(journal) as reader:
        assert [event.at for event in latest(reader, 0.0, 3)] == [7.0, 8.0, 9.0]


def test_following_shows_each_event_once_also_one_that_was_written_late(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    first, second = ServiceNoted(100.0, "first"), ServiceNoted(103.0, "second")
    late = LaneChanged(101.0, LaneId("a", "m", "1"), "open", "", None)
    save(journal, first)
    following = LogFollower(100.0, [first])

    def news() -> list[Event]:
        with JournalReader(journal) as reader:
            return list(following.new_events(reader, 1000))

    assert news() == []
    save(journal, second)
    assert news() == [second]
    save(journal, late)
    assert news() == [late]
    assert news() == []


@pytest.mark.skipif(os.name == "nt", reason="the signal is sent as POSIX knows it")
def test_follow_goes_on_as_things_happen_until_it_is_interrupted(place: Place) -> None:
    with place.up():
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "jackline", "logs", "-f"],
            env={**os.environ, **place.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        lines: list[bytes] = []
        assert process.stdout is not None
        reader = threading.Thread(target=lines.extend, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            call(place.url)
            until(lambda: any(b"call answered" in line for line in lines), "the call")
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 130
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            reader.join(PATIENCE)
            process.stdout.close()
            if process.stderr is not None:
                process.stderr.close()
    assert sum(b"call answered" in line for line in lines) == 1
