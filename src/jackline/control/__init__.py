"""What one may ask about a running gateway, in the same words on every face.

Laws: (1) plain values in, plain values and sentences out; (2) the same sentence in `status`, on the
dashboard and in notifications.
Not here: gathering the values (gateway/telling.py), showing them (cli/).
"""

from jackline.control.picture import CallShown, LaneShown, LimitShown, Picture, TurnShown
from jackline.control.verdict import verdict

__all__ = ["CallShown", "LaneShown", "LimitShown", "Picture", "TurnShown", "verdict"]
