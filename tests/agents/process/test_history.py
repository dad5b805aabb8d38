"""A notebook tells what an agent has done, over all its processes."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from jackline.agents.process.resume import History, changes_on_disk, resume_prompt
from jackline.agents.runner import JsonObject, LogEntry
from jackline.dialects import TokenUsage
from jackline.transcripts.saved_conversation import TranscriptToolCall


def started(**more: object) -> LogEntry:
    return LogEntry("process", {"pid": 7, "began": "then", "family": "f", **more})


def answer(name: str, tokens: int, **more: object) -> LogEntry:
    usage: JsonObject = {"input": tokens}
    return LogEntry("answer", {"id": name, "usage": usage, "agent": None, **more})


def test_an_answer_in_pieces_is_one_turn_and_paid_for_once() -> None:
    told = History.from_log([started(), answer("a", 5), answer("a", 5, text="hi"), answer("b", 2)])
    assert (told.turns, told.usage, told.text) == (2, TokenUsage(7), "hi")


def test_what_a_process_told_of_itself_counts_instead_of_what_was_seen() -> None:
    ended = LogEntry("ended", {"usage": {"input": 9, "output": 4}, "cost": 0.5, "verdict": "Done"})
    told = History.from_log([started(), answer("a", 5), ended, started(), answer("b", 1), ended])
    assert (told.usage, told.cost, told.mark) == (TokenUsage(18, 8), 1.0, None)


def test_what_was_seen_of_a_process_that_was_killed_still_counts() -> None:
    ended = LogEntry("ended", {"usage": {"input": 9}, "cost": 0.5, "verdict": "Done"})
    told = History.from_log([started(), answer("a", 5), started(), answer("b", 1), ended])
    assert (told.usage, told.unpriced) == (TokenUsage(14), TokenUsage(5))


def test_tokens_of_which_no_cost_was_told_are_to_be_priced() -> None:
    ended = LogEntry("ended", {"usage": {"input": 9}, "cost": None, "verdict": "Done"})
    told = History.from_log([started(), answer("a", 5), ended, started(), answer("b", 1)])
    assert (told.usage, told.unpriced, told.cost) == (TokenUsage(10), TokenUsage(10), None)


def test_a_program_that_counts_by_itself_tells_what_a_killed_process_cost() -> None:
    told = History.from_log([started(counted={"input": 100}), started(counted={"input": 130})])
    assert told.usage == TokenUsage(30)


def test_a_sub_agents_answers_cost_but_are_no_turns() -> None:
    told = History.from_log([started(), answer("a", 5), answer("s", 3, agent="toolu_1", text="no")])
    assert (told.turns, told.usage, told.text) == (1, TokenUsage(8), "")


def test_lines_without_sense_are_passed_over() -> None:
    entries = [
        LogEntry("process", {"pid": "x"}),
        LogEntry("answer", {"usage": 3, "calls": [1, {"id": 2}]}),
        LogEntry("result", {}),
        LogEntry("ended", {"usage": None, "turns": "x", "cost": "y"}),
        LogEntry("unheard-of", {}),
    ]
    assert History.from_log(entries).mark is None


def test_who_goes_on_is_told_what_happened_what_was_lost_and_what_is_on_disk() -> None:
    lost, kept = (
        TranscriptToolCall("t1", "Bash", {"command": "make"}),
        TranscriptToolCall("t2", "Read", "a.py"),
    )
    told = resume_prompt(
        "A limit.", [lost], "Changed on disk:\n M a.py", finished=[(kept, "print(1)")]
    )
    assert told.startswith("A limit.")
    assert '- Bash {"command": "make"} (t1)' in told.partition("may or may not have run")[2]
    assert "Read a.py (t2): print(1)" in told.partition("may or may not have run")[0]
    assert " M a.py" in told
    assert "do not do it again" in told


def test_the_task_is_told_again_where_the_conversation_does_not_hold_it() -> None:
    assert resume_prompt("", [], task="THE TASK").endswith("THE TASK")


def test_of_many_changed_files_some_are_listed_and_the_others_counted(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    for number in range(99):
        (tmp_path / str(number)).touch()
    assert "(and 59 more)" in asyncio.run(changes_on_disk(tmp_path))
