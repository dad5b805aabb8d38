"""What people wrote and agents answered is not shown in any rendering unless the user wants it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jackline.autopsy import html_report, text_report
from jackline.autopsy.report import build
from jackline.autopsy.summary import Summary
from jackline.transcripts.story import Role, TranscriptEnd, TranscriptSet
from tests.autopsy.story_makers import (
    MISSED,
    NOON,
    WALL,
    after,
    agent,
    agent_report,
    evidence,
    quota,
    stopped,
)
from tests.cli.commands import jackline

if TYPE_CHECKING:
    from collections.abc import Callable

    from jackline.autopsy.report import WhyReport

PROMPT = "Sell the secret recipe"
ANSWER = "The recipe is salt, and a session limit of patience"

RENDERINGS: dict[str, Callable[[WhyReport], str]] = {
    "text": text_report.render,
    "json": lambda report: json.dumps(report.to_json(), ensure_ascii=False),
    "html": html_report.page,
}


def fleet_with_content() -> TranscriptSet:
    """Every place in which content can hide: labels, last words, and reports that quote them."""
    answered = agent_report(ANSWER, "completed", is_error=False)
    stories = [
        agent(
            "main", role=Role.MAIN, reports=[agent_report(f"[{PROMPT}] failed: {WALL}"), answered]
        ),
        stopped(
            "dead", quota(), reports=[agent_report(f'Agent "{PROMPT}" failed: {WALL}\n{ANSWER}')]
        ),
        stopped("blamed", quota(), reports=[agent_report(f"[{PROMPT}] failed: {MISSED}")]),
        agent(
            "missed",
            reports=[agent_report(f'Dynamic workflow "{PROMPT} soon" failed: Error: {MISSED}')],
        ),
        agent("fine", reports=[answered]),
        agent("cut", ending=TranscriptEnd.CUT, reports=[answered]),
    ]
    for story in stories:
        story.label, story.last_words = PROMPT, ANSWER
    return evidence(*stories)


@pytest.mark.parametrize("rendering", RENDERINGS)
def test_prompts_and_answers_are_hidden_unless_asked_for(rendering: str) -> None:
    shown = RENDERINGS[rendering](build(fleet_with_content(), now=after(9_999)))
    assert PROMPT not in shown
    assert "recipe" not in shown


@pytest.mark.parametrize("rendering", RENDERINGS)
def test_prompts_and_answers_are_shown_when_asked_for(rendering: str) -> None:
    shown = " ".join(
        RENDERINGS[rendering](
            build(fleet_with_content(), now=after(9_999), show_content=True)
        ).split()
    )
    assert PROMPT in shown
    assert ANSWER in shown


@pytest.mark.parametrize("rendering", RENDERINGS)
def test_ids_counts_and_error_texts_are_always_shown(rendering: str) -> None:
    shown = RENDERINGS[rendering](build(fleet_with_content(), now=after(9_999)))
    assert "dead" in shown
    assert "resets 10:10pm (Europe/Kiev)" in " ".join(shown.split())
    if rendering != "html":
        assert "req_100" in shown


def test_the_table_over_many_sessions_holds_no_content() -> None:
    summed = Summary.of(fleet_with_content(), since=NOON - timedelta(days=7), now=after(9_999))
    shown = summed.as_text() + json.dumps(summed.as_document(), ensure_ascii=False)
    assert "recipe" not in shown


@pytest.mark.parametrize("rendering", RENDERINGS)
def test_token_counts_are_called_lower_bounds(rendering: str) -> None:
    spender = agent("spender", spent={int(NOON.timestamp()): 1_234})
    shown = RENDERINGS[rendering](build(evidence(spender), now=after(9_999)))
    assert "at least 1,234" in shown or '"tokens_at_least": 1234' in shown


def test_a_key_that_a_vendor_quotes_in_its_error_is_never_shown(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "Xy1" * 12
    line = {
        "type": "assistant",
        "sessionId": "s1",
        "isApiErrorMessage": True,
        "message": {
            "id": "m",
            "model": "<synthetic>",
            "content": [{"type": "text", "text": f"API Error: 401 Incorrect API key: {key}"}],
        },
    }
    transcript = tmp_path / "s1.jsonl"
    transcript.write_text(json.dumps(line) + "\n")
    page = tmp_path / "page.html"
    for arguments in ((), ("--json",), ("--html", page)):
        answer = jackline("why", transcript, *arguments)
        assert answer.code == 0
        assert key not in answer.out + answer.err
    assert key not in page.read_text()
    assert "(secret)" in page.read_text()
