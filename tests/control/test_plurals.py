"""Numbers have the right plural."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jackline.agents.outcome import Ending
from jackline.control.run_view import event_line
from jackline.control.text import counted
from jackline.flows.run_events import AgentEnded


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls"), (2000, "2,000 calls")]
)
def test_one_is_singular(number: int, shown: str) -> None:
    assert counted(number, "call") == shown


@pytest.mark.parametrize(
    ("turns", "tokens", "shown"),
    [(1, 438, "(1 turn, 438 tokens)"), (3, 1, "(3 turns, 1 token)")],
)
def test_the_end_of_an_agent_is_reported_in_the_right_number(
    turns: int, tokens: int, shown: str
) -> None:
    ended = AgentEnded(0.0, "t", "ship 1", "", Ending.COMPLETION, "", tokens, None, turns, 1.0)
    assert event_line(ended, datetime.now(UTC)).endswith(f"ship 1 ok {shown}")
