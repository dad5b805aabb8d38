"""The real Claude Code meets the simulated provider as it met real ones (facts: client-wire)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jackline.simulator.reply_script import long_answer
from jackline.testing import Effect, Fault, Rule, Say
from tests.claude_turns import fan_out
from tests.real_clients.clients import Run, run_claude

pytestmark = pytest.mark.real_client

# CLAUDE_CODE_MAX_RETRIES is 2 in these runs.
TRIES = 3


def result_of(run: Run) -> dict[str, object]:
    last: dict[str, object] = json.loads(run.log.read_text().splitlines()[-1])
    return last


@pytest.mark.parametrize(
    ("effect", "requests", "words"),
    [
        (Effect.THROTTLED, TRIES, "Rate limited"),
        (Effect.OVERLOADED, TRIES, "529"),
        (Effect.ENVOY, TRIES, "503"),
        (Effect.RESET, TRIES, "ECONNRESET"),
        (Effect.CAPTIVE_PORTAL, 2, "HTTP 200"),
    ],
)
def test_a_lasting_fault_is_met_as_often_as_the_client_is_known_to_try(
    tmp_path: Path, effect: Effect, requests: int, words: str
) -> None:
    run = run_claude(tmp_path, [], fault=Fault(effect))
    assert (run.code, len(run.ledger), run.ledger.useful) == (1, requests, 0)
    assert words in str(result_of(run)["result"])


@pytest.mark.parametrize("effect", [Effect.CUT, Effect.ERROR_EVENT, Effect.CLEAN_END])
def test_a_stream_that_breaks_inside_a_block_is_asked_for_again_without_streaming(
    tmp_path: Path, effect: Effect
) -> None:
    rules = [Rule(Fault(effect, at_share=0.5), call=0), Rule(Say("All is well."))]
    run = run_claude(tmp_path, rules)
    assert run.code == 0
    assert [entry.why for entry in run.ledger] == [effect.value, "completed"]
    assert result_of(run)["result"] == "All is well."


def test_sub_agents_are_told_apart_and_their_usage_is_the_ledgers(tmp_path: Path) -> None:
    rules = [
        Rule(fan_out([f"PART-{n}: look" for n in range(4)]), sub_agent=False, turn=0),
        Rule(long_answer(200), sub_agent=True),
        Rule(Say("All parts are back.")),
    ]
    run = run_claude(tmp_path, rules)
    assert run.code == 0
    assert len({entry.session for entry in run.ledger}) == 1
    assert len({entry.agent for entry in run.ledger if entry.agent}) == 4
    assert run.ledger.useful == len(run.ledger)
