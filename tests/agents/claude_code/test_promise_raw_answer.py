"""An answer that stays invalid is kept as it came, whoever found it invalid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jackline.agents.outcome import Ending
from tests.agents.claude_code import test_runner
from tests.agents.claude_code.streams import call, init, result, said, synthetic, text
from tests.agents.claude_code.test_runner import SCHEMA, Client, user

pytestmark = test_runner.pytestmark
RECORDED = Path(__file__).parents[2] / "data/transcripts/e2_schema_invalid-2.1.325/stream.jsonl"


@pytest.fixture
def client(tmp_path: Path) -> Client:
    made = Client(tmp_path / "client")
    made.kept(user("THE TASK"))
    return made


def test_what_the_schema_refused_three_times_is_the_outcomes_text(client: Client) -> None:
    tries = [result(structured_output={"x": word}) for word in ("one", "two", "three", "four")]
    client.plays(*(init() + each for each in tries))
    outcome = client.carry(schema=SCHEMA)
    assert outcome.terminated_by is Ending.SCHEMA
    assert len(client.starts) == 3, "asked again at most twice"
    assert json.loads(outcome.text) == {"x": "three"}
    assert (outcome.evidence.failure, outcome.evidence.sub) == (
        "missing_structured_output",
        "invalid",
    )
    assert outcome.evidence.attempts == 3
    assert "three" not in outcome.evidence.says, "no answer in what people read"


def test_what_the_client_itself_refused_is_kept_too(client: Client) -> None:
    client.plays(*[RECORDED.read_bytes() + b"EXIT 1\n"] * 3)
    outcome = client.carry(schema=SCHEMA)
    assert outcome.terminated_by is Ending.SCHEMA
    offered = [
        block["input"]
        for line in map(json.loads, RECORDED.read_text().splitlines())
        if line["type"] == "assistant"
        for block in line["message"]["content"]
        if block.get("name") == "StructuredOutput"
    ]
    assert json.loads(outcome.text) == offered[-1]


def test_without_any_answer_the_words_so_far_stay(client: Client) -> None:
    prose = init() + said("m1", text("Only words.")) + result(result="Only words.")
    client.plays(prose, prose, prose)
    outcome = client.carry(schema=SCHEMA)
    assert (outcome.terminated_by, outcome.text) == (Ending.SCHEMA, "Only words.")
    assert outcome.evidence.sub == "absent"


def test_an_answer_of_a_sub_agent_is_none_of_the_agents_own(client: Client) -> None:
    inner = said("m1", call("t1", "StructuredOutput", x="inner"), parent="task")
    end = result(is_error=True, subtype="error_max_structured_output_retries") + b"EXIT 1\n"
    client.plays(*[init() + inner + end] * 3)
    assert client.carry(schema=SCHEMA).text == ""


def test_an_api_failure_is_no_missing_answer_and_nothing_is_asked_again(client: Client) -> None:
    words = "API Error: 529 Overloaded. This is a server-side issue, usually temporary"
    failed = synthetic(words, "overloaded") + result(
        is_error=True, api_error_status=529, result=words
    )
    client.plays(*[init() + failed + b"EXIT 1\n"] * 3)
    outcome = client.carry(schema=SCHEMA)
    assert outcome.terminated_by is Ending.OUTAGE
    assert outcome.evidence.status == 529
    assert len(client.starts) == 1
