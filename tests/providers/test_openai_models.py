"""A request has what the model takes, by its name and its host."""

from __future__ import annotations

import pytest

from jackline.dialects.neutral.options import TargetOptions
from jackline.providers.openai import is_vendor, target_of

OPENAI, AZURE = "api.openai.com", "ours.openai.azure.com"
SESSION = ((b"X-Claude-Code-Session-Id", b"s1"), (b"accept", b"*/*"))
AGENT = (*SESSION, (b"x-claude-code-agent-id", b"a1"))


@pytest.mark.parametrize(
    ("model", "efforts", "sampling", "longest"),
    [
        ("gpt-5.5", ("none", "low", "medium", "high", "xhigh"), False, None),
        ("gpt-5.1-codex", ("none", "low", "medium", "high"), False, None),
        ("gpt-5-mini", ("minimal", "low", "medium", "high"), False, None),
        ("o3", ("low", "medium", "high"), False, None),
        ("gpt-5-chat-latest", (), True, 16_384),
        ("gpt-4o-mini", (), True, 16_384),
        ("gpt-4.1", (), True, 32_768),
        ("something-new", (), True, None),
    ],
)
def test_a_request_has_only_what_a_model_of_openai_takes(
    model: str, efforts: tuple[str, ...], sampling: bool, longest: int | None
) -> None:
    target = target_of(model, OPENAI, ())
    assert (target.efforts, target.sampling, target.longest_answer) == (efforts, sampling, longest)
    assert target.mid_system == "keep", "OpenAI takes system messages anywhere"
    assert target_of(f"openai/{model}", AZURE, ()) == target


def test_the_longest_answer_is_the_users_or_the_models_whichever_is_shorter() -> None:
    assert target_of("gpt-4o", OPENAI, (), 8192).longest_answer == 8192
    assert target_of("gpt-4o", OPENAI, (), 99_999).longest_answer == 16_384
    assert target_of("qwen3", "127.0.0.1", (), 8192).longest_answer == 8192


def test_a_conversation_has_one_cache_key_that_reveals_nothing() -> None:
    main, agent = (
        target_of("gpt-5.5", OPENAI, given).prompt_cache_key for given in (SESSION, AGENT)
    )
    assert main == target_of("gpt-5.5", OPENAI, SESSION).prompt_cache_key
    assert main is not None
    assert main != agent
    assert "s1" not in main
    assert target_of("gpt-5.5", OPENAI, ()).prompt_cache_key is None
    assert target_of("gpt-5.5", AZURE, SESSION).prompt_cache_key is None


def test_unknown_servers_get_a_careful_request() -> None:
    careful = TargetOptions(max_tokens_field="max_tokens", mid_system="user", efforts=())
    assert target_of("gpt-5.5", "127.0.0.1", SESSION) == careful
    assert target_of("openai/gpt-5.5", "openrouter.ai", SESSION).efforts
    assert not is_vendor("api.openai.com.evil.example")
