"""Calls and results that do not belong together are counted, in all dialects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.drills.conversation import misbound

Turn = list[tuple[str, str]]


def anthropic(turns: list[Turn], answers: list[Turn]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for calls, results in zip(turns, answers, strict=True):
        use = [
            {"type": "tool_use", "id": i, "name": "Bash", "input": {"command": f"echo {w}"}}
            for i, w in calls
        ]
        got = [{"type": "tool_result", "tool_use_id": i, "content": w} for i, w in results]
        messages += [{"role": "assistant", "content": use}, {"role": "user", "content": got}]
    return {"messages": messages}


def chat(turns: list[Turn], answers: list[Turn]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for calls, results in zip(turns, answers, strict=True):
        use = [
            {
                "id": i,
                "type": "function",
                "function": {"name": "Bash", "arguments": json.dumps({"command": f"echo {w}"})},
            }
            for i, w in calls
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": use})
        messages += [{"role": "tool", "tool_call_id": i, "content": w} for i, w in results]
    return {"messages": messages}


def responses(turns: list[Turn], answers: list[Turn]) -> dict[str, Any]:
    items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "go"}]
    for calls, results in zip(turns, answers, strict=True):
        items.append({"type": "message", "role": "assistant", "content": "I look."})
        items += [
            {
                "type": "function_call",
                "call_id": i,
                "name": "exec_command",
                "arguments": json.dumps({"cmd": f"echo {w}"}),
            }
            for i, w in calls
        ]
        items += [{"type": "function_call_output", "call_id": i, "output": w} for i, w in results]
    return {"input": items}


DIALECTS = pytest.mark.parametrize("dialect", [anthropic, chat, responses])
BOTH = [("a", "left"), ("b", "right")]


@DIALECTS
@given(sizes=st.lists(st.integers(1, 4), max_size=4))
def test_what_belongs_together_in_any_order_is_right(dialect: Any, sizes: list[int]) -> None:
    turns = [[(f"{t}.{n}", f"word-{t}-{n}") for n in range(size)] for t, size in enumerate(sizes)]
    assert misbound(dialect(turns, [list(reversed(turn)) for turn in turns])) == 0


@DIALECTS
@pytest.mark.parametrize(
    ("results", "wrong"),
    [
        ([("a", "right"), ("b", "left")], 2),
        ([("a", "left"), ("x", "right")], 2),
        ([("a", "left"), ("a", "left")], 2),
        ([("a", "left")], 1),
    ],
)
def test_swapped_unknown_doubled_and_missing_results_are_counted(
    dialect: Any, results: Turn, wrong: int
) -> None:
    after = [("c", "next")]
    assert misbound(dialect([BOTH, after], [results, after])) == wrong
