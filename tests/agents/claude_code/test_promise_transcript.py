"""Whatever ended it, an agent of Claude Code tells where its transcript is."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackline.agents.outcome import Ending
from tests.agents.claude_code import test_runner
from tests.agents.claude_code.streams import init, result
from tests.agents.claude_code.test_runner import Client, user

pytestmark = test_runner.pytestmark


@pytest.mark.parametrize(
    ("play", "ending"),
    [
        (init() + result(), Ending.COMPLETION),
        (init() + result(stop_reason=None), Ending.OUTAGE),
        (init() + b"EXIT 1\n", Ending.CRASH),
    ],
)
def test_the_outcome_names_the_transcript(play: bytes, ending: Ending, tmp_path: Path) -> None:
    client = Client(tmp_path / "client")
    path = client.kept(user("THE TASK"))
    client.plays(play)
    outcome = client.carry()
    assert (outcome.terminated_by, outcome.transcript) == (ending, str(path))
