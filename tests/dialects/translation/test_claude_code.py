"""Requests of the real Claude Code, with shortened texts, can be translated to both dialects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jackline.dialects.mixed_conversation import fit_for_claude
from jackline.dialects.openai_chat import to_chat
from jackline.dialects.openai_responses import to_responses
from tests.dialects.translation.oracles import Oracle

SAMPLES = sorted((Path(__file__).parent / "data" / "claude_code").glob("*.json"))
# What is let go of in these requests, and nothing else is.
LET_GO = {
    "messages[*].content[*].cache_control",
    "system[*].cache_control",
    "thinking.type",
    "thinking.display",
    "output_config.effort",
    "context_management",
    "metadata.user_id",
}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_request_of_claude_code_is_accepted_by_openais_types(
    sample: Path, oracle: Oracle
) -> None:
    body = sample.read_bytes()
    for kind, translate in (("chat request", to_chat), ("responses request", to_responses)):
        result = translate(body, "gpt-x")
        document = json.loads(result.body)
        assert oracle.ask("typed", kind, document) == document
        places = {note.split(":")[0].split(" (")[0] for note in result.notes}
        assert places <= LET_GO


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_a_request_of_claude_code_needs_no_fitting(sample: Path) -> None:
    body = sample.read_bytes()
    assert fit_for_claude(body).body == body
