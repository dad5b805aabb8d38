"""A request's prompt is read as caches see it: blocks in order, marks apart, accounts apart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.simulator.client_request import ClientRequest
from jackline.simulator.exchange import ProviderRefusal
from jackline.simulator.prompt_cache import FIVE_MINUTES, ONE_DAY, ONE_HOUR, Prompt, PromptCache

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def text(texts: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": texts, **more}


def body_of(**changes: Any) -> dict[str, Any]:
    """A request as Claude Code sends it: marks at the end of the system prompt and of the talk."""
    return {
        "model": "claude-sonnet-4-6",
        "tools": [{"name": "Bash", "description": "run " * 600}],
        "system": [text("billing"), text("You are an agent. " * 300, **MARK)],
        "messages": [{"role": "user", "content": [text("look " * 400), text("hi", **MARK)]}],
        **changes,
    }


def asked_of(body: dict[str, Any], headers: dict[str, str] | None = None) -> ClientRequest:
    sent = ClientRequest.parse("/v1/messages", headers or {}, json.dumps(body).encode())
    assert sent is not None
    return sent


def read(
    body: dict[str, Any], dialect: str = "anthropic", headers: dict[str, str] | None = None
) -> Prompt:
    prompt = asked_of(body, headers).read_prompt(dialect)
    assert isinstance(prompt, Prompt)
    return prompt


def words_of(body: dict[str, Any]) -> str:
    refusal = asked_of(body).read_prompt("anthropic")
    assert isinstance(refusal, ProviderRefusal)
    assert refusal.status == 400
    message: str = json.loads(refusal.body)["error"]["message"]
    return message


def marks(prompt: Prompt) -> list[float | None]:
    return [block.ttl for block in prompt.blocks]


def shared(first: dict[str, Any], second: dict[str, Any], dialect: str = "anthropic") -> int:
    """The tokens that the second request reads from what the first has written."""
    cache = PromptCache()
    hit = cache.look(read(first, dialect), 0.0)
    cache.admitted(hit)
    cache.begun(hit, 1.0)
    return cache.look(read(second, dialect), 2.0).read


def test_blocks_come_in_the_order_tools_system_messages_with_their_marks() -> None:
    prompt = read(body_of())
    assert marks(prompt) == [None, None, FIVE_MINUTES, None, FIVE_MINUTES, None]
    assert [block.content[:5] for block in prompt.blocks[:3]] == [b"tool:", b"syste", b"syste"]


def test_sizes_add_up_to_the_input_that_is_counted() -> None:
    body = body_of()
    assert read(body).tokens == asked_of(body).input_tokens
    assert read(body, "openai-chat").tokens == asked_of(body).input_tokens


def test_without_a_mark_a_prompt_is_one_block() -> None:
    body = body_of(system="plain", messages=[{"role": "user", "content": "hi"}])
    assert len(read(body).blocks) == 1
    assert read(body).tokens == asked_of(body).input_tokens


def test_a_mark_that_moves_on_does_not_change_what_it_stood_on() -> None:
    answer = {"role": "assistant", "content": [text("I see.")]}
    first = body_of()["messages"][0]
    unmarked = {"role": "user", "content": [text("look " * 400), text("hi")]}
    then = {"role": "user", "content": [text("and now?", **MARK)]}
    whole = shared(body_of(), body_of())
    assert whole > 2000
    assert shared(body_of(), body_of(messages=[unmarked, answer, then])) == whole
    assert shared(body_of(), body_of(messages=[first, answer, then])) == whole


@pytest.mark.parametrize(
    "change",
    [
        {"tool_choice": {"type": "any"}},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        {"messages": [{"role": "assistant", "content": [text("look " * 400), text("hi", **MARK)]}]},
    ],
)
def test_a_change_for_messages_alone_keeps_tools_and_system(change: dict[str, Any]) -> None:
    stored = shared(body_of(), body_of(**change))
    assert 0 < stored < shared(body_of(), body_of())


@pytest.mark.parametrize(
    "change", [{"tools": []}, {"model": "claude-sonnet-4-5"}, {"system": [text("x", **MARK)]}]
)
def test_a_change_of_tools_or_model_keeps_nothing(change: dict[str, Any]) -> None:
    assert shared(body_of(), body_of(**change)) == 0


def test_the_automatic_mark_is_on_the_last_block_that_can_have_one() -> None:
    thought = {"role": "assistant", "content": [text("so"), {"type": "thinking", "thinking": "?"}]}
    body = body_of(messages=[thought], **MARK)
    assert marks(read(body)) == [None, None, FIVE_MINUTES, FIVE_MINUTES, None, None]
    own = body_of(messages=[{"role": "user", "content": [text("hi", **HOUR)]}], system="s", **MARK)
    assert marks(read(own)) == [None, None, ONE_HOUR, None], "the client's own mark stays"


def test_a_fifth_mark_is_refused_and_the_automatic_one_counts() -> None:
    four = [text(f"part {number}", **MARK) for number in range(4)]
    body = body_of(system="s", messages=[{"role": "user", "content": four}])
    assert len([ttl for ttl in marks(read(body)) if ttl]) == 4
    more = {**body, "messages": [*body["messages"], {"role": "user", "content": "more"}]}
    found = "A maximum of 4 blocks with cache_control may be provided. Found 5."
    assert words_of({**more, **MARK}) == found
    assert words_of({**body, "system": [text("s", **MARK)]}) == found


def test_an_hour_after_five_minutes_is_refused_and_the_other_order_is_not() -> None:
    late = [{"role": "user", "content": [text("hi", **HOUR)]}]
    assert words_of(body_of(messages=late)).startswith(
        "messages.0.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come after"
    )
    early = read(body_of(system=[text("long", **HOUR)]))
    assert [ttl for ttl in marks(early) if ttl] == [ONE_HOUR, FIVE_MINUTES]
    strange = {"cache_control": {"type": "ephemeral", "ttl": "2h"}}
    assert "Input should be '5m' or '1h'" in words_of(body_of(system=[text("x", **strange)]))


def test_accounts_are_distinguished_without_storing_their_keys() -> None:
    one = read(body_of(), headers={"x-api-key": "sk-ant-secret"})
    two = read(body_of(), headers={"authorization": "Bearer other"})
    assert one.account != two.account
    assert "secret" not in repr(one)
    assert "You are an agent" not in repr(one), "nor the prompt, wherever a request is shown"
    signed = "AWS4-HMAC-SHA256 Credential=AK{}/20261116/eu/bedrock/aws4_request, Signature={}"
    accounts = [
        read(body_of(), "bedrock", {"authorization": signed.format(key, signature)}).account
        for key, signature in (("1", "aa"), ("1", "bb"), ("2", "aa"))
    ]
    assert accounts[0] == accounts[1] != accounts[2]


# --- OpenAI ---------------------------------------------------------------------------------


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    return {"model": "gpt-5", "messages": [{"role": "user", "content": w} for w in texts], **more}


def test_a_growing_talk_reads_what_it_was_before_in_steps() -> None:
    first, second = chat("a" * 9000), chat("a" * 9000, "b" * 3000)
    assert shared(first, second, "openai-chat") == 9000 // 512 * 128
    assert shared(first, chat("a" * 5000 + "c" * 4000), "openai-chat") == 5000 // 512 * 128
    assert shared(chat("a" * 3000), chat("a" * 3000), "openai-chat") == 0


def test_items_of_responses_are_read_like_messages() -> None:
    item = {"type": "message", "role": "user", "content": "a" * 9000}
    first = {"model": "gpt-5", "instructions": "be short", "input": [item]}
    assert shared(first, {**first, "input": [item, item]}, "openai-responses") == 17 * 128
    assert shared(first, {**first, "instructions": "be long"}, "openai-responses") == 0
    plain = {"model": "gpt-5", "input": "a" * 9000}
    assert shared(plain, plain, "openai-responses") == 17 * 128


def test_retention_and_routing_are_as_the_request_says() -> None:
    prompt = read(chat("x", prompt_cache_retention="24h", prompt_cache_key="k"), "openai-chat")
    assert (prompt.retention, prompt.routing_key) == (ONE_DAY, "k")
    usual = read(chat("x", prompt_cache_retention="in_memory"), "openai-chat")
    assert (usual.retention, usual.routing_key) == (FIVE_MINUTES, "")


@pytest.mark.parametrize("odd", ["\ud800", 2**70, "Köln"])
def test_texts_and_numbers_that_only_json_can_hold_are_read(odd: object) -> None:
    body = body_of(messages=[{"role": "user", "content": [{"type": "text", "odd": odd, **MARK}]}])
    assert read(body).tokens == asked_of(body).input_tokens


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from(["type", "text", "content", "cache_control", "role", "ttl"])
    return inner | st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4)


LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
)
ANYTHING = nested(nested(nested(nested(LEAVES))))
BODIES = st.dictionaries(
    st.sampled_from(
        ["model", "tools", "system", "messages", "input", "instructions", "cache_control"]
    ),
    ANYTHING,
)


@given(BODIES, st.sampled_from(["anthropic", "bedrock", "vertex", "openai-chat"]))
def test_whatever_is_sent_is_read_or_refused_and_never_smaller_than_what_is_counted(
    body: dict[str, Any], dialect: str
) -> None:
    prompt = asked_of(body).read_prompt(dialect)
    if isinstance(prompt, Prompt):
        assert prompt.tokens >= asked_of(body).input_tokens
    else:
        assert prompt.status == 400
