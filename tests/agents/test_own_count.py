"""Usage that an upstream leaves out or makes too small is counted by us, other usage is left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from jackline.agents.own_count import ProgramCount, is_possible, own_count
from jackline.agents.runner import JsonObject
from jackline.dialects import TokenUsage

MOST = 32_000
PROSE = (
    "Soundings were taken along the whole of the northern channel, and internationally "
    "recognised responsibilities notwithstanding, nobody had written the measurements down. "
) * 40


def asked(text: str, **more: object) -> JsonObject:
    content = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
    return {"messages": [{"role": "user", "content": content}], **more}


def answered(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}]


@pytest.mark.parametrize(
    "text",
    [
        PROSE,
        PROSE.replace(" ", " " * 60),
        "=" * 60_000,
        "-=" * 20_000,
        "\n" * 5_000 + "    if x:\n" * 10,
        "Donaudampfschifffahrtsgesellschaftskapitän " * 100,
    ],
)
def test_a_long_token_is_possible(text: str) -> None:
    """As many tokens as a model with long tokens has for it: 8 letters, or 60 equal signs."""
    signs = sum(map(len, text.split())) if len(set(text)) > 5 else 0
    tokens = signs // 8 + len(text) // 60
    assert own_count(TokenUsage(tokens, tokens), asked(text), answered(text), MOST) is None


@pytest.mark.parametrize(
    "content",
    [
        {"type": "thinking", "thinking": PROSE, "signature": PROSE},
        {"type": "redacted_thinking", "data": PROSE},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PROSE}},
    ],
)
def test_what_vendors_count_otherwise_or_not_at_all_is_no_evidence(content: JsonObject) -> None:
    body = asked("hi")
    body["messages"] = [*(body["messages"] or ()), {"role": "assistant", "content": [content]}]  # type: ignore[misc]
    assert own_count(TokenUsage(8, 1), body, answered("ok"), MOST) is None


def test_input_of_all_kinds_is_compared_and_what_the_cache_gave_stays_cheap() -> None:
    body, said = asked(PROSE), answered(PROSE)
    honest = TokenUsage(3, 1_500, len(PROSE) // 4, 0)
    assert own_count(honest, body, said, MOST) is None
    found = own_count(TokenUsage(3, 1_500, 200, 100), body, said, MOST)
    assert found is not None
    assert (found.output_tokens, found.cache_read_tokens, found.cache_write_tokens) == (
        1_500,
        200,
        100,
    )
    assert found.total - found.output_tokens == pytest.approx(len(PROSE) / 4, rel=0.02)


def test_tools_and_pictures_are_in_our_own_count() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}
    body = asked("hi", tools=[{"name": "add", "description": PROSE}])
    body["messages"] = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    assert own_count(TokenUsage(1, 1), body, [], MOST) is None
    body["system"] = PROSE
    found = own_count(TokenUsage(1, 1), body, [], MOST)
    assert found is not None
    assert found.input_tokens == pytest.approx(2 * len(PROSE) / 4 + 1_500, rel=0.02)


def test_many_small_calls_of_tools_are_more_than_the_words_in_them() -> None:
    messages: list[JsonObject] = []
    for number in range(50):
        call = {"type": "tool_use", "id": f"t{number}", "name": "depth", "input": {"at": "x"}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "1.5"}
        messages += [
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
    body: JsonObject = {"messages": messages}
    assert own_count(TokenUsage(600, 1), body, [], MOST) is None
    found = own_count(TokenUsage(500, 1), body, [], MOST)
    assert found is not None
    assert found.input_tokens > 1_200


def test_our_own_count_of_an_answer_is_no_more_than_the_call_allowed() -> None:
    """A strict budget has reserved no more."""
    found = own_count(TokenUsage(), asked("hi"), answered(PROSE), 100)
    assert found is not None
    assert found.output_tokens == 100
    assert own_count(TokenUsage(9, 100), asked("hi"), answered(PROSE), 100) is None


def test_an_empty_answer_uses_nothing() -> None:
    assert own_count(TokenUsage(9, 0), asked("hi"), [], MOST) is None


counts = st.integers(-(10**9), 10**9)
texts = st.text(max_size=400) | st.sampled_from([PROSE, "x" * 5_000])


@given(st.builds(TokenUsage, counts, counts, counts, counts), texts, texts)
def test_what_is_charged_is_always_possible_and_never_less_than_was_said(
    usage: TokenUsage, sent: str, said: str
) -> None:
    body, content = asked(sent), answered(said)
    found = own_count(usage, body, content, MOST) or usage
    charged_input = found.total - found.output_tokens
    assert is_possible(charged_input, [sent])
    assert is_possible(found.output_tokens, [said])
    assert all(a >= max(0, b) for a, b in zip(astuple(found), astuple(usage), strict=True))
    assert own_count(found, body, content, MOST) is None, "what was counted stays"


@given(st.lists(st.booleans(), min_size=2, max_size=30))
def test_calls_of_a_program_under_one_id_are_counted_all_the_same(new_ids: list[bool]) -> None:
    """Else an upstream that gives all answers one id would be charged for the first alone."""
    honest, same = ProgramCount(), ProgramCount()
    for number, is_new in enumerate(new_ids):
        for count in (honest, same):
            count.add_input(PROSE)
            count.add_answer("x", begins=count is honest or is_new or not number, of_agent=True)
    none = TokenUsage()
    assert same.missing(none, with_output=True) == honest.missing(none, with_output=True)


def test_pieces_of_one_answer_are_one_call() -> None:
    whole, pieces = ProgramCount(), ProgramCount()
    for count, texts in ((whole, ["abcdefgh"]), (pieces, ["abcd", "efgh"])):
        count.add_input(PROSE)
        for number, text in enumerate(texts):
            count.add_answer(text, begins=not number, of_agent=True)
    none = TokenUsage()
    assert pieces.missing(none, with_output=False) == whole.missing(none, with_output=False)
