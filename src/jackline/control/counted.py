"""Say a number of things, in the plural that it takes.

Laws: (1) one is singular, everything else plural; thousands are told apart.
Not here: durations and moments (failures/sentences.py).
"""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """For example "1 call", "2,000 calls"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
