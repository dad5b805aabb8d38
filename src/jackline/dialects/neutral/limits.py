"""Write the numbers that bound and colour an answer.

Laws: (1) a bound that the target cannot grant is lowered with a note; (2) numbers stay as written.
Not here: effort (effort.py), stop sequences (each dialect).
"""

from __future__ import annotations

from jackline.dialects.neutral.account import Notes
from jackline.dialects.neutral.conversation import Asked
from jackline.dialects.neutral.options import Target

_NO_SAMPLING = "this model takes no sampling settings"


def longest_answer(asked: Asked, target: Target, notes: Notes) -> int | None:
    """How many tokens the answer may have."""
    if asked.max_tokens is None or target.longest_answer is None:
        return asked.max_tokens
    if asked.max_tokens > target.longest_answer:
        notes.add("max_tokens", f"lowered to the {target.longest_answer} that are allowed there")
    return min(asked.max_tokens, target.longest_answer)


def sampling(asked: Asked, target: Target, notes: Notes) -> dict[str, object]:
    """Temperature and top_p, where the model takes them."""
    told: dict[str, object] = {}
    for name, value in (("temperature", asked.temperature), ("top_p", asked.top_p)):
        if value is None:
            continue
        if target.sampling:
            told[name] = value
        else:
            notes.add(name, _NO_SAMPLING)
    return told
