"""A run of Codex is a completion exactly when its last turn completed with a message."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.agents.codex import CodexOutput
from jackline.agents.outcome import Ending
from jackline.agents.process.program import Broken, Done, Failed, ProcessExit, ProgramEvent, Verdict
from jackline.agents.runner import ending_of

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def event(kind: str, **more: Any) -> bytes:
    return json.dumps({"type": kind, **more}).encode() + b"\n"


def message(words: str) -> bytes:
    item = {"id": "item_0", "type": "agent_message", "text": words}
    return event("item.completed", item=item)


BEGIN = event("thread.started", thread_id="01a1") + event("turn.started")
COMPLETED = event("turn.completed", usage={"input_tokens": 9, "cached_input_tokens": 4})
RUNS = event("item.started", item={"id": "item_1", "type": "command_execution"})
LINES = [
    event("turn.started"),
    message("Words."),
    RUNS,
    event("error", message="Reconnecting... 1/5"),
    event("turn.failed", error={"message": "We're currently experiencing high demand"}),
    COMPLETED,
    b"not JSON\n",
    b'{"type":"item.completed","item":3}\n',
]
STREAMS = st.lists(st.sampled_from(LINES), max_size=10).map(b"".join)
ENDS = st.sampled_from([ProcessExit(0), ProcessExit(1), ProcessExit(-9), ProcessExit(None)])


def received(*pieces: bytes, schema: bool = False) -> tuple[CodexOutput, list[ProgramEvent]]:
    printed = CodexOutput("gpt-5.5", schema=schema)
    return printed, [news for piece in pieces for news in printed.feed(piece)]


def verdict(*lines: bytes, code: int = 0, schema: bool = False) -> Verdict:
    return received(*lines, schema=schema)[0].judge(ProcessExit(code), now=NOW)


@given(STREAMS, st.lists(st.integers(0, 2000), max_size=6), ENDS)
def test_a_verdict_does_not_depend_on_how_the_bytes_came(
    stream: bytes, places: list[int], ended: ProcessExit
) -> None:
    ends = [*sorted(min(place, len(stream)) for place in places), len(stream)]
    pieces = [stream[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    whole, in_pieces = received(stream), received(*pieces)
    assert whole[1] == in_pieces[1]
    assert whole[0].judge(ended, now=NOW) == in_pieces[0].judge(ended, now=NOW)


@given(st.lists(st.sampled_from(LINES[:4]), max_size=6).map(b"".join), st.integers(0, 5000), ENDS)
def test_a_run_that_is_cut_off_anywhere_before_its_turn_completed_is_no_completion(
    before: bytes, place: int, ended: ProcessExit
) -> None:
    stream = BEGIN + before + message("Last.") + COMPLETED
    cut = stream[: place % len(stream)]
    assert not isinstance(received(cut)[0].judge(ended, now=NOW), Done)


@given(STREAMS, ENDS)
def test_a_completion_ended_well_with_a_completed_turn_and_words(
    stream: bytes, ended: ProcessExit
) -> None:
    printed, _ = received(stream)
    if isinstance(printed.judge(ended, now=NOW), Done):
        turns = [line for line in stream.splitlines(keepends=True) if b'"turn.' in line]
        assert ended.exit_code == 0
        assert turns[-1] == COMPLETED


def test_the_last_message_is_the_answer() -> None:
    done = verdict(BEGIN, message("First."), RUNS, message('{"x": 1}'), COMPLETED, schema=True)
    assert done == Done('{"x": 1}', {"x": 1})
    fenced = verdict(BEGIN, message('```json\n{"x": 1}\n```'), COMPLETED, schema=True)
    assert isinstance(fenced, Done)
    assert fenced.tool_input == {"x": 1}
    prose = verdict(BEGIN, message("One, I think."), COMPLETED, schema=True)
    assert prose == Done("One, I think.", None)


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        ("You've hit your usage limit. Try again at 8:02 PM.", Ending.QUOTA),
        ("Quota exceeded. Check your plan and billing details.", Ending.QUOTA),
        ("We're currently experiencing high demand, which may cause temporary errors.", "outage"),
    ],
)
def test_a_failed_turn_is_a_failure_by_its_words(words: str, ending: str) -> None:
    failed = verdict(
        BEGIN, event("error", message=words), event("turn.failed", error={"message": words}), code=1
    )
    assert isinstance(failed, Failed)
    assert ending_of(failed.failure) == ending


def test_a_completed_turn_without_a_word_is_a_truncation() -> None:
    failed = verdict(BEGIN, RUNS, COMPLETED)
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "truncated_stream"


def test_an_end_that_nothing_explains_is_told_by_its_exit() -> None:
    assert isinstance(verdict(BEGIN, message("x"), COMPLETED, code=101), Broken)
    broken = verdict(BEGIN, message("x"), code=-9)
    assert isinstance(broken, Broken)
    assert "SIGKILL" in broken.says
