"""What differs between servers of one dialect is a setting, and does what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jackline.dialects.neutral.fields import UntranslatableError
from jackline.dialects.neutral.options import TargetOptions
from jackline.dialects.openai_chat import to_chat
from jackline.dialects.openai_responses import to_responses

HI: dict[str, Any] = {"role": "user", "content": "Hi"}


def chat(target: TargetOptions, **client_request: object) -> tuple[dict[str, Any], tuple[str, ...]]:
    result = to_chat(
        json.dumps({"max_tokens": 64000, "messages": [HI], **client_request}).encode(), "m", target
    )
    return json.loads(result.body), result.notes


def responses(
    target: TargetOptions, **client_request: object
) -> tuple[dict[str, Any], tuple[str, ...]]:
    body = json.dumps({"max_tokens": 64000, "messages": [HI], **client_request}).encode()
    result = to_responses(body, "m", target)
    return json.loads(result.body), result.notes


def test_old_servers_get_max_tokens_under_its_old_name() -> None:
    assert chat(TargetOptions(max_tokens_field="max_tokens"))[0]["max_tokens"] == 64000


@pytest.mark.parametrize("say", [chat, responses])
def test_a_bound_that_is_not_granted_is_lowered_with_a_note(say: Any) -> None:
    result, notes = say(TargetOptions(longest_answer=8192))
    assert 8192 in result.values()
    assert notes == ("max_tokens: lowered to 8192, the most that is allowed there",)


@pytest.mark.parametrize("say", [chat, responses])
def test_models_without_sampling_get_none(say: Any) -> None:
    result, notes = say(TargetOptions(sampling=False), temperature=0.1)
    assert "temperature" not in result
    assert notes == ("temperature: this model accepts no sampling settings",)


@pytest.mark.parametrize(
    ("known", "wish", "sent"),
    [
        (("low", "medium", "high"), "max", "high"),
        (("low", "medium", "high"), "medium", "medium"),
        (("none", "low", "high"), "medium", "low"),
        (("medium", "high"), "low", "medium"),
        ((), "high", None),
    ],
)
def test_effort_becomes_the_nearest_level_that_is_known(
    known: tuple[str, ...], wish: str, sent: str | None
) -> None:
    result, notes = chat(TargetOptions(efforts=known), output_config={"effort": wish})
    assert result.get("reasoning_effort") == sent
    assert bool(notes) is (sent != wish)
    reasoning = responses(TargetOptions(efforts=known), output_config={"effort": wish})[0].get(
        "reasoning"
    )
    assert reasoning == (None if sent is None else {"effort": sent})


@pytest.mark.parametrize(
    ("known", "sent"),
    [(("none", "low"), "none"), (("minimal", "low"), "minimal"), (("low",), "low")],
)
def test_thinking_that_is_off_is_the_lowest_effort(known: tuple[str, ...], sent: str) -> None:
    result, _ = chat(TargetOptions(efforts=known), thinking={"type": "disabled"})
    assert result["reasoning_effort"] == sent


def test_system_texts_in_the_middle_can_be_the_users() -> None:
    messages = [HI, {"role": "system", "content": "Mind the step."}]
    result, notes = chat(TargetOptions(mid_system="user"), messages=messages)
    assert [message["role"] for message in result["messages"]] == ["user", "user"]
    assert notes
    result, notes = responses(TargetOptions(mid_system="user"), messages=messages)
    assert [item["role"] for item in result["input"]] == ["user", "user"]
    assert notes


def test_the_user_id_is_not_sent_and_the_conversations_name_is() -> None:
    assert "user" not in chat(TargetOptions(), metadata={"user_id": "me"})[0]
    assert chat(TargetOptions(prompt_cache_key="k"))[0]["prompt_cache_key"] == "k"


def test_more_stop_sequences_than_chat_has_are_refused() -> None:
    with pytest.raises(UntranslatableError, match="stop_sequences"):
        chat(TargetOptions(), stop_sequences=list("abcde"))


def test_a_choice_without_tools_is_noted() -> None:
    result, notes = chat(TargetOptions(), tool_choice={"type": "any"})
    assert "tool_choice" not in result
    assert notes == ("tool_choice.type: there are no tools to choose from",)
