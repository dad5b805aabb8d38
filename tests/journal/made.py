"""Events to be journaled, plain ones and any that could be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from jackline.events import AttemptFailed, CallEnded, LaneChanged, LanesLearned, ServiceNoted
from jackline.journal import Journal, JournalReader, JournalSettings
from jackline.lane_id import LaneId

NOON = 1_800_000_000.0
FOREVER = 1e18
# Trouble is seen at once, and nothing is tried again by itself during a test: `flush` does.
AT_ONCE = JournalSettings(lock_seconds=0.0, retry_first=3600.0, retry_longest=3600.0)
# No test waits for this long; it only keeps a broken one from hanging.
PATIENCE = 60.0


def call(number: int = 0, *, at: float = NOON, outcome: str = "answered") -> CallEnded:
    return CallEnded(
        at=at,
        call=f"call-{number}",
        outcome=outcome,
        lane=LaneId("anthropic", "opus"),
        model="claude-opus",
        session="a session",
        agent=None,
        parent=None,
        tag=None,
        stream=True,
        status=200,
        attempts=1,
        waited=0.0,
        took=1.5,
        request_id="req_1",
        input_tokens=10,
        output_tokens=20,
        cache_read_tokens=30,
        cache_write_tokens=40,
        wasted_input_tokens=50,
        wasted_output_tokens=60,
        cache_write_1h_tokens=15,
    )


def attempt(number: int = 0, *, at: float = NOON) -> AttemptFailed:
    return AttemptFailed(
        at,
        f"call-{number}",
        LaneId("anthropic", "opus"),
        "throttled",
        None,
        429,
        "req_1",
        0.2,
        None,
        "reported so",
    )


def change(*, at: float = NOON, state: str = "parked") -> LaneChanged:
    return LaneChanged(at, LaneId("anthropic", "opus"), state, "a wall", at + 60)


def written(journal: Journal) -> None:
    assert journal.flush(PATIENCE), journal.health


def until(journal: Journal, condition: Callable[[], bool]) -> None:
    """Wait for what the writer does by itself."""
    for _ in range(6000):
        if condition():
            return
        journal._thread.join(0.01)
    raise AssertionError(f"it did not come: {journal.health}")


def saved_calls(path: Path) -> list[CallEnded]:
    """All calls in the journal, in the order in which they were written."""
    with JournalReader(path) as reader:
        return reader.calls(-FOREVER, FOREVER, 1_000_000)[::-1]


def saved_numbers(path: Path) -> list[int]:
    return [int(saved.call.removeprefix("call-")) for saved in saved_calls(path)]


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_maybe_text = st.none() | _text
_time = st.floats(-1e12, 1e12)
_whole = st.integers(-(2**63), 2**63 - 1)
_tokens = st.integers(0, 2**40)

_lane = st.builds(LaneId, _text.filter(bool), _text, _text)
any_call = st.builds(
    CallEnded,
    at=_time,
    call=_text,
    outcome=_text,
    lane=st.none() | _lane,
    model=_text,
    session=_maybe_text,
    agent=_maybe_text,
    parent=_maybe_text,
    tag=_maybe_text,
    stream=st.booleans(),
    status=st.none() | _whole,
    attempts=_tokens,
    waited=_time,
    took=_time,
    request_id=_maybe_text,
    input_tokens=_tokens,
    output_tokens=_tokens,
    cache_read_tokens=_tokens,
    cache_write_tokens=_tokens,
    wasted_input_tokens=_tokens,
    wasted_output_tokens=_tokens,
    cache_write_1h_tokens=_tokens,
)
any_attempt = st.builds(
    AttemptFailed,
    at=_time,
    call=_text,
    lane=_lane,
    kind=_text,
    sub=_maybe_text,
    status=st.none() | _whole,
    request_id=_maybe_text,
    took=_time,
    resets_at=st.none() | _time,
    why=_text,
)
any_change = st.builds(
    LaneChanged, at=_time, lane=_lane, state=_text, why=_text, until=st.none() | _time
)
any_memory = st.builds(LanesLearned, at=_time, memory=st.binary(max_size=200))
any_note = st.builds(ServiceNoted, at=_time, what=_text, detail=_text)
any_events = st.lists(any_call | any_attempt | any_change | any_memory | any_note, max_size=120)
