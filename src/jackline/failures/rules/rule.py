"""Define, as data, which evidence leads to which verdict.

Rules: (1) a rule applies when all of its conditions are true; (2) the first rule of the table that
applies decides; (3) patterns match folded lower-case text and have bounded repeats, so matching is
linear; (4) every rule has at least one example in the tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from jackline.failures.evidence import FailureSignals
from jackline.failures.failure import Kind, Scope
from jackline.failures.observation import Where
from jackline.failures.wording import compiled, redact

# The defaults of a kind: scope, retry_same, failover_helps.
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
    codes: frozenset[str]
    text: str
    status: frozenset[int]
    where: frozenset[Where]
    provider: frozenset[str]
    unless: str

    def evidence(self, signals: FailureSignals) -> str | None:
        """What in `signals` makes the rule apply, or None when it does not."""
        if self.status and signals.status not in self.status:
            return None
        if self.where and signals.where not in self.where:
            return None
        if self.provider and signals.provider not in self.provider:
            return None
        hits = self.codes & signals.codes
        if self.codes and not hits:
            return None
        match = compiled(self.text).search(signals.text) if self.text else None
        if self.text and match is None:
            return None
        if self.unless and compiled(self.unless).search(signals.text):
            return None
        if match is not None:
            return f'text "{redact(match[0], 120).strip()}"'
        return f"code {min(hits)}" if hits else f"status {signals.status}"


Phrases: TypeAlias = str | tuple[str, ...]


def when(
    *,
    codes: str = "",
    text: Phrases = (),
    unless: Phrases = (),
    status: Iterable[int] = (),
    where: Iterable[Where] = (),
    provider: str = "",
    then: Verdict,
) -> FailureRule:
    """A rule from its conditions.

    `codes` and `provider` are lists separated by blanks, of which one has to be there; `text` and
    `unless` are patterns of the text, of which one has to match, or none may.
    """
    return FailureRule(
        verdict=then,
        codes=frozenset(codes.split()),
        text=_any_of(text),
        unless=_any_of(unless),
        status=frozenset(status),
        where=frozenset(where),
        provider=frozenset(provider.split()),
    )


def _any_of(phrases: Phrases) -> str:
    return phrases if isinstance(phrases, str) else "|".join(phrases)
