"""Prompt caches keep the vendors' rules: what is read, what is written, and until when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.simulator.prompt_cache import (
    FIVE_MINUTES,
    ONE_DAY,
    ONE_HOUR,
    STEP,
    Hit,
    Prompt,
    PromptBlock,
    PromptCache,
)

SONNET = "claude-sonnet-4-6"


def prompt(*blocks: PromptBlock, model: str = SONNET, account: str = "") -> Prompt:
    return Prompt(model, blocks, account)


def marked(name: str, tokens: int, ttl: float = FIVE_MINUTES) -> PromptBlock:
    return PromptBlock(name.encode(), tokens, ttl)


def plain(name: str, tokens: int) -> PromptBlock:
    return PromptBlock(name.encode(), tokens)


def tokens(hit: Hit) -> tuple[int, int, int, int]:
    return hit.read, hit.written_5m, hit.written_1h, hit.plain


def answer(cache: PromptCache, request: Prompt, now: float, first_byte: float = 1.0) -> Hit:
    """A request that is admitted, and whose answer begins after so many seconds."""
    hit = cache.look(request, now)
    cache.admitted(hit)
    cache.begun(hit, now + first_byte)
    return hit


# --- caching at marks -------------------------------------------------------------------

TURN = prompt(plain("tools", 500), marked("system", 2500), plain("question", 40))


def test_the_first_request_writes_up_to_its_mark_and_the_second_reads_it() -> None:
    cache = PromptCache()
    assert tokens(answer(cache, TURN, 0.0)) == (0, 3000, 0, 40)
    assert tokens(answer(cache, TURN, 10.0)) == (3000, 0, 0, 40)


def test_without_a_mark_nothing_is_cached() -> None:
    cache = PromptCache()
    bare = prompt(plain("system", 9000))
    answer(cache, bare, 0.0)
    assert tokens(cache.look(bare, 10.0)) == (0, 0, 0, 9000)
    assert len(cache) == 0


def test_a_later_turn_reads_the_earlier_one_and_writes_what_is_new() -> None:
    cache = PromptCache()
    answer(cache, prompt(marked("system", 2000), marked("first", 300)), 0.0)
    later = prompt(
        marked("system", 2000),
        plain("first", 300),
        plain("answer", 200),
        marked("second", 100),
        plain("aside", 7),
    )
    assert tokens(answer(cache, later, 10.0)) == (2300, 300, 0, 7)


def test_a_change_in_the_prefix_loses_everything_after_it() -> None:
    cache = PromptCache()
    answer(cache, prompt(marked("tools", 2000), marked("system", 2000), marked("hi", 50)), 0.0)
    changed = prompt(marked("tools", 2000), marked("System", 2000), marked("hi", 50))
    assert tokens(cache.look(changed, 10.0)) == (2000, 2050, 0, 0)


def test_an_entry_can_be_read_from_the_first_byte_of_the_answer_and_not_before() -> None:
    cache = PromptCache()
    first = cache.look(TURN, 0.0)
    cache.admitted(first)
    sibling = cache.look(TURN, 3.9)
    assert sibling.read == 0
    assert sibling.written == 3000  # both pay: nothing was there yet
    cache.begun(first, 4.0)
    assert cache.look(TURN, 4.0).read == 3000


def test_a_request_whose_answer_never_begins_leaves_nothing() -> None:
    cache = PromptCache()
    cache.admitted(cache.look(TURN, 0.0))
    assert cache.look(TURN, 1.0).read == 0


@pytest.mark.parametrize("ttl", [FIVE_MINUTES, ONE_HOUR])
def test_life_counts_from_the_start_of_the_request_that_wrote_it(ttl: float) -> None:
    cache = PromptCache()
    request = prompt(marked("system", 3000, ttl))
    answer(cache, request, 100.0, first_byte=50.0)
    assert cache.look(request, 100.0 + ttl - 0.001).read == 3000
    assert cache.look(request, 100.0 + ttl).read == 0


@pytest.mark.parametrize("ttl", [FIVE_MINUTES, ONE_HOUR])
def test_a_hit_restarts_the_life_from_the_start_of_the_reading_request(ttl: float) -> None:
    cache = PromptCache()
    request = prompt(marked("system", 3000, ttl))
    answer(cache, request, 0.0)
    reading = cache.look(request, ttl - 1.0)
    cache.admitted(reading)  # no byte has come yet, and none may ever
    assert cache.look(request, 2 * ttl - 1.001).read == 3000
    assert cache.look(request, 2 * ttl - 1.0).read == 0


def test_looking_alone_prolongs_nothing() -> None:
    cache = PromptCache()
    answer(cache, TURN, 0.0)
    cache.look(TURN, 299.0)
    assert cache.look(TURN, 300.0).read == 0


def test_a_lapsed_entry_of_an_hour_written_anew_for_five_minutes_lives_five_minutes() -> None:
    cache = PromptCache()
    answer(cache, prompt(marked("system", 3000, ONE_HOUR)), 0.0)
    again = prompt(marked("system", 3000))
    assert tokens(answer(cache, again, 3600.0)) == (0, 3000, 0, 0)
    assert answer(cache, again, 3700.0).read == 3000
    assert cache.look(again, 3700.0 + FIVE_MINUTES).read == 0


def test_writes_are_distinguished_by_their_life() -> None:
    cache = PromptCache()
    request = prompt(marked("system", 3000, ONE_HOUR), marked("talk", 1000), plain("x", 5))
    assert tokens(answer(cache, request, 0.0)) == (0, 1000, 3000, 5)
    # The talk has lapsed after five minutes, the system prompt has not.
    assert tokens(cache.look(request, 400.0)) == (3000, 1000, 0, 5)


def test_a_mark_finds_entries_up_to_nineteen_blocks_before_its_own() -> None:
    cache = PromptCache()
    answer(cache, prompt(marked("system", 3000)), 0.0)

    def after(blocks: int) -> Hit:
        between = [plain(f"result {number}", 10) for number in range(blocks)]
        return cache.look(prompt(plain("system", 3000), *between, marked("last", 10)), 10.0)

    assert after(18).read == 3000
    assert after(19).read == 0
    assert after(19).written == 3000 + 19 * 10 + 10


@pytest.mark.parametrize(
    ("model", "least"),
    [
        ("claude-opus-5", 512),
        (SONNET, 1024),
        ("claude-opus-4-7", 2048),
        ("claude-haiku-4-5-20251001", 4096),
        ("us.anthropic.claude-opus-4-6-v1:0", 4096),
        ("some-new-model", 1024),
    ],
)
def test_a_prefix_below_the_models_minimum_is_silently_not_cached(model: str, least: int) -> None:
    cache = PromptCache()
    small = prompt(marked("system", least - 1), plain("x", 9), model=model)
    assert tokens(answer(cache, small, 0.0)) == (0, 0, 0, least + 8)
    assert cache.look(small, 1.0).read == 0
    enough = prompt(marked("system", least), model=model)
    assert answer(cache, enough, 0.0).written == least
    assert cache.look(enough, 1.0).read == least


def test_models_and_accounts_share_nothing() -> None:
    cache = PromptCache()
    answer(cache, TURN, 0.0)
    assert cache.look(replace(TURN, model="claude-sonnet-4-5"), 1.0).read == 0
    assert cache.look(replace(TURN, account="another"), 1.0).read == 0
    assert cache.look(TURN, 1.0).read == 3000


def test_lapsed_entries_are_dropped_and_others_when_there_are_too_many() -> None:
    cache = PromptCache(most_entries=10)
    for number in range(50):
        answer(cache, prompt(marked(f"system {number}", 3000)), float(number))
    assert len(cache) == 10
    assert cache.look(prompt(marked("system 49", 3000)), 60.0).read == 3000
    assert cache.look(prompt(marked("system 39", 3000)), 60.0).read == 0
    answer(cache, TURN, 1000.0)
    assert len(cache) == 1


# --- automatic caching ------------------------------------------------------------------


def talk(*sizes: int, key: str = "", retention: float = FIVE_MINUTES) -> Prompt:
    blocks = tuple(plain(f"part {number}", size) for number, size in enumerate(sizes))
    return Prompt("gpt-5", blocks, automatic=True, retention=retention, routing_key=key)


def test_prompts_from_1024_tokens_are_cached_in_steps_of_128() -> None:
    cache = PromptCache()
    answer(cache, talk(1023), 0.0)
    assert tokens(cache.look(talk(1023), 1.0)) == (0, 0, 0, 1023)
    answer(cache, talk(1000, 200), 0.0)
    assert tokens(cache.look(talk(1000, 200, 60), 2.0)) == (1152, 0, 0, 108)


def test_automatic_entries_lapse_five_minutes_after_their_last_use_or_a_day() -> None:
    cache = PromptCache()
    answer(cache, talk(2048), 0.0)
    answer(cache, talk(2048), 299.0)
    assert cache.look(talk(2048), 598.0).read == 2048
    assert cache.look(talk(2048), 599.0).read == 0
    stored = talk(4096, retention=ONE_DAY)
    answer(cache, stored, 0.0)
    assert cache.look(stored, ONE_DAY - 1).read == 4096
    assert cache.look(stored, ONE_DAY).read == 0


def test_a_routing_key_and_the_start_decide_the_machine() -> None:
    cache = PromptCache()
    answer(cache, talk(2048, key="a"), 0.0)
    assert cache.look(talk(2048, key="a"), 1.0).read == 2048
    assert cache.look(talk(2048, key="b"), 1.0).read == 0


def test_more_than_fifteen_a_minute_spill_to_a_machine_that_knows_nothing() -> None:
    cache = PromptCache()
    read = [answer(cache, talk(2048), second * 2.0).read for second in range(17)]
    assert read == [0] + 14 * [2048] + [0, 2048]
    assert answer(cache, talk(2048), 95.0).read == 2048  # the minute is over: the first one again


# --- what always holds --------------------------------------------------------------------

NAMES = st.sampled_from("abc")
BLOCKS = st.lists(
    st.builds(
        lambda name, size, ttl: PromptBlock(name.encode(), size, ttl),
        NAMES,
        st.sampled_from([0, 100, 700, 1500]),
        st.sampled_from([None, FIVE_MINUTES, FIVE_MINUTES, ONE_HOUR]),
    ),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.tuples(
        BLOCKS,
        st.booleans(),
        st.sampled_from([0.0, 1.0, 30.0, 299.0, 301.0, 3601.0]),
        st.sampled_from([None, 0.0, 2.0, 40.0]),
    ),
    max_size=15,
)


@given(STEPS)
def test_tokens_add_up_and_nothing_is_read_before_its_first_byte_or_after_its_life(
    steps: list[tuple[list[PromptBlock], bool, float, float | None]],
) -> None:
    cache = PromptCache()
    now = 0.0
    ahead: list[tuple[float, Prompt, Hit]] = []
    readable: list[Prompt] = []
    seen: list[tuple[float, Prompt]] = []
    for blocks, automatic, gap, first_byte in steps:
        now += gap
        for one in [one for one in ahead if one[0] <= now]:
            ahead.remove(one)
            cache.begun(one[2], one[0])
            readable.append(one[1])
        request = Prompt("gpt-5" if automatic else SONNET, blocks, automatic=automatic)
        hit = cache.look(request, now)
        assert min(tokens(hit)) >= 0
        assert sum(tokens(hit)) == request.tokens
        if hit.read:
            # Somebody wrote this very prefix and its answer has begun ...
            assert any(_shares(other, request, hit.read) for other in readable)
            # ... and it was used within the longest requested life.
            used = [at for at, other in seen if _shares(other, request, hit.read)]
            assert now - max(used) < (FIVE_MINUTES if automatic else _longest(readable))
        cache.admitted(hit)
        seen.append((now, request))
        if first_byte is not None:
            ahead.append((now + first_byte, request, hit))


def _shares(other: Prompt, request: Prompt, read: int) -> bool:
    """Whether both prompts begin with the same blocks for at least so many tokens."""
    if other.automatic != request.automatic:
        return False
    shared = 0
    for one, two in zip(other.blocks, request.blocks, strict=False):
        if one[:2] != two[:2]:
            break
        shared += one.tokens
    return shared >= read


def _longest(prompts: list[Prompt]) -> float:
    return max(block.ttl or 0.0 for one in prompts for block in one.blocks)


@given(STEPS, BLOCKS, BLOCKS, st.booleans())
def test_a_longer_prompt_with_the_same_beginning_never_reads_less(
    steps: list[tuple[list[PromptBlock], bool, float, float | None]],
    blocks: list[PromptBlock],
    more: list[PromptBlock],
    automatic: bool,
) -> None:
    cache = PromptCache()
    now = 0.0
    for written, its_automatic, gap, first_byte in steps:
        now += gap
        model = "gpt-5" if its_automatic else SONNET
        answer(cache, Prompt(model, written, automatic=its_automatic), now, first_byte or 0.0)
    model = "gpt-5" if automatic else SONNET
    short = Prompt(model, blocks, automatic=automatic)
    long = Prompt(model, [*blocks, *more], automatic=automatic)
    if automatic and short.tokens < 256 <= long.tokens:
        return  # the start by which a machine is chosen is not the same yet
    assert cache.look(long, now).read >= cache.look(short, now).read


@given(STEPS)
def test_automatic_reads_are_whole_steps_of_at_least_1024_tokens(
    steps: list[tuple[list[PromptBlock], bool, float, float | None]],
) -> None:
    cache = PromptCache()
    now = 0.0
    for blocks, _, gap, _ in steps:
        now += gap
        read = answer(cache, Prompt("gpt-5", blocks, automatic=True), now).read
        assert read % STEP == 0
        assert read == 0 or read >= 1024
