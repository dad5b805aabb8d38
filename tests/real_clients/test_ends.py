"""An agent of the real Claude Code that has ended is finished: at once, and not by silence."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from jackline.simulator.reply_script import Rule, Say
from tests.claude_turns import fan_out
from tests.real_clients.clients import PATIENCE, claude_binary
from tests.real_clients.test_hooks import Place, service, written_plugin

pytestmark = pytest.mark.real_client


def told(place: Place) -> dict[str, int]:
    """How many agents do what."""
    by_state = json.loads(place.jackline("status", "--watch", "--json"))["agents_by_state"]
    return {word: count for word, count in by_state.items() if count}


def test_a_session_and_its_sub_agent_are_finished_when_their_client_has_exited(
    tmp_path: Path,
) -> None:
    rules = (
        Rule(fan_out(["PART-0"], background=False), sub_agent=False, turn=0),
        Rule(Say("Looked at."), sub_agent=True),
        Rule(Say("Done.")),
    )
    with service(tmp_path, rules) as place:
        plugin = written_plugin(tmp_path / "market")
        done = place.claude(claude_binary(), "Review the module.", plugin)
        assert done.returncode == 0, done.stderr
        began = time.monotonic()
        while told(place) != {"finished": 2}:
            assert time.monotonic() - began < PATIENCE, told(place)
            time.sleep(0.5)
        # Silence needs two minutes to have a name, and a quarter of an hour to be taken for an end.
        verdict = json.loads(place.jackline("status", "--json"))["verdict"]
        assert verdict.startswith("Nothing is under way. Nothing needs you.")
