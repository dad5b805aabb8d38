"""Tell where waiting calls stand in line, and why one goes before another.

Rules: (1) looking changes nothing; (2) the order is the one in which `WaitingRoom.first` would let
them go if nothing else happened; a test compares the two; (3) only when somebody asks: it costs as
much as there are calls waiting, and no call pays for it.
Not here: the order itself (queue.py), what people are shown of it (control/turn_words.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jackline.lanes.lane import Lane
from jackline.lanes.prompt_caches import Standing, counted_until
from jackline.lanes.queue import AGED_AFTER, CLOSING_WITHIN, Entry, Rank
from jackline.lanes.waiting_room import WaitingRoom


class Turn(NamedTuple):
    """Where one call stands among those that wait for the lane it prefers.

    `cached` are the tokens of its conversation that the cache holds, or held: `cached_until` may be
    past. `cost` is what it would take of the input limit now. `out_of_turn_at` is when it may go
    before all others for having waited so long; None where caches do not matter.
    """

    call: int
    lane: str
    place: int
    rank: Rank
    cached: int
    cached_until: float | None
    cost: float
    out_of_turn_at: float | None


def turns(lanes: Mapping[str, Lane], room: WaitingRoom, now: float, most: int) -> list[Turn]:
    """Who waits in line, the first of every lane before the second of any; at most so many."""
    # Who rests after a failure stands in no line.
    preferred = dict.fromkeys(line[0] for line, queue in room.queues.items() if queue.waiting)
    found: list[Turn] = []
    for name in preferred:
        lane = lanes[name]
        waiting = [each for each in room.everyone_for(name) if each.call.id not in room.beside]
        ordered = in_order(waiting, now, lane.caches.next_aged, len(waiting))
        own = [
            (place, rank, entry)
            for place, (rank, entry) in enumerate(ordered, 1)
            if entry.line[0] == name
        ]
        found += [_turn(lanes, lane, place, rank, entry, now) for place, rank, entry in own[:most]]
    found.sort(key=lambda turn: turn.place)
    return found[:most]


def in_order(
    entries: Iterable[Entry], now: float, next_aged: float, most: int
) -> list[tuple[Rank, Entry]]:
    """The first of those that wait for one lane, as they would go if all of them went now."""
    everyone = list(entries)
    aged = _aged(everyone, now) if now >= next_aged else []
    first = {id(entry) for entry in aged}
    standings = [
        (_standing(entry, now), entry) for entry in everyone if not first or id(entry) not in first
    ]
    any_lapsed = any(standing is Standing.LAPSED for standing, _ in standings)
    crowded = any_lapsed or any(
        standing is Standing.WARM and _is_closing(entry, now) for standing, entry in standings
    )
    ranked: list[tuple[int, float, int, Rank, Entry]] = []
    for standing, entry in standings:
        rank, key = Rank.NORMAL, entry.urgency
        if standing is Standing.LAPSED:
            rank = Rank.LAPSED
        elif standing is Standing.WARM and _is_closing(entry, now):
            rank, key = Rank.CLOSING, entry.cached_until
        elif standing is Standing.NEW and crowded:
            rank = Rank.NEW
        # When those have gone whose caches are about to lapse, new ones stand with the others.
        group = Rank.NORMAL if rank is Rank.NEW and not any_lapsed else rank
        ranked.append((group, key, entry.call.id, rank, entry))
    chosen = heapq.nsmallest(most, ranked, key=lambda each: each[:3])
    told = [(Rank.AGED, entry) for entry in aged]
    return [*told, *((rank, entry) for _, _, _, rank, entry in chosen)][:most]


def _aged(entries: list[Entry], now: float) -> list[Entry]:
    """Those who may go out of turn now: after the first whose cache is cold, the others wait."""
    long = [
        entry
        for entry in entries
        if entry.standing is not Standing.PLAIN and entry.since <= now - AGED_AFTER
    ]
    long.sort(key=lambda entry: (entry.since, entry.call.id))
    for place, entry in enumerate(long, 1):
        if _standing(entry, now) is not Standing.WARM:
            return long[:place]
    return long


def _standing(entry: Entry, now: float) -> Standing:
    lapsed = entry.standing is Standing.WARM and entry.cached_until <= now
    return Standing.LAPSED if lapsed else entry.standing


def _is_closing(entry: Entry, now: float) -> bool:
    return entry.cached_until - now < CLOSING_WITHIN


def _turn(
    lanes: Mapping[str, Lane], lane: Lane, place: int, rank: Rank, entry: Entry, now: float
) -> Turn:
    conversation = entry.call.conversation
    known = None
    if entry.standing in (Standing.WARM, Standing.LAPSED):
        caches = (lanes[name].caches.conversations for name in entry.lanes)
        known = next((each[conversation] for each in caches if conversation in each), None)
    plain = entry.standing is Standing.PLAIN
    return Turn(
        entry.call.id,
        lane.name,
        place,
        rank,
        0 if known is None else known.cached,
        None if known is None else counted_until(known),
        lane.cost(entry.call, now),
        None if plain else max(entry.since + AGED_AFTER, lane.caches.next_aged),
    )
