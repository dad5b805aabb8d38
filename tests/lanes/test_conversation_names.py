"""A lane knows what is cached of a conversation, and is not misled by what is asked beside it."""

from __future__ import annotations

from jackline.dialects import TokenUsage
from jackline.lane_id import LaneId
from jackline.lanes.call import Call
from jackline.lanes.prompt_caches import CacheState, PromptCaches

LANE = LaneId("anthropic", "opus", "1")
PROMPT = 10_000


def call(number: int, tokens: int = PROMPT, *, begins: bool = False, talk: str = "talk") -> Call:
    return Call(number, (LANE,), input_tokens=tokens, conversation=talk, begins=begins)


def after_one_answer(tokens: int = PROMPT) -> PromptCaches:
    """The caches of a lane on which one call of the conversation was answered at 0 s."""
    caches = PromptCaches()
    first = call(1, tokens, begins=True)
    caches.charge(1, first, 0.0)
    caches.answered(first, 0.0, 0.0, TokenUsage(cache_write_tokens=tokens))
    return caches


def test_what_goes_on_with_a_conversation_is_warm_and_costs_what_is_new() -> None:
    caches, later = after_one_answer(), call(2, PROMPT + 1_000)
    assert caches.cache_state(later, 10.0)[0] is CacheState.WARM
    assert caches.cost(later, 10.0) == 1_000.0


def test_what_begins_as_a_known_conversation_did_reads_nothing_of_it() -> None:
    """Prompts of hooks begin alike and differ at their end, where nobody looks."""
    caches, alike = after_one_answer(), call(2, begins=True)
    assert caches.cache_state(alike, 10.0)[0] is CacheState.NEW
    assert caches.charge(2, alike, 10.0) == (float(PROMPT), 0.0)
    caches.answered(alike, 10.0, 0.0, TokenUsage(cache_write_tokens=PROMPT))
    assert caches.conversations["talk"].misses == 0


def test_what_is_too_small_to_be_cached_does_not_wait_behind_those_that_lost_their_cache() -> None:
    caches = after_one_answer()
    assert (
        caches.cache_state(call(2, 600, begins=True, talk="aside"), 10.0)[0] is CacheState.UNCACHED
    )
    assert caches.cache_state(call(3, 6_000, begins=True, talk="new"), 10.0)[0] is CacheState.NEW
