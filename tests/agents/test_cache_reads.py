"""Adversary: an upstream that calls input "read from the cache" that nobody had sent before.

Cache reads cost a tenth: where a limit in dollars holds, only what was sent before counts as read.
Vendors that count honestly are charged as they report, to the token.
"""

from __future__ import annotations

import json

import pytest

from jackline.agents.messages import MessagesRunner
from jackline.agents.runner import WholeAnswer
from jackline.dialects import TokenUsage
from jackline.dialects.sent_prefixes import LIFE, SentPrefixes
from tests.agents.world import Answering, MemoryNotebook, OpenLeave, run, task

MODEL = "claude-opus-4-8"
SYSTEM = "You read texts and say what they are about. " * 400


def prompt(*texts: str, system: str = SYSTEM, marked: bool = True) -> bytes:
    """A conversation, whose last message has the cache mark; roles do not matter."""
    blocks: list[dict[str, object]] = [{"type": "text", "text": text} for text in texts]
    if marked:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    messages = [{"role": "user", "content": [block]} for block in blocks]
    body = {"model": MODEL, "system": [{"type": "text", "text": system}], "messages": messages}
    return json.dumps(body).encode()


def tokens(*texts: str) -> int:
    return sum(map(len, texts)) // 4


def words(seed: int, size: int = 40_000) -> str:
    return " ".join(f"{(seed * 7919 + n * 104_729) % 1_000_003:x}" for n in range(size // 6))


def test_input_that_was_never_sent_is_not_read_from_a_cache() -> None:
    sent = SentPrefixes()
    charged = TokenUsage()
    for number in range(20):
        text = words(number)
        lie = TokenUsage(cache_read_tokens=tokens(text), output_tokens=4)
        call = sent.begin(MODEL, prompt(text, system=""), 0.0)
        charged += sent.counted(call, lie, 0.0)
    assert charged.cache_read_tokens < 0.06 * charged.input_tokens


def test_in_a_conversation_only_what_was_sent_counts_as_read() -> None:
    sent, texts, now = SentPrefixes(), [words(0)], 0.0
    fresh = 0
    for number in range(1, 12):
        now += 60
        total = tokens(SYSTEM, *texts)
        call = sent.begin(MODEL, prompt(*texts), now)
        counted = sent.counted(call, TokenUsage(cache_read_tokens=total), now)
        assert counted.total == total
        fresh += counted.input_tokens
        texts.append(words(number))
    # All that was ever new, but for what is spared for rounding.
    assert fresh > 0.7 * tokens(SYSTEM, *texts[:-1])


def test_a_vendor_that_counts_honestly_is_charged_as_it_reports() -> None:
    """Conversations, siblings with one system prompt, and one that is answered before another."""
    sent, now = SentPrefixes(), 0.0
    for agent in range(4):
        texts, before = [words(agent)], 0
        for number in range(1, 8):
            now += 60
            total = tokens(SYSTEM, *texts)
            read = before or (tokens(SYSTEM) if agent else 0)
            usage = TokenUsage(50, 30, read, total - read - 50)
            call = sent.begin(MODEL, prompt(*texts), now)
            assert sent.counted(call, usage, now) == usage
            before = total
            texts += ["an answer " * 3, words(100 * agent + number, 4_000)]


def test_siblings_that_are_sent_together_may_read_what_any_of_them_has_written() -> None:
    sent = SentPrefixes()
    first, second, third = (sent.begin(MODEL, prompt(words(n)), 0.0) for n in range(3))
    read = tokens(SYSTEM)
    usage = TokenUsage(tokens(words(0)), 5, read, 0)
    for call in (second, first, third):
        assert sent.counted(call, usage, 1.0) == usage


def test_what_lapsed_was_sent_to_another_model_or_differs_at_its_beginning_is_not_read() -> None:
    lie = TokenUsage(cache_read_tokens=tokens(SYSTEM, words(0)))
    for model, body, now in (
        (MODEL, prompt(words(0)), LIFE + 1),
        ("another", prompt(words(0)), 1.0),
        (MODEL, prompt(words(0), system="X" + SYSTEM), 1.0),
    ):
        sent = SentPrefixes()
        sent.counted(sent.begin(MODEL, prompt(words(0)), 0.0), lie, 0.0)
        call = sent.begin(model, body, now)
        assert sent.counted(call, lie, now).cache_read_tokens < 0.1 * lie.cache_read_tokens


def test_without_its_mark_it_is_the_same_text() -> None:
    sent, usage = SentPrefixes(), TokenUsage(cache_read_tokens=tokens(SYSTEM, words(0)))
    sent.counted(sent.begin(MODEL, prompt(words(0)), 0.0), usage, 0.0)
    call = sent.begin(MODEL, prompt(words(0), marked=False), 2.0)
    assert sent.counted(call, usage, 2.0) == usage


def test_what_is_remembered_is_bounded() -> None:
    sent = SentPrefixes()
    for number in range(300):
        sent.begin(MODEL, prompt(words(number, 2_000_000 if number < 3 else 100)), 0.0)
    assert len(sent) <= 100_000


@pytest.mark.parametrize("limited", [True, False])
def test_an_agent_under_a_limit_in_dollars_pays_for_what_it_sends(*, limited: bool) -> None:
    text = words(1)
    lie = TokenUsage(cache_read_tokens=tokens(text), output_tokens=4)

    class Leave(OpenLeave):
        warned = ""

        def warn(self, says: str) -> None:
            self.warned = says

    leave = Leave(limits_dollars=limited)
    model = Answering([WholeAnswer([{"type": "text", "text": "done"}], "end_turn", lie, MODEL)])
    run(MessagesRunner(model).run(task(text), MemoryNotebook(), leave))
    [(_, usage, _)] = leave.received
    assert usage.total == lie.total
    assert (usage.input_tokens > 0.9 * tokens(text)) is limited
    assert bool(leave.warned) is limited
