"""Compute the positions of waiting calls in the queue, and why one goes before another.

Rules: (1) reading changes nothing; (2) the order is the one in which `CallQueues.first` would admit
the calls if nothing else happened; a test compares the two; (3) computed on request only: it costs
as much as there are waiting calls, and no call pays for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jackline.lane_id import LaneId
from jackline.lanes.lane import Lane
from jackline.lanes.prompt_caches import CacheState, counted_until
from jackline.lanes.queue import AGED_AFTER, CLOSING_WITHIN, CallQueues, QueueEntry, Rank


class QueuePosition(NamedTuple):
    """The place of one call among those that wait for the lane it prefers.

    `cached` are the tokens of its conversation that the cache holds, or held: `cached_until` may be
    past. `cost` is what it would take of the input limit now. `out_of_turn_at` is when it may go
    before all others for having waited so long; None where caches do not matter.
    """

    call: int
    lane: LaneId
    place: int
    rank: Rank
    cached: int
    cached_until: float | None
    cost: float
    out_of_turn_at: float | None


def turns(
    lanes: Mapping[LaneId, Lane], room: CallQueues, now: float, most: int
) -> list[QueuePosition]:
    """Who waits in line, the first of every lane before the second of any; at most so many."""
    # Who rests after a failure is in no queue.
    preferred = dict.fromkeys(line[0] for line, queue in room.queues.items() if queue.waiting)
    found: list[QueuePosition] = []
    for name in preferred:
        lane = lanes[name]
        waiting = room.everyone_for(name)
        if room.beside:
            waiting = [entry for entry in waiting if entry.call.id not in room.beside]
        ordered = in_order(waiting, now, lane.caches.next_aged, most)
        if any(entry.call.hurries_at <= now for entry in waiting):
            ordered = _with_leaving(ordered, waiting, now, owing=room.owes(name))[:most]
        own = [
            (place, rank, entry)
            for place, (rank, entry) in enumerate(ordered, 1)
            if entry.line[0] == name
        ]
        found += [_turn(lanes, lane, place, rank, entry, now) for place, rank, entry in own]
    found.sort(key=lambda turn: turn.place)
    return found[:most]


def in_order(
    entries: Iterable[QueueEntry], now: float, next_aged: float, most: int
) -> list[tuple[Rank, QueueEntry]]:
    """The first of those that wait for one lane, as they would go if all of them went now."""
    everyone = list(entries)
    aged = _aged(everyone, now) if now >= next_aged else []
    if aged:
        first = {entry.call.id for entry in aged}
        everyone = [entry for entry in everyone if entry.call.id not in first]
    closing: list[QueueEntry] = []
    normal: list[QueueEntry] = []
    lapsed: list[QueueEntry] = []
    new: list[QueueEntry] = []
    for entry in everyone:
        cache_state = entry.cache_state
        if cache_state is CacheState.NEW:
            new.append(entry)
        elif cache_state is CacheState.LAPSED:
            lapsed.append(entry)
        elif cache_state is not CacheState.WARM or entry.cached_until - now >= CLOSING_WITHIN:
            normal.append(entry)
        else:
            (closing if entry.cached_until > now else lapsed).append(entry)
    if not closing and not lapsed:
        groups = [(_by_urgency, [(Rank.NORMAL, entry) for entry in (*normal, *new)])]
    else:
        marked = [(Rank.NORMAL, entry) for entry in normal]
        begun = [(Rank.NEW, entry) for entry in new]
        groups = [
            (_by_end, [(Rank.CLOSING, entry) for entry in closing]),
            # When those have gone whose caches are about to lapse, new ones stand with the others.
            (_by_urgency, marked if lapsed else [*marked, *begun]),
            (_by_urgency, [(Rank.LAPSED, entry) for entry in lapsed]),
            (_by_urgency, begun if lapsed else []),
        ]
    order = [(Rank.AGED, entry) for entry in aged]
    for key, group in groups:
        order += heapq.nsmallest(most - len(order), group, key=key)
    return order[:most]


def _with_leaving(
    ordered: list[tuple[Rank, QueueEntry]], waiting: list[QueueEntry], now: float, *, owing: bool
) -> list[tuple[Rank, QueueEntry]]:
    """The same order, in which every second place goes to those whose clients leave soon."""
    hurrying = sorted(
        (entry for entry in waiting if entry.call.hurries_at <= now),
        key=lambda entry: (entry.call.leaves_at, entry.call.id),
    )
    found: list[tuple[Rank, QueueEntry]] = []
    listed: set[int] = set()
    others = iter(ordered)
    leaving = iter(hurrying)
    while True:
        following = None
        if not owing:
            entry = next((each for each in leaving if each.call.id not in listed), None)
            following = None if entry is None else (Rank.LEAVING, entry)
        owing = following is not None
        if following is None:
            following = next((each for each in others if each[1].call.id not in listed), None)
        if following is None:
            return found
        listed.add(following[1].call.id)
        found.append(following)


def _by_urgency(ranked: tuple[Rank, QueueEntry]) -> tuple[float, int]:
    return ranked[1].urgency, ranked[1].call.id


def _by_end(ranked: tuple[Rank, QueueEntry]) -> tuple[float, int]:
    return ranked[1].cached_until, ranked[1].call.id


def _aged(entries: list[QueueEntry], now: float) -> list[QueueEntry]:
    """Those who may go out of turn now: after the first whose cache is cold, the others wait."""
    before = now - AGED_AFTER
    long = [
        entry
        for entry in entries
        if entry.since <= before and entry.cache_state is not CacheState.PLAIN
    ]
    long.sort(key=lambda entry: (entry.since, entry.call.id))
    for place, entry in enumerate(long, 1):
        if entry.cache_state is not CacheState.WARM or entry.cached_until <= now:
            return long[:place]
    return long


def _turn(
    lanes: Mapping[LaneId, Lane], lane: Lane, place: int, rank: Rank, entry: QueueEntry, now: float
) -> QueuePosition:
    conversation = entry.call.conversation
    known = None
    if entry.cache_state in (CacheState.WARM, CacheState.LAPSED):
        caches = (lanes[name].caches.conversations for name in entry.lanes)
        known = next((each[conversation] for each in caches if conversation in each), None)
    plain = entry.cache_state is CacheState.PLAIN
    return QueuePosition(
        entry.call.id,
        lane.id,
        place,
        rank,
        0 if known is None else known.cached,
        None if known is None else counted_until(known),
        lane.cost(entry.call, now),
        None if plain else max(entry.since + AGED_AFTER, lane.caches.next_aged),
    )
