"""Short lane ids for tests: a lane named by one word is paid by an account of its own."""

from __future__ import annotations

from jackline.lane_id import LaneId


def lane_id(name: str) -> LaneId:
    """The lane `name`, with an account that no lane of another name has."""
    return LaneId(name, account=name)
