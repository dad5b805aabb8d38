"""Laws of a batch: own results, no cascade, needs, durable callbacks, cancellation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline import event_loop
from jackline.batches.batch import (
    AGAIN_EMPTY,
    AT_FIRST_EMPTY,
    NOT_REPEATED,
    OutputHistory,
    run_batch,
)
from jackline.batches.shell import ShellTool
from jackline.batches.tool import BatchCall, BatchReport, CallResult, MissingTool, ToolContext
from jackline.clock import VirtualClock
from tests.batches.scripted_tools import Scripted

T = TypeVar("T")
HERE = ToolContext(Path())


async def advanced(clock: VirtualClock, work: Coroutine[object, object, T]) -> T:
    """The result of `work`, with the clock moving whenever everybody waits."""
    task = asyncio.ensure_future(work)
    for _ in range(1_000):
        if task.done():
            break
        await clock.advance(1)
    return await task


def virtual() -> VirtualClock:
    return VirtualClock(datetime(2026, 1, 1, tzinfo=UTC))


def test_fourteen_parallel_commands_of_which_one_exits_3_give_thirteen_whole_results(
    tmp_path: Path,
) -> None:
    for number in range(14):
        (tmp_path / f"{number}.txt").write_text(f"content {number}\n")
    shell = ShellTool()
    calls = [
        BatchCall(f"toolu_{number}", shell, {"command": f"sleep 0.1; cat {number}.txt"})
        for number in range(14)
    ]
    calls[5] = BatchCall("toolu_5", shell, {"command": "grep nothing 5.txt; exit 3"})
    report = event_loop.run(run_batch(calls, context=ToolContext(tmp_path)))
    assert report.headline == "1 of 14 failed: grep (exit 3)"
    assert report.summary == "13 of 14 ok, 1 failed: grep (exit 3)"
    for number, result in enumerate(report):
        assert result.id == f"toolu_{number}"
        if number != 5:
            assert (result.ok, result.text) == (True, f"content {number}\n")
            assert result.what == f"shell: sleep 0.1; cat {number}.txt"
    assert (report["toolu_5"].exit_code, report["toolu_5"].skipped_because) == (3, None)
    assert report["toolu_5"].for_model == "[shell: grep nothing 5.txt; exit 3] failed: exit 3"


ENDS = st.sampled_from(["ok", "fail", "crash", "cancel", "leave", "hang"])
TIMEOUT = 50.0


@st.composite
def mixes(draw: st.DrawFn) -> list[tuple[str, str, float, tuple[str, ...]]]:
    """(id, ending, delay, needs) in any order, without circles."""
    count = draw(st.integers(0, 12))
    mix = []
    for number in range(count):
        earlier = [f"c{other}" for other in range(number)]
        needs = draw(st.lists(st.sampled_from(earlier), max_size=3, unique=True)) if earlier else []
        delay = draw(st.integers(0, 20).map(float))
        mix.append((f"c{number}", draw(ENDS), delay, tuple(needs)))
    return draw(st.permutations(mix))


@given(mixes(), st.integers(1, 5))
def test_any_mix_of_endings_delays_and_needs_gives_each_id_its_own_result_in_order(
    mix: list[tuple[str, str, float, tuple[str, ...]]], limit: int
) -> None:
    clock = virtual()
    tools = {call: Scripted(ending, delay, clock) for call, ending, delay, _ in mix}
    calls = [BatchCall(c, tools[c], {}, needs, timeout=TIMEOUT) for c, _, _, needs in mix]
    log: list[tuple[str, str]] = []
    running = most = 0

    async def began(call: BatchCall) -> None:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        log.append(("began", call.id))

    async def ended(call: BatchCall, result: CallResult) -> None:
        nonlocal running
        assert result.id == call.id
        running -= result.skipped_because is None
        log.append(("ended", call.id))

    work = run_batch(calls, context=HERE, limit=limit, began=began, ended=ended, clock=clock)
    report = event_loop.run(advanced(clock, work))

    assert [result.id for result in report] == [call.id for call in calls]
    wanted = {call: (ending, needs) for call, ending, _, needs in mix}
    oks: dict[str, bool] = {}
    for call in sorted(wanted, key=lambda name: int(name[1:])):
        ending, needs = wanted[call]
        result = report[call]
        runs = all(oks[need] for need in needs)
        oks[call] = runs and ending == "ok"
        assert result.ok == oks[call]
        assert (result.skipped_because is None) == runs == (tools[call].runs == 1)
        if ending in ("ok", "fail") and runs:
            assert result.text == f"text of {call}"
        elif runs:
            assert result.text == f"heard {call}"
        assert (result.error is None) == result.ok
        assert log.count(("began", call)) == runs
        assert log.count(("ended", call)) == 1
        for need in needs:
            if runs:
                assert log.index(("ended", need)) < log.index(("began", call))
    assert most <= limit


def test_every_kind_of_failure_is_told_in_words_of_its_own() -> None:
    clock = virtual()
    endings = ["ok", "fail", "crash", "cancel", "leave", "hang"]
    calls = [BatchCall(e, Scripted(e, clock=clock), {}, timeout=5) for e in endings]
    report = event_loop.run(advanced(clock, run_batch(calls, context=HERE, clock=clock)))
    assert {result.id: result.error for result in report} == {
        "ok": None,
        "fail": "failed: exit 3",
        "crash": "crashed: ValueError: bug in crash",
        "cancel": "was cancelled from within",
        "leave": "it tried to end the whole program (3)",
        "hang": "timed out after 5 s",
    }
    assert report["hang"].seconds == 5
    assert len(report.failed) == 5


def test_a_summary_names_five_failures_and_counts_the_rest() -> None:
    calls = [BatchCall(str(number), Scripted("fail"), {}) for number in range(7)]
    report = event_loop.run(run_batch(calls, context=HERE))
    named = ", ".join(["scripted (exit 3)"] * 5)
    assert report.summary == f"0 of 7 ok, 7 failed: {named} and 2 more"
    assert BatchReport(()).summary == "0 of 0 ok"
    assert BatchReport(()).ok


def test_calls_that_need_a_failed_one_are_skipped_with_that_reason_and_so_are_theirs() -> None:
    calls = [
        BatchCall("test", Scripted(), {}, needs=("build",)),
        BatchCall("build", Scripted("fail"), {}),
        BatchCall("ship", Scripted(), {}, needs=("test",)),
        BatchCall("lint", Scripted(), {}),
    ]
    report = event_loop.run(run_batch(calls, context=HERE))
    assert report["test"].skipped_because == "skipped: it needs 'build', which failed (exit 3)"
    assert report["ship"].skipped_because == "skipped: it needs 'test', which was skipped itself"
    assert report.headline == ("1 of 4 failed: scripted (exit 3), 2 skipped: scripted, scripted")
    assert report["lint"].ok
    assert [result.id for result in report.failed] == ["build"]


def test_circles_strangers_and_double_ids_are_refused_per_call_and_nothing_of_them_runs() -> None:
    tools = [Scripted() for _ in range(8)]
    calls = [
        BatchCall("a", tools[0], {}, needs=("b",)),
        BatchCall("b", tools[1], {}, needs=("a",)),
        BatchCall("after a circle", tools[2], {}, needs=("a",)),
        BatchCall("self", tools[3], {}, needs=("self",)),
        BatchCall("stranger", tools[4], {}, needs=("nobody",)),
        BatchCall("twice", tools[5], {}),
        BatchCall("twice", tools[6], {}),
        BatchCall("fine", tools[7], {}),
    ]
    report = event_loop.run(run_batch(calls, context=HERE))
    errors = [result.error or "" for result in report]
    circle = "refused: it waits, through its needs, for itself; remove one of the needs"
    assert errors[0] == errors[1] == f"{circle} on that circle"
    assert errors[2] == "skipped: it needs 'a', which failed (refused)"
    assert errors[3].startswith("refused: it needs itself")
    assert "needs 'nobody', which is no call of this batch" in errors[4]
    assert (
        errors[5] == errors[6] == ("refused: the id 'twice' is given to 2 calls; give each its own")
    )
    assert errors[7] == ""
    assert [tool.runs for tool in tools] == [0, 0, 0, 0, 0, 0, 0, 1]


@given(st.lists(st.lists(st.integers(0, 7), max_size=3), max_size=8))
def test_whatever_the_needs_are_every_call_gets_a_result(needs: list[list[int]]) -> None:
    calls = [
        BatchCall(str(number), Scripted(), {}, needs=tuple(map(str, wanted)))
        for number, wanted in enumerate(needs)
    ]

    async def bounded() -> BatchReport:
        async with asyncio.timeout(120):
            return await run_batch(calls, context=HERE, limit=1)

    assert len(event_loop.run(bounded())) == len(calls)


def test_a_cancelled_batch_ends_all_its_tools_before_it_lets_go() -> None:
    tools = [Scripted("hang") for _ in range(5)]

    async def main() -> None:
        calls = [BatchCall(str(n), tool, {}) for n, tool in enumerate(tools)]
        batch = asyncio.ensure_future(run_batch(calls, context=HERE, limit=4))
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert sum(tool.runs for tool in tools) == 4
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
        assert [tool.was_cancelled for tool in tools] == [True] * 4 + [False]

    event_loop.run(main())


def test_a_tool_that_will_not_end_is_let_go_and_said_to_run_on() -> None:
    clock = virtual()

    async def main() -> None:
        free = asyncio.Event()
        tool = Scripted(stubborn_until=free)
        calls = [
            BatchCall("stubborn", tool, {}, timeout=3),
            BatchCall("good", Scripted(), {}),
        ]
        report = await advanced(clock, run_batch(calls, context=HERE, clock=clock))
        assert report["stubborn"].error == (
            "timed out after 3 s; it did not let itself be ended and may still run"
        )
        assert report["good"].ok
        free.set()

    event_loop.run(main())


def test_what_cannot_be_recorded_ends_the_whole_batch_and_raises() -> None:
    hanging = Scripted("hang")

    async def ended(_call: BatchCall, _result: CallResult) -> None:
        raise OSError("disk full")

    async def main() -> None:
        calls = [
            BatchCall("long", hanging, {}),
            BatchCall("short", Scripted(), {}),
            BatchCall("after", Scripted(), {}, needs=("short",)),
        ]
        with pytest.raises(OSError, match="disk full"):
            await run_batch(calls, context=HERE, ended=ended)
        assert hanging.was_cancelled

    event_loop.run(main())


def test_a_callback_that_is_cancelled_cancels_the_batch_and_nobody_waits_for_ever() -> None:
    async def began(_call: BatchCall) -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        calls = [
            BatchCall("first", Scripted(), {}),
            BatchCall("second", Scripted(), {}, needs=("first",)),
        ]
        async with asyncio.timeout(120):
            with pytest.raises(asyncio.CancelledError):
                await run_batch(calls, context=HERE, began=began)

    event_loop.run(main())


def test_output_is_told_as_it_comes_with_the_id_of_its_call() -> None:
    on_output: list[tuple[str, str]] = []
    calls = [BatchCall(name, Scripted(), {}) for name in "ab"]
    event_loop.run(
        run_batch(calls, context=HERE, on_output=lambda call, text: on_output.append((call, text)))
    )
    assert on_output == [("a", "heard a"), ("b", "heard b")]


def test_a_crash_with_a_secret_or_without_words_is_told_without() -> None:
    calls = [
        BatchCall("leaky", Scripted("leak"), {}),
        BatchCall("broken", Scripted("wordless"), {}),
    ]
    report = event_loop.run(run_batch(calls, context=HERE))
    assert report["leaky"].error == "crashed: RuntimeError: refused for (secret)"
    assert report["broken"].error == "crashed: WordlessError"


def test_a_missing_tool_is_one_failure_that_names_the_tools_there_are() -> None:
    calls = [BatchCall("1", MissingTool("Grep", ["search"]), {}), BatchCall("2", Scripted(), {})]
    report = event_loop.run(run_batch(calls, context=HERE))
    assert report["1"].error == "there is no tool 'Grep'; the tools are: search"
    assert report.headline == "1 of 2 failed: Grep (no such tool)"


def test_silence_of_a_call_that_printed_before_is_run_once_more_and_marked() -> None:
    printing = OutputHistory()

    def once(*answers: str, harmless: bool = True) -> tuple[CallResult, int]:
        tool = Scripted(answers=list(answers), harmless=harmless)
        call = BatchCall("x", tool, {"of": "this"})
        report = event_loop.run(run_batch([call], context=HERE, printing=printing))
        return report["x"], tool.runs

    unknown, runs = once("")
    assert (unknown.empty_noticed, unknown.ran_again, runs) == ("", False, 1)
    once("something")
    twice, runs = once("", " \n")
    assert (twice.empty_noticed, twice.ran_again, runs) == (AGAIN_EMPTY, True, 2)
    assert twice.ok
    assert AGAIN_EMPTY in twice.for_model
    first, runs = once("", "something")
    assert (first.empty_noticed, first.text, runs) == (AT_FIRST_EMPTY, "something", 2)
    unsafe, runs = once("", harmless=False)
    assert (unsafe.empty_noticed, unsafe.ran_again, runs) == (NOT_REPEATED, False, 1)


def test_what_a_call_answers_is_echoed_shortly() -> None:
    report = event_loop.run(
        run_batch(
            [
                BatchCall("1", Scripted(), {"path": "a.txt"}),
                BatchCall("2", Scripted(), {"a": 1, "b": ["ü"]}),
                BatchCall("3", Scripted(), {"path": "x" * 500}),
                BatchCall("4", Scripted(), {}, what="my own words"),
                BatchCall("5", Scripted(), {}),
            ],
            context=HERE,
        )
    )
    assert report["1"].what == "scripted: a.txt"
    assert report["2"].what == f"scripted: {json.dumps({'a': 1, 'b': ['ü']}, ensure_ascii=False)}"
    assert len(report["3"].what) == 100
    assert report["4"].what == "my own words"
    assert report["5"].what == "scripted"
