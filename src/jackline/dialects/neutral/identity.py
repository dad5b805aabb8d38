"""Tell the other vendor who asks, as far as the settings want it told.

Laws: (1) by default nobody is told; (2) a long name is told as a digest, which stays the same.
Not here: who asks (gateway/identity.py).
"""

from __future__ import annotations

from jackline.dialects.neutral.account import Notes
from jackline.dialects.neutral.ids import digest
from jackline.dialects.neutral.options import Target

_LONGEST_USER = 64
_AT = "metadata.user_id"


def told_user(user: str | None, target: Target, notes: Notes) -> dict[str, object]:
    """The field that names the user, if it is to be told."""
    if not user:
        return {}
    if target.user_field is None:
        notes.add(_AT, "who asks is not told to another vendor")
        return {}
    if len(user) > _LONGEST_USER:
        notes.add(_AT, "told as a digest, because it is longer than the other side takes")
        user = digest(user)
    return {target.user_field: user}
