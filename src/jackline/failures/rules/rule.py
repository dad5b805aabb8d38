"""Define, as data, which evidence leads to which verdict.

Rules: (1) a rule holds when every condition of it holds; (2) the first rule of the table that
holds decides; (3) patterns see folded lower-case text and have bounded repeats, so matching stays
linear; (4) every rule has at least one example in the tests.
Not here: the tables (the other files of this folder), times (resets.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from jackline.failures.evidence import FailureSignals
from jackline.failures.failure import Kind, Scope
from jackline.failures.observation import Where
from jackline.failures.wording import compiled, redact

# What holds for a kind unless a rule says otherwise: scope, retry_same, failover_helps.
KIND_DEFAULTS: dict[Kind, tuple[Scope, bool, bool]] = {
    Kind.SERVER_THROTTLE: (Scope.UPSTREAM, True, True),
    Kind.RATE_LIMIT: (Scope.ACCOUNT, True, True),
    Kind.ACCOUNT_QUOTA: (Scope.ACCOUNT, False, True),
    Kind.BILLING: (Scope.ACCOUNT, False, True),
    Kind.OVERLOADED: (Scope.UPSTREAM, True, True),
    Kind.UPSTREAM_5XX: (Scope.UPSTREAM, True, True),
    Kind.NETWORK_EDGE: (Scope.UPSTREAM, True, True),
    Kind.TIMEOUT: (Scope.UPSTREAM, True, True),
    Kind.TRUNCATED_STREAM: (Scope.REQUEST, True, True),
    Kind.AUTH: (Scope.ACCOUNT, False, True),
    Kind.INVALID_REQUEST: (Scope.REQUEST, False, False),
    Kind.MODEL_NOT_FOUND: (Scope.MODEL, False, True),
    Kind.CONTENT_POLICY: (Scope.REQUEST, False, False),
    Kind.TOOL_ERROR: (Scope.REQUEST, False, False),
    Kind.MISSING_STRUCTURED_OUTPUT: (Scope.REQUEST, True, False),
    Kind.CLIENT_CANCEL: (Scope.REQUEST, False, False),
    Kind.NOT_A_FAILURE: (Scope.REQUEST, False, False),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule concludes; None means the kind's default."""

    kind: Kind
    sub: str | None = None
    scope: Scope | None = None
    retry_same: bool | None = None
    failover_helps: bool | None = None


@dataclass(frozen=True, slots=True)
class FailureRule:
    """One line of a table: conditions and the verdict they lead to."""

    verdict: Verdict
    words: frozenset[str]
    says: str
    status: frozenset[int]
    where: frozenset[Where]
    provider: frozenset[str]
    unless: str

    def evidence(self, reading: FailureSignals) -> str | None:
        """What in `reading` makes the rule hold, or None when it does not."""
        if self.status and reading.status not in self.status:
            return None
        if self.where and reading.where not in self.where:
            return None
        if self.provider and reading.provider not in self.provider:
            return None
        hits = self.words & reading.words
        if self.words and not hits:
            return None
        match = compiled(self.says).search(reading.text) if self.says else None
        if self.says and match is None:
            return None
        if self.unless and compiled(self.unless).search(reading.text):
            return None
        if match is not None:
            return f'text "{redact(match[0])[:120].strip()}"'
        return f"code {min(hits)}" if hits else f"status {reading.status}"


Phrases: TypeAlias = str | tuple[str, ...]


def when(
    *,
    words: str = "",
    says: Phrases = (),
    unless: Phrases = (),
    status: Iterable[int] = (),
    where: Iterable[Where] = (),
    provider: str = "",
    then: Verdict,
) -> FailureRule:
    """A rule from its conditions.

    `words` (codes) and `provider` are lists separated by blanks, of which one has to be there;
    `says` and `unless` are patterns, of which one has to match, or none may.
    """
    return FailureRule(
        verdict=then,
        words=frozenset(words.split()),
        says=_any_of(says),
        unless=_any_of(unless),
        status=frozenset(status),
        where=frozenset(where),
        provider=frozenset(provider.split()),
    )


def _any_of(phrases: Phrases) -> str:
    return phrases if isinstance(phrases, str) else "|".join(phrases)
