"""What holds for lanes that know prompt caches, under any sequence of events.

Rules: (1) whose turn it is is compared with the policy as the design states it, written down once
more without heaps; (2) all laws of lanes without caches hold as well.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from jackline.dialects import TokenUsage
from jackline.lane_id import LaneId
from jackline.lanes import Call, LaneDecision
from jackline.lanes.prompt_caches import SIBLINGS_WAIT, CacheState
from jackline.lanes.queue import AGED_AFTER, CLOSING_WITHIN, QueueEntry, Rank
from tests.lanes.test_laws import LANES, Lanes

CONVERSATIONS = ("", "one", "two", "three", "four")


def rank_of(entry: QueueEntry, now: float, *, aged: bool, crowded: bool) -> tuple[int, float, int]:
    """The class of a waiting call and its place there, as the design page says it."""
    cache_state = entry.cache_state
    if cache_state is CacheState.WARM and entry.cached_until <= now:
        cache_state = CacheState.LAPSED
    if aged and cache_state is not CacheState.PLAIN and entry.since <= now - AGED_AFTER:
        return Rank.AGED, entry.since, entry.call.id
    if cache_state is CacheState.WARM and entry.cached_until - now < CLOSING_WITHIN:
        return Rank.CLOSING, entry.cached_until, entry.call.id
    if cache_state is CacheState.LAPSED:
        return Rank.LAPSED, entry.urgency, entry.call.id
    if cache_state is CacheState.NEW and crowded:
        return Rank.NEW, entry.urgency, entry.call.id
    return Rank.NORMAL, entry.urgency, entry.call.id


class CachedLanes(Lanes):
    """The world of the other machine, whose calls belong to conversations that are cached."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, float] = {}

    @rule(
        count=st.integers(1, 6),
        lanes=st.sampled_from([LANES[:1], LANES[:2], LANES]),
        conversation=st.sampled_from(CONVERSATIONS),
        prefix=st.sampled_from(["", "tools", "other tools"]),
        tokens=st.sampled_from([500, 5_000, 150_000]),
    )
    def submit_turns(
        self, count: int, lanes: tuple[LaneId, ...], conversation: str, prefix: str, tokens: int
    ) -> None:
        for _ in range(count):
            self.next_call += 1
            self.alive.add(self.next_call)
            call = Call(
                self.next_call,
                lanes,
                remaining=float(self.next_call % 7),
                input_tokens=tokens,
                conversation=conversation,
                prefix=prefix,
                prefix_tokens=min(tokens, 2_000),
            )
            self.follow(self.controller.submit(self.now, call))

    @precondition(lambda self: self.flying)
    @rule(
        data=st.data(),
        read=st.sampled_from([0, 400, 5_000, 100_000]),
        written=st.sampled_from([0, 300, 5_000, 100_000]),
        hour=st.booleans(),
    )
    def finished_with_caches(
        self, data: st.DataObject, read: int, written: int, *, hour: bool
    ) -> None:
        permit = data.draw(st.sampled_from(sorted(self.flying)))
        call, name = self.flying.pop(permit)
        self.closed.append(permit)
        self.alive.discard(call)
        self.ended.add(call)
        usage = TokenUsage(10, 10, read, written, written if hour else 0)
        self.follow(self.controller.finished(self.now, permit, usage))
        assert self.controller.lanes[name].caches.in_use or not read + written

    def follow(self, decision: LaneDecision) -> None:
        super().follow(decision)
        for send in decision.sends:
            attempt = self.controller.lanes[send.lane].attempts.get(send.permit)
            if attempt is not None:
                prompt = attempt.charged + attempt.expected_read
                assert attempt.charged >= 0
                assert attempt.expected_read >= 0
                assert prompt > 0 or not attempt.call.input_tokens

    @invariant()
    def the_turn_is_that_of_the_policy(self) -> None:
        now = self.controller._now
        for name, lane in self.controller.lanes.items():
            waiting = self.controller._queues.everyone_for(name)
            next_aged = lane.caches.next_aged
            head, _ = self.controller._queues.first(name, now, next_aged)
            if not waiting:
                assert head is None
                continue
            alone = [rank_of(each, now, aged=False, crowded=False) for each in waiting]
            crowded = any(rank in (Rank.CLOSING, Rank.LAPSED) for rank, *_ in alone)
            aged = now >= next_aged
            ranks = [rank_of(each, now, aged=aged, crowded=crowded) for each in waiting]
            assert head is not None
            if head.rank is Rank.LEAVING:
                leaving = [each.call for each in waiting if each.call.hurries_at <= now]
                assert head.key == min(call.leaves_at for call in leaving)
            else:
                assert (head.rank, head.key, head.id) == min(ranks)

    @invariant()
    def siblings_are_not_held_for_long(self) -> None:
        for entry in self.controller._entries.values():
            if entry.sibling_until is None:
                continue
            until = self.held.setdefault(entry.call.id, entry.sibling_until)
            assert entry.sibling_until <= until, "it is held once more, for longer"
            assert until <= self.controller._now + SIBLINGS_WAIT or not self._is_held(entry)

    def _is_held(self, entry: QueueEntry) -> bool:
        return entry.rests_until is not None and entry.rests_until == entry.sibling_until

    @invariant()
    def what_is_known_of_caches_is_bounded_and_sane(self) -> None:
        for lane in self.controller.lanes.values():
            for known in lane.caches.conversations.values():
                assert known.cached >= 0
                assert known.misses >= 0
            assert not lane.caches.released, "siblings wait for a prefix that is written"


CachedLanes.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestCachedLanes = CachedLanes.TestCase
