"""A run of Claude Code is a completion exactly when its answer is there and whole."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.agents.claude_code.printed_output import ClaudeOutput
from jackline.agents.outcome import Ending
from jackline.agents.process.program import (
    AnswerPart,
    Broken,
    Done,
    Failed,
    Incomplete,
    ProcessExit,
    ProgramEvent,
    SessionOpened,
    ToolResulted,
    Verdict,
)
from jackline.agents.runner import ending_of
from jackline.dialects import TokenUsage
from tests.agents.claude_code.streams import (
    call,
    init,
    line,
    result,
    resulted,
    retried,
    said,
    synthetic,
    task_ended,
    task_started,
    text,
)

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
LINES = [
    init(),
    said("m1", text("I look.")),
    said("m1", call("t1", command="ls")),
    resulted("t1", "a.py"),
    said("s1", text("A sub-agent's words."), parent="t9"),
    retried(),
    synthetic("API Error: 529 Overloaded", "overloaded"),
    synthetic("No response requested.", None),
    task_started("a1"),
    task_ended("a1", "completed"),
    task_ended("a1", "stopped"),
    b"Warning: something that is not JSON\n",
    b'{"type":"assistant","message":3}\n',
    b'{"type":"result"}\n',
    result(is_error=True, api_error_status=529, result="API Error: 529 Overloaded"),
    result(stop_reason=None),
    result(),
]
STREAMS = st.lists(st.sampled_from(LINES), max_size=12).map(b"".join)
ENDS = st.sampled_from([ProcessExit(0), ProcessExit(1), ProcessExit(-9), ProcessExit(None)])


def received(*pieces: bytes, schema: bool = False) -> tuple[ClaudeOutput, list[ProgramEvent]]:
    printed = ClaudeOutput(schema=schema)
    return printed, [news for piece in pieces for news in printed.feed(piece)]


def verdict(*lines: bytes, code: int = 0, schema: bool = False) -> Verdict:
    return received(*lines, schema=schema)[0].judge(ProcessExit(code), now=NOW)


def test_an_answer_that_calls_a_tool_is_no_word_of_the_clients_own() -> None:
    """An upstream that calls its model so would be followed and never paid."""
    message = {"id": "m1", "model": "<synthetic>", "content": [call("t1", command="ls")]}
    usage = {"input_tokens": 1000, "output_tokens": 1}
    line_ = line("assistant", message={**message, "usage": usage}, parent_tool_use_id=None)
    _, news = received(init(), line_)
    (part,) = [each for each in news if isinstance(each, AnswerPart)]
    assert (part.usage.input_tokens, [one.id for one in part.calls]) == (1000, ["t1"])
    assert part.model != "<synthetic>"


@given(STREAMS, st.lists(st.integers(0, 4000), max_size=6), ENDS, st.booleans())
def test_a_verdict_does_not_depend_on_how_the_bytes_came(
    stream: bytes, places: list[int], ended: ProcessExit, schema: bool
) -> None:
    ends = [*sorted(min(place, len(stream)) for place in places), len(stream)]
    pieces = [stream[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    whole, in_pieces = received(stream, schema=schema), received(*pieces, schema=schema)
    assert whole[1] == in_pieces[1]
    assert whole[0].judge(ended, now=NOW) == in_pieces[0].judge(ended, now=NOW)


@given(
    st.lists(st.sampled_from(LINES[:-3]), max_size=8).map(b"".join),
    st.integers(0, 100_000),
    ENDS,
    st.booleans(),
)
def test_a_run_that_is_cut_off_anywhere_before_its_result_is_whole_is_no_completion(
    before: bytes, place: int, ended: ProcessExit, schema: bool
) -> None:
    stream = before + result(structured_output={"points": 9})
    cut = stream[: place % len(stream)]
    assert not isinstance(received(cut, schema=schema)[0].judge(ended, now=NOW), Done)


@given(STREAMS, ENDS, st.booleans())
def test_a_completion_has_a_true_result_for_its_last_word(
    stream: bytes, ended: ProcessExit, schema: bool
) -> None:
    printed, _ = received(stream, schema=schema)
    if isinstance(printed.judge(ended, now=NOW), Done):
        results = [line for line in stream.splitlines(keepends=True) if b'"result"' in line]
        assert ended.exit_code == 0
        assert results[-1] == LINES[-1]
        assert not schema, "no structured output was in any of these"


@given(st.binary(max_size=300), ENDS)
def test_whatever_is_printed_is_judged_and_nothing_raises(noise: bytes, ended: ProcessExit) -> None:
    assert isinstance(received(noise)[0].judge(ended, now=NOW), Broken)


def test_a_good_run_is_done() -> None:
    assert verdict(init(), said("m1", text("x")), result()) == Done("The answer.")
    given_by_schema = verdict(
        result(structured_output={"x": 1}, stop_reason="tool_use"), schema=True
    )
    assert given_by_schema == Done("The answer.", {"x": 1})


def test_what_was_said_is_told_with_its_ids_and_its_cost() -> None:
    _, news = received(
        init(), said("m1", text("hi"), call("t1", command="ls")), resulted("t1", "a")
    )
    began, answered, came = news
    assert began == SessionOpened("11111111-1111-4111-8111-111111111111", "claude-opus-4-8[1m]")
    assert isinstance(answered, AnswerPart)
    assert (answered.id, answered.text, answered.usage) == ("m1", "hi", TokenUsage(3, 1, 10, 0))
    assert [one.id for one in answered.calls] == ["t1"]
    assert came == ToolResulted("t1", "a")


def test_the_last_of_several_results_counts() -> None:
    assert verdict(result(is_error=True), result()) == Done("The answer.")
    assert isinstance(verdict(result(), result(is_error=True), code=1), Failed | Broken)


def test_success_that_is_an_error_is_a_failure_by_its_words() -> None:
    words = "You've hit your session limit · resets 8:02am (UTC)"
    failed = verdict(
        retried(),
        synthetic(words),
        result(is_error=True, api_error_status=429, result=words),
        code=1,
    )
    assert isinstance(failed, Failed)
    assert ending_of(failed.failure) is Ending.QUOTA
    assert failed.failure.resets_at == datetime(2026, 11, 16, 8, 2, tzinfo=UTC)
    evidence = failed.evidence
    assert (evidence.status, evidence.request_id, evidence.attempts) == (429, "req_e", 2)
    assert "session limit" in failed.says


def test_an_error_as_the_last_word_is_a_failure_though_the_result_says_nothing_of_it() -> None:
    failed = verdict(synthetic("API Error: 529 Overloaded", "overloaded"), result())
    assert isinstance(failed, Failed)
    assert ending_of(failed.failure) is Ending.OUTAGE


def test_an_error_that_was_gone_on_from_is_forgotten() -> None:
    lines = (synthetic("API Error: 529 Overloaded"), said("m2", text("x")), result())
    assert isinstance(verdict(*lines), Done)


@pytest.mark.parametrize(
    ("subtype", "ending"),
    [("error_max_turns", Ending.TURNS), ("error_max_budget_usd", Ending.BUDGET)],
)
def test_limits_of_the_client_are_told_by_their_names(subtype: str, ending: Ending) -> None:
    failed = verdict(result(subtype=subtype, is_error=True, result=None), code=1)
    assert isinstance(failed, Failed)
    assert ending_of(failed.failure) is ending


@pytest.mark.parametrize("stop", [None, "max_tokens"])
def test_a_success_whose_answer_did_not_end_is_a_truncation(stop: str | None) -> None:
    failed = verdict(said("m1", text("half an ans")), result(stop_reason=stop))
    assert isinstance(failed, Failed)
    assert failed.failure.kind == "truncated_stream"


def test_a_refusal_is_no_answer() -> None:
    failed = verdict(result(stop_reason="refusal"))
    assert isinstance(failed, Failed)
    assert ending_of(failed.failure) is Ending.REFUSED


def test_a_success_without_the_structured_answer_is_owed_one() -> None:
    for owed in (
        verdict(result(), schema=True),
        verdict(
            result(is_error=True, subtype="error_max_structured_output_retries"),
            schema=True,
            code=1,
        ),
    ):
        assert isinstance(owed, Incomplete)
        assert owed.ending is Ending.SCHEMA


def test_an_api_failure_is_never_a_missing_answer() -> None:
    failed = verdict(
        synthetic("API Error: 500 Internal server error"),
        result(is_error=True, api_error_status=500, result="API Error: 500"),
        schema=True,
        code=1,
    )
    assert isinstance(failed, Failed)


def test_an_exit_code_that_contradicts_the_result_is_believed() -> None:
    broken = verdict(result(), code=143)
    assert isinstance(broken, Broken)
    assert "143" in broken.says


def test_an_agent_that_was_stopped_at_the_end_is_lost_unless_it_was_stopped_on_purpose() -> None:
    lost = verdict(task_started("a1"), task_ended("a1", "stopped"), result())
    assert isinstance(lost, Incomplete)
    assert "a1" in lost.prompt
    assert lost.ending is Ending.TOOL_ERROR
    assert isinstance(verdict(task_started("a1"), result()), Incomplete), "its end was never told"
    by_hand = said("m1", call("t1", "TaskStop", task_id="a1"))
    stopped = (task_started("a1"), by_hand, task_ended("a1", "stopped"), result())
    assert isinstance(verdict(*stopped), Done)
    assert isinstance(verdict(task_started("a1"), task_ended("a1", "completed"), result()), Done)


def test_a_killed_run_says_how_it_ended_and_shows_no_secret() -> None:
    ended = ProcessExit(
        -9, "some line\nbad key sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789\n"
    )
    broken = received(init())[0].judge(ended, now=NOW)
    assert isinstance(broken, Broken)
    assert "SIGKILL" in broken.says
    assert "abcdefghijklm" not in broken.says
