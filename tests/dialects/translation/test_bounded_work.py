"""A conversation costs no more than its length says, and one that is too long is not read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from jackline.calls.continuation import prefilled
from jackline.dialects.json_bounds import MOST_OBJECTS
from jackline.dialects.mixed_conversation import fit_for_claude
from jackline.dialects.neutral.fields import UntranslatableError
from jackline.dialects.openai_chat import to_chat
from jackline.dialects.openai_responses import to_responses, without_reasoning

Json = dict[str, object]
EMPTY: Json = {"role": "assistant", "content": ""}
USER: Json = {"role": "user", "content": "a"}


def sent(messages: list[Json]) -> bytes:
    return json.dumps({"model": "claude-x", "max_tokens": 9, "messages": messages}).encode()


def results(count: int) -> list[Json]:
    """Words before each of many results, in one message."""
    calls = [{"type": "tool_use", "id": f"t{n}", "name": "a", "input": {}} for n in range(count)]
    result: list[Json] = []
    for n in range(count):
        result.append({"type": "text", "text": "a"})
        result.append({"type": "tool_result", "tool_use_id": f"t{n}", "content": "x"})
    return [USER, {"role": "assistant", "content": calls}, {"role": "user", "content": result}]


def seconds(work: Callable[[], object]) -> float:
    """Of this thread alone, the least of some tries: how busy the machine is changes little."""
    tries = []
    for _ in range(3):
        began = time.thread_time()
        work()
        tries.append(time.thread_time() - began)
    return min(tries)


@pytest.mark.parametrize(
    ("work", "messages"),
    [
        (fit_for_claude, lambda n: [USER, EMPTY] * n + [USER]),
        (lambda body: to_chat(body, "gpt"), results),
        (lambda body: to_chat(body, "gpt"), lambda n: [USER] * 4 * n),
        (lambda body: to_responses(body, "gpt"), lambda n: [USER] * 4 * n),
    ],
    ids=["fitting", "results", "chat", "responses"],
)
def test_eight_times_as_many_messages_cost_no_more_than_about_eight_times_as_much(
    work: Callable[[bytes], object], messages: Callable[[int], list[Json]]
) -> None:
    few, many = sent(messages(250)), sent(messages(2_000))
    assert seconds(lambda: work(many)) < 24 * seconds(lambda: work(few))


def test_what_comes_before_several_results_is_noted_once() -> None:
    notes = to_chat(sent(results(3)), "gpt").notes
    assert [note for note in notes if "sent after the results" in note] == [
        "messages[*].content[*].text (3 times): sent after the results of tools"
    ]


def test_messages_that_lost_their_neighbours_are_joined_in_order() -> None:
    texts: list[Json] = [{"role": "user", "content": text} for text in "abc"]
    message: list[Json] = [
        texts[0],
        EMPTY,
        texts[1],
        EMPTY,
        texts[2],
        {"role": "assistant", "content": "d"},
    ]
    fitted = json.loads(fit_for_claude(sent(message)).body)["messages"]
    assert fitted == [
        {"role": "user", "content": [{"type": "text", "text": text} for text in "abc"]},
        {"role": "assistant", "content": "d"},
    ]


TOO_MANY = [
    sent([USER] * (MOST_OBJECTS + 1)),
    sent([{"role": "user", "content": [{"type": "text", "text": ""}] * (MOST_OBJECTS + 1)}]),
]


@pytest.mark.parametrize("body", TOO_MANY, ids=["messages", "blocks"])
def test_a_conversation_that_is_too_long_is_not_translated(body: bytes) -> None:
    for translate in (to_chat, to_responses):
        with pytest.raises(UntranslatableError, match="more than 100,000"):
            translate(body, "gpt")
    # To Claude it goes as it is: the vendor says what is wrong with it.
    assert fit_for_claude(body).body == body


def test_a_long_conversation_is_continued_byte_for_byte() -> None:
    answer: Json = {"role": "assistant", "content": "b"}
    body = sent([USER, answer] * 10 + [USER])
    body = body.replace(b'"claude-x"', b'"claude-3-5-haiku-latest"')
    continued = prefilled(body, "Once ")
    assert continued is not None
    message = json.loads(continued)["messages"]
    assert message == [*json.loads(body)["messages"], {"role": "assistant", "content": "Once"}]
    for message in (b"[]", b"{}", b'"x"', b'[{"role": "assistant"}]'):
        assert (
            prefilled(b'{"model":"claude-3-5-haiku-latest","messages":%b}' % message, "x") is None
        )


def test_reasoning_is_searched_in_no_more_items_than_a_conversation_has() -> None:
    thought = {"type": "reasoning", "encrypted_content": "x"}
    few = json.dumps({"input": [thought, {"type": "message"}]}).encode()
    assert json.loads(without_reasoning(few).body) == {"input": [{"type": "message"}]}
    many = json.dumps({"input": [thought] * (MOST_OBJECTS + 1)}).encode()
    assert without_reasoning(many).body == many
