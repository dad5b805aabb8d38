"""The status of a running gateway, with the same sentences in every interface.

Rules: (1) plain values in, plain values and sentences out; (2) the same sentence in `status`, on
the dashboard and in notifications.
Not here: gathering the values (gateway/status_picture.py), showing them (cli/).
"""

from jackline.control.status import (
    CallStatus,
    GatewayStatus,
    LaneStatus,
    LimitStatus,
    TurnStatus,
    verdict,
)

__all__ = ["CallStatus", "GatewayStatus", "LaneStatus", "LimitStatus", "TurnStatus", "verdict"]
