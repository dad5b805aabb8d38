"""When and where to send next: one pure controller for every lane (upstream, account, model).

Laws: (1) no I/O, no clock, no randomness: events come in with `now`, decisions go out; (2) the same
object runs in production, in tests and in the simulator.
Not here: what went wrong (failures/), sending and waiting (calls/).
"""

from jackline.lanes.controller import LaneController
from jackline.lanes.decision import Abort, Call, Decision, Refuse, Send, Usage, Waiting
from jackline.lanes.memory import export, restore
from jackline.lanes.remaining import RemainingWork
from jackline.lanes.settings import CacheTtl, KnownLimits, LaneSettings, LimitOrigin, Settings
from jackline.lanes.states import State

__all__ = [
    "Abort",
    "CacheTtl",
    "Call",
    "Decision",
    "KnownLimits",
    "LaneController",
    "LaneSettings",
    "LimitOrigin",
    "Refuse",
    "RemainingWork",
    "Send",
    "Settings",
    "State",
    "Usage",
    "Waiting",
    "export",
    "restore",
]
