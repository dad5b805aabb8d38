"""Export what lanes have learned, and restore it after a restart.

Rules: (1) plain JSON values with a version; (2) what is out of date or cannot be parsed is dropped,
never guessed; (3) nothing about single calls is saved; (4) times are saved as wall-clock times: no
other clock runs while no process does; (5) where the wall clock was ahead when they were saved, a
wall lasts no longer than it did then.
"""

from __future__ import annotations

import math

from jackline.failures import Json
from jackline.lane_id import LaneId
from jackline.lanes.controller import LaneController
from jackline.lanes.lane import OUTDATED_AFTER, Lane
from jackline.lanes.rate_limits import DIMENSIONS, LimitBucket
from jackline.states import LaneState

# 1 named a lane by one text; what was saved so is dropped.
VERSION = 2


def export(controller: LaneController, now: float) -> dict[str, Json]:
    """What the lanes know at `now`."""
    lanes: list[Json] = []
    for lane_id, lane in controller.lanes.items():
        size, before = lane.window.size, lane.window.slow_until
        if lane.state is LaneState.OPEN and math.isfinite(before):
            # What an open lane carried before the last restart counts until it has grown to it
            # again, or a second restart would halve what the first had halved already.
            size = max(size, before)
        limits: dict[str, Json] = {
            dimension: {"limit": bucket.cap, "level": bucket.level_at(now)}
            for dimension, bucket in lane.buckets.items()
        }
        lanes.append(
            {
                **lane_id._asdict(),
                "window": size,
                "peak": lane.window.peak,
                "limits": limits,
                "proven": lane.is_proven,
                "parked_until": controller.date_of(lane.reset_at),
            }
        )
    return {"version": VERSION, "at": controller.date_of(now), "lanes": lanes}


def saved_lane(saved: Json) -> LaneId | None:
    """The lane that something saved is about; None when it names none."""
    match saved:
        case {"upstream": str(upstream), "model": str(model), "account": str(account)}:
            return LaneId(upstream, model, account)
    return None


def saved_lanes(memory: Json) -> list[LaneId] | None:
    """The lanes that an exported memory knows; None when its form is not the present one."""
    if not isinstance(memory, dict) or memory.get("version") != VERSION:
        return None
    lanes = memory.get("lanes")
    found = [saved_lane(each) for each in lanes] if isinstance(lanes, list) else []
    return [each for each in found if each is not None]


def restore(controller: LaneController, memory: Json, now: float) -> list[LaneId]:
    """Teach fresh lanes what was exported; the lanes that remembered something."""
    if not isinstance(memory, dict) or memory.get("version") != VERSION:
        return []
    at, lanes = _number(memory.get("at")), memory.get("lanes")
    if at is None or not isinstance(lanes, list):
        return []
    ahead = controller.wall_ahead
    taught = []
    for saved in lanes:
        lane_id = saved_lane(saved)
        lane = None if lane_id is None else controller.lanes.get(lane_id)
        if lane is not None and isinstance(saved, dict) and _teach(lane, saved, at, now, ahead):
            taught.append(lane.id)
    controller.refresh(now)
    return taught


def _teach(lane: Lane, saved: dict[str, Json], at: float, now: float, ahead: float) -> bool:
    remembered = False
    lane.is_proven = saved.get("proven") is True
    at -= ahead
    date = _number(saved.get("parked_until"))
    if date is not None:
        parked_until = date - ahead - max(0.0, at - now)
        if parked_until > now:
            lane.park(None, parked_until, now)
            remembered = True
    if 0 <= now - at <= OUTDATED_AFTER:
        size, peak = _number(saved.get("window")), _number(saved.get("peak"))
        if size is not None and peak is not None and size >= 1 and peak >= 0:
            # Begin with half of what was carried: load elsewhere may have changed meanwhile.
            lane.window.restart(max(1.0, size / 2), size, now)
            lane.window.peak = peak
            remembered = True
        limits = saved.get("limits")
        for dimension, known in limits.items() if isinstance(limits, dict) else ():
            limit = _number(known.get("limit")) if isinstance(known, dict) else None
            level = _number(known.get("level")) if isinstance(known, dict) else None
            if dimension in DIMENSIONS and limit is not None and limit > 0 and level is not None:
                bucket = LimitBucket(limit / 60, limit, min(level, limit), at)
                bucket.correct(bucket.level_at(now), now)
                lane.buckets[dimension] = bucket
            remembered = True
    return remembered


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 else None
