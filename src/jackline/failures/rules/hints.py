"""Guess from single words when nothing more specific was found.

Rules: (1) checked last, so that a guess never overrules a sign; (2) a guess errs towards not
retrying.
"""

from __future__ import annotations

from jackline.failures.failure import Kind
from jackline.failures.rules.rule import Verdict, when

LAST_RESORT = (
    when(
        text=(r"rate[-_ ]?limit", r"too many requests", r"throttl"),
        then=Verdict(Kind.SERVER_THROTTLE),
    ),
    when(text=(r"quota", r"usage limit"), then=Verdict(Kind.ACCOUNT_QUOTA, "unknown_window")),
    when(
        text=(r"have permission", r"not authori[sz]ed", r"access denied", r"permission_denied"),
        then=Verdict(Kind.AUTH, "forbidden"),
    ),
    when(text=r"server error", then=Verdict(Kind.UPSTREAM_5XX)),
)
