"""The identity of a lane: which upstream, which model, which account.

Rules: (1) the only form in which a lane is named inside the program; no text of it is ever parsed;
(2) `label` is its only text for people, and it does not contain the account.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

# An upstream and an account of it.
Payer: TypeAlias = tuple[str, str]


class LaneId(NamedTuple):
    """One lane: calls to one model of one upstream that one account pays for."""

    upstream: str
    model: str = ""
    # A salted fingerprint, never the account's own name.
    account: str = ""

    @property
    def label(self) -> str:
        """The lane's name for people, which does not say who pays."""
        return f"{self.upstream}/{self.model}" if self.model else self.upstream

    @property
    def payer(self) -> Payer:
        """The upstream and the account: what lanes share that differ in their model only."""
        return self.upstream, self.account

    def __str__(self) -> str:
        return self.label
