"""Requests are named by what prompt caches hold of them: the first message, tools, instructions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jackline.gateway.caller import begins_conversation, conversation_of, prefix_of

SESSION, AGENT = "25be810d", "a7d6b6"
MARK = {"cache_control": {"type": "ephemeral"}}
TOOLS = [{"name": "Bash", "description": "Run a command. " * 200, "input_schema": {}}]


def text(words: str, *, marked: bool = False) -> dict[str, Any]:
    return {"type": "text", "text": words, **(MARK if marked else {})}


def body(
    messages: list[dict[str, Any]], *, version: str = "06f", rules: str = "Work with care. "
) -> bytes:
    """A request in the order and with the marks of Claude Code 2.1.325."""
    billing = f"x-anthropic-billing-header: cc_version=2.1.325.{version}; cc_entrypoint=sdk-cli;"
    whole = {
        "model": "claude-opus-5-5",
        "messages": messages,
        "system": [text(billing), text("You are an agent.", marked=True), text(rules, marked=True)],
        "tools": TOOLS,
        "metadata": {"user_id": SESSION},
    }
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()


def conversation(task: str, turns: int) -> list[dict[str, Any]]:
    """The messages of one conversation after so many turns; the mark stands on the last block."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [text("<system-reminder>"), text(task)]}
    ]
    for turn in range(turns):
        messages.append({"role": "assistant", "content": [text(f"Looking, {turn}.")]})
        messages.append({"role": "user", "content": [text(f"result {turn}")]})
    messages[-1]["content"][-1] |= MARK
    return messages


def named(messages: list[dict[str, Any]], agent: str | None = None) -> str:
    return conversation_of((SESSION, agent), body(messages))


@pytest.mark.parametrize("letter", ["x", "語"])
@pytest.mark.parametrize("length", [20, 1_500, *range(1_560, 2_050, 7), 40_000])
def test_a_conversation_keeps_its_name_while_it_grows_and_its_mark_moves_on(
    length: int, letter: str
) -> None:
    task = "TASK: " + letter * (length // len(letter.encode()))
    names = {named(conversation(task, turns)) for turns in (0, 1, 2, 30)}
    anonymous = {conversation_of(None, body(conversation(task, turns))) for turns in (0, 1, 30)}
    assert (len(names), len(anonymous)) == (1, 1)


def test_a_session_its_sub_agents_and_other_sessions_have_names_of_their_own() -> None:
    same = conversation("TASK: look", 1)
    other = conversation_of(("other", None), body(same))
    assert len({named(same), named(same, AGENT), named(same, "aa245c"), other}) == 4


def test_what_a_session_asks_beside_its_conversation_has_another_name() -> None:
    """Prompts of hooks, titles and summaries carry the session's id, and may share its model."""
    aside = [{"role": "user", "content": [text('Is this fine? {"tool":"Bash"}', marked=True)]}]
    assert named(aside) != named(conversation("TASK: look", 3))
    assert named(aside, AGENT) != named(conversation("TASK: look", 3), AGENT)


def test_a_conversation_begins_until_its_model_has_spoken() -> None:
    assert begins_conversation(body(conversation('say {"role":"assistant"}', 0)))
    assert not begins_conversation(body(conversation("TASK: look", 1)))


def test_sub_agents_of_one_kind_share_a_prefix_and_others_do_not() -> None:
    one = prefix_of(body(conversation("PART-1", 0), version="060"))
    same = prefix_of(body(conversation("PART-2", 2), version="1f1"))
    other = prefix_of(body(conversation("PART-1", 0), rules="Explore only. "))
    assert one == same
    assert one.name
    assert one.name != other.name


def test_nothing_of_a_prompt_can_be_read_from_a_name() -> None:
    assert "secret" not in named(conversation("secret", 0))


def test_without_marks_and_without_a_session_there_is_no_name() -> None:
    plain = json.dumps({"model": "gpt-5", "input": [{"role": "user", "content": "hi"}]}).encode()
    assert conversation_of(None, plain) == ""
    assert prefix_of(plain).name == ""
