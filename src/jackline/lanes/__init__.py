"""When and where to send next: one pure controller for every lane (upstream, account, model).

Rules: (1) no I/O, no clock, no randomness: events come in with `now`, decisions go out; (2) the
same object runs in production, in tests and in the simulator.
"""

from jackline.lane_id import LaneId
from jackline.lanes.call import Abort, Call, LaneDecision, LaneWait, Refuse, Send
from jackline.lanes.controller import LaneController
from jackline.lanes.memory import export, restore, saved_lane, saved_lanes
from jackline.lanes.remaining_work import RemainingWork
from jackline.lanes.settings import (
    CacheTtl,
    ControllerSettings,
    KnownLimits,
    LaneSettings,
    LimitOrigin,
)
from jackline.states import LaneState

__all__ = [
    "Abort",
    "CacheTtl",
    "Call",
    "ControllerSettings",
    "KnownLimits",
    "LaneController",
    "LaneDecision",
    "LaneId",
    "LaneSettings",
    "LaneState",
    "LaneWait",
    "LimitOrigin",
    "Refuse",
    "RemainingWork",
    "Send",
    "export",
    "restore",
    "saved_lane",
    "saved_lanes",
]
