"""The status of a running gateway, with the same sentences in every interface.

Rules: (1) plain values in, plain values and sentences out; (2) the same sentence in `status`, on
the dashboard and in notifications.
"""

from jackline.control.lane_status import LaneStatus, LimitStatus
from jackline.control.status import CallStatus, GatewayStatus, TurnStatus

__all__ = ["CallStatus", "GatewayStatus", "LaneStatus", "LimitStatus", "TurnStatus"]
