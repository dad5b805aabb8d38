"""Whatever ended it, an agent of Claude Code tells where its transcript is."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackline.agents.outcome import Ending, Evidence
from jackline.agents.runner import NextCall, StopAgentError
from tests.agents.claude_code import test_runner
from tests.agents.claude_code.streams import call, init, result, resulted, said, text
from tests.agents.claude_code.test_runner import Client, user
from tests.agents.process.doubles import FreeLeave, Pages

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


def test_one_that_a_budget_stops_in_its_first_process_names_the_transcript_that_it_began(
    tmp_path: Path,
) -> None:
    client = Client(tmp_path / "client")
    turn = said("m1", text("One."), call("t1", command="ls")) + resulted("t1", "a.py")
    client.plays(init() + turn + b"WAIT\n")
    written: list[Path] = []

    class SpentLeave(FreeLeave):
        async def before_call(
            self, call: NextCall | None = None, *, works_meanwhile: bool = False
        ) -> None:
            if self.asked == 1:
                # The client has begun to write by now.
                written.append(client.kept(user("THE TASK")))
            await super().before_call(call, works_meanwhile=works_meanwhile)

    stop = StopAgentError(Ending.BUDGET, Evidence(says="5,000 tokens are used up"))
    outcome = client.carry(Pages(), SpentLeave(stop=stop, stop_after=1))
    assert outcome.terminated_by is Ending.BUDGET
    assert [outcome.transcript] == [str(path) for path in written]
