"""What lanes know of prompt caches, what a call costs by it, and who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from jackline.dialects import TokenUsage
from jackline.lanes import Call, LaneController, LaneDecision, LaneSettings, Send
from jackline.lanes.prompt_caches import LONG_LIFE, SHORT_LIFE, CacheState, PromptCaches
from jackline.lanes.queue import AGED_AFTER, CLOSING_WITHIN, DelayedCalls, QueueEntry
from jackline.lanes.settings import KnownLimits
from tests.lane_ids import lane_id
from tests.lanes import failures_made as made

NOW = made.START
LANE = lane_id("sonnet")


def turn(number: int, conversation: str, tokens: int, prefix: str = "") -> Call:
    return Call(
        number,
        (LANE,),
        input_tokens=tokens,
        conversation=conversation,
        prefix=prefix,
        prefix_tokens=10_000 if prefix else 0,
    )


@dataclass
class World:
    """A lane with a limit of input per minute, and what is sent on it."""

    per_minute: float | None = 60_000.0
    counts: bool = False
    now: float = NOW
    number: int = 0
    sent: list[int] = field(default_factory=list)
    permits: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        limits = KnownLimits(input_tokens_per_minute=self.per_minute)
        given = LaneSettings(LANE, limits=limits, cached_counts=self.counts)
        self.controller = LaneController([given], lambda: 0.5, now=self.now)
        self.lane = self.controller.lanes[LANE]

    def follow(self, decision: LaneDecision) -> list[Send]:
        for send in decision.sends:
            self.sent.append(send.call)
            self.permits[send.call] = send.permit
        return decision.sends

    def ask(self, conversation: str, tokens: int, prefix: str = "") -> int:
        self.number += 1
        call = turn(self.number, conversation, tokens, prefix)
        self.follow(self.controller.submit(self.now, call))
        return self.number

    def begin(self, call: int) -> None:
        self.follow(self.controller.first_byte(self.now, self.permits[call]))

    def answer(self, call: int, usage: TokenUsage) -> None:
        self.follow(self.controller.finished(self.now, self.permits[call], usage))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.follow(self.controller.tick(self.now))

    def learn(self, conversation: str, tokens: int) -> None:
        """Let the conversation be cached as of now, without anything being short for it."""
        self.lane.caches.answered(
            turn(0, conversation, tokens), self.now, 0.0, TokenUsage(0, 100, 0, tokens)
        )
        self.controller._caches_seen = True

    def spend(self) -> None:
        """Leave nothing of this minute's limit."""
        self.lane.buckets["input"].correct(0.0, self.now)


def caches_with(usage: TokenUsage, tokens: int = 50_000) -> PromptCaches:
    caches = PromptCaches()
    caches.answered(turn(1, "a", tokens), NOW, 0.0, usage)
    return caches


def test_a_warm_call_costs_what_is_new_and_a_lapsed_one_everything() -> None:
    caches = caches_with(TokenUsage(0, 100, 0, 50_000))
    following = turn(2, "a", 53_000)
    assert caches.cost(following, NOW + 10) == 3_000
    assert caches.cost(following, NOW + SHORT_LIFE - 0.5) == 53_000
    assert caches.cache_state(following, NOW + 10)[0] is CacheState.WARM
    assert caches.cache_state(following, NOW + SHORT_LIFE)[0] is CacheState.LAPSED
    assert caches.cache_state(turn(3, "b", 20_000), NOW)[0] is CacheState.NEW


def test_an_estimate_is_measured_by_how_the_last_one_was_wrong() -> None:
    # The prompt was taken to have 40,000 tokens, and had 50,000.
    caches = caches_with(TokenUsage(0, 100, 0, 50_000), tokens=40_000)
    assert caches.cost(turn(2, "a", 44_000), NOW + 10) == pytest.approx(5_000)


def test_what_a_client_does_not_let_cache_costs_each_time() -> None:
    caches = caches_with(TokenUsage(30_000, 100, 0, 20_000))
    assert caches.cost(turn(2, "a", 50_000), NOW + 10) == 30_000


def test_the_life_of_a_cache_is_that_of_what_was_written_last() -> None:
    hour = caches_with(TokenUsage(0, 100, 0, 50_000, 50_000))
    assert hour.cache_state(turn(2, "a", 1), NOW + LONG_LIFE - 5)[0] is CacheState.WARM
    # What is only read lives on as long as it was written for.
    hour.answered(turn(2, "a", 50_000), NOW + 60, 50_000.0, TokenUsage(0, 100, 50_000, 0))
    assert hour.conversations["a"].until == NOW + 60 + LONG_LIFE
    # A part that lives for five minutes goes first.
    hour.answered(turn(3, "a", 51_000), NOW + 90, 50_000.0, TokenUsage(0, 100, 50_000, 1_000))
    assert hour.conversations["a"].life == SHORT_LIFE


def test_after_two_misses_a_conversation_counts_as_uncached_until_it_is_read_again() -> None:
    caches = caches_with(TokenUsage(0, 100, 0, 50_000))
    for attempt in (1, 2):
        assert caches.cost(turn(2, "a", 51_000), NOW + attempt) == 1_000
        caches.answered(turn(2, "a", 50_000), NOW + attempt, 50_000.0, TokenUsage(0, 9, 0, 50_000))
    assert caches.cost(turn(2, "a", 51_000), NOW + 3) == 51_000
    assert caches.cache_state(turn(2, "a", 51_000), NOW + 3)[0] is CacheState.UNCACHED
    caches.answered(turn(2, "a", 50_000), NOW + 4, 0.0, TokenUsage(0, 9, 50_000, 0))
    assert caches.cost(turn(2, "a", 51_000), NOW + 5) == 1_000


def test_where_reads_count_nothing_is_ranked_and_everything_costs() -> None:
    caches = PromptCaches(reads_count=True)
    caches.answered(turn(1, "a", 50_000), NOW, 0.0, TokenUsage(0, 100, 0, 50_000))
    assert caches.cache_state(turn(2, "a", 51_000), NOW) == (CacheState.PLAIN, 0.0)
    assert caches.cost(turn(2, "a", 51_000), NOW) == 51_000
    assert caches.counted(TokenUsage(1_000, 5, 50_000, 10)) == 51_010
    assert PromptCaches().counted(TokenUsage(1_000, 5, 50_000, 10)) == 1_010


def test_a_header_and_a_usage_do_not_correct_the_same_attempt_twice() -> None:
    world = World(per_minute=200_000.0)
    call = world.ask("a", 90_000)
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "200000",
        "anthropic-ratelimit-input-tokens-remaining": "190000",
    }
    world.follow(world.controller.first_byte(world.now, world.permits[call], headers))
    level = world.lane.buckets["input"].level_at(world.now)
    assert level == 190_000
    # The estimate was far too high, which the header has told already.
    world.answer(call, TokenUsage(10_000, 10))
    assert world.lane.buckets["input"].level_at(world.now) == level


def test_a_usage_corrects_where_no_header_did() -> None:
    world = World(per_minute=200_000.0)
    call = world.ask("a", 90_000)
    world.begin(call)
    world.answer(call, TokenUsage(10_000, 10))
    assert world.lane.buckets["input"].level_at(world.now) == 190_000


def test_the_cost_is_that_of_the_moment_of_sending() -> None:
    world = World()
    world.learn("a", 50_000)
    world.spend()
    call = world.ask("a", 51_000)
    assert call not in world.sent
    # It could be paid for by now if it were still warm.
    world.lane.paused = True
    world.wait(SHORT_LIFE)
    world.spend()
    world.follow(world.controller.pause(world.now, LANE, paused=False))
    world.wait(10)
    assert call not in world.sent
    world.wait(60)
    assert world.lane.attempts[world.permits[call]].charged == 51_000


def test_a_cache_that_is_about_to_lapse_goes_before_a_longer_path() -> None:
    world = World()
    world.learn("closing", 50_000)
    world.wait(SHORT_LIFE - CLOSING_WITHIN + 10)
    world.learn("warm", 50_000)
    world.spend()
    warm = world.ask("warm", 52_000)
    closing = world.ask("closing", 52_000)
    world.wait(10)
    assert world.sent == [closing, warm]


def test_lapsed_conversations_go_before_new_ones_and_warm_ones_before_both() -> None:
    world = World()
    world.learn("lapsed", 20_000)
    world.wait(SHORT_LIFE + 1)
    world.learn("warm", 20_000)
    world.spend()
    new = world.ask("new", 2_000)
    lapsed = world.ask("lapsed", 20_100)
    warm = world.ask("warm", 20_100)
    world.wait(60)
    world.wait(60)
    assert world.sent == [warm, lapsed, new]


def test_who_has_waited_for_ten_minutes_goes_out_of_turn_a_quarter_of_the_limit_at_most() -> None:
    world = World()
    world.learn("any", 100)
    world.lane.paused = True
    cold = [world.ask(f"new {number}", 15_000) for number in range(3)]
    world.wait(AGED_AFTER + 1)
    # Somebody's cache is always about to lapse, so that new ones would never go.
    world.learn("closing", 40_000)
    world.now += SHORT_LIFE - 60
    world.spend()
    warm = [world.ask("closing", 45_000) for _ in range(40)]
    world.follow(world.controller.pause(world.now, LANE, paused=False))
    for _ in range(55):
        world.wait(1.0)
    assert set(world.sent) & set(cold) == {cold[0]}
    assert len(set(world.sent) & set(warm)) >= 7


def test_calls_that_wait_when_caches_are_first_seen_are_ranked_by_them() -> None:
    world = World()
    first = world.ask("a", 50_000)
    waiting = world.ask("b", 20_000)
    assert world.controller._entries[waiting].cache_state is CacheState.PLAIN
    world.begin(first)
    world.answer(first, TokenUsage(0, 10, 0, 50_000))
    assert world.controller._entries[waiting].cache_state is CacheState.NEW


def test_siblings_wait_for_the_first_byte_of_the_one_that_writes_their_prefix() -> None:
    world = World(per_minute=None)
    world.learn("any", 100)
    first = world.ask("a", 12_000, prefix="tools")
    siblings = [world.ask(name, 12_000, prefix="tools") for name in "bcd"]
    other = world.ask("e", 12_000, prefix="other tools")
    assert world.sent == [first, other]
    told = world.controller.waiting(world.now, siblings[0])
    assert told is not None
    assert "begins alike" in told.why
    world.now += 1.5
    world.begin(first)
    assert world.sent == [first, other, *siblings]
    attempts = world.lane.attempts
    assert [attempts[world.permits[each]].charged for each in siblings] == [2_000] * 3


def test_siblings_do_not_wait_for_longer_than_twenty_seconds_in_all() -> None:
    world = World(per_minute=None)
    world.learn("any", 100)
    first = world.ask("a", 12_000, prefix="tools")
    siblings = [world.ask(name, 12_000, prefix="tools") for name in "bc"]
    world.wait(15)
    # The first one fails: another writes the prefix, and the last waits for that one.
    failed = world.controller.failed(world.now, world.permits[first], made.invalid())
    world.follow(failed)
    assert world.sent == [first, siblings[0]]
    world.wait(4.9)
    assert siblings[1] not in world.sent
    world.wait(0.2)
    assert siblings[1] in world.sent


@pytest.mark.parametrize("counts", [True, False])
def test_nobody_waits_for_a_prefix_where_reads_count(*, counts: bool) -> None:
    world = World(per_minute=None, counts=counts)
    world.learn("any", 100)
    world.ask("a", 12_000, prefix="tools")
    world.ask("b", 12_000, prefix="tools")
    assert len(world.sent) == (2 if counts else 1)


def test_a_sibling_that_leaves_is_forgotten() -> None:
    world = World(per_minute=None)
    world.learn("any", 100)
    first = world.ask("a", 12_000, prefix="tools")
    sibling = world.ask("b", 12_000, prefix="tools")
    world.follow(world.controller.aborted(world.now, sibling))
    world.begin(first)
    world.wait(30)
    assert sibling not in world.sent
    assert world.controller.calls_waiting == 0


def test_nobody_waits_for_a_prefix_that_its_vendor_does_not_cache() -> None:
    world = World(per_minute=None)
    first = world.ask("a", 12_000, prefix="tools")
    world.begin(first)
    world.answer(first, TokenUsage(12_000, 10))
    world.wait(SHORT_LIFE)
    siblings = [world.ask(name, 12_000, prefix="tools") for name in "bc"]
    assert world.sent == [first, *siblings]


def test_what_is_known_of_conversations_is_bounded() -> None:
    caches = PromptCaches()
    for number in range(5_500):
        caches.answered(turn(number, f"c{number}", 100), NOW, 0.0, TokenUsage(0, 1, 0, 100))
    assert len(caches.conversations) == 5_000
    assert "c5499" in caches.conversations


def test_one_prompt_above_the_limit_closes_the_lane_for_a_minute_at_most() -> None:
    world = World(per_minute=200_000.0)
    call = world.ask("huge", 5_000_000)
    # Its client goes away before anything is heard.
    world.follow(world.controller.aborted(world.now, call))
    following = world.ask("small", 1_000)
    world.wait(61)
    assert following in world.sent


def test_a_refused_prompt_above_the_limit_closes_the_lane_for_a_minute_at_most() -> None:
    world = World(per_minute=200_000.0)
    call = world.ask("huge", 5_000_000)
    refused = world.controller.failed(world.now, world.permits[call], made.invalid())
    world.follow(refused)
    following = world.ask("small", 1_000)
    world.wait(61)
    assert following in world.sent


def test_a_sibling_that_is_held_on_another_lane_goes_when_that_prefix_is_written() -> None:
    resting = DelayedCalls()
    entry = QueueEntry(turn(1, "a", 12_000, prefix="tools"), (lane_id("one"), lane_id("two")), 0.0)
    assert resting.hold_sibling(entry, lane_id("one"), NOW, NOW + 20)
    assert resting.siblings(lane_id("one"), "tools") == [entry]
    # There the prefix has been under way for longer.
    assert resting.hold_sibling(entry, lane_id("two"), NOW + 1, NOW + 8)
    assert resting.siblings(lane_id("two"), "tools") == [entry]
    assert not resting.hold_sibling(entry, lane_id("one"), NOW + 9, NOW + 29), (
        "8 s were left of its 20"
    )
