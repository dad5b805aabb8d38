"""Load the labelled failures that the tests are measured against.

Rules: (1) rows are data with their sources, never edited to please the classifier.
Not here: what counts as good enough (test_corpus.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from jackline.failures import Failure, Observation, Where, classify

DATA = Path(__file__).parent.parent / "data" / "failures"
NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Example:
    """One real failure and what a person judged it to be."""

    id: str
    observation: Observation
    kind: str
    retry_same: bool
    retry_after_s: float | None
    resets_at_hint: str | None

    def classified(self, days_later: int = 0) -> Failure:
        return classify(self.observation, now=NOW + timedelta(days=days_later))


def load(name: str) -> list[Example]:
    rows = [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]
    return [
        Example(
            id=row["id"],
            observation=Observation(
                Where(row["where"]),
                row["provider"],
                row["status"],
                row["headers"],
                row["body"],
                row["text"],
            ),
            kind=row["expected"]["kind"],
            retry_same=row["expected"]["retry_same"],
            retry_after_s=row["expected"]["retry_after_s"],
            resets_at_hint=row["expected"]["resets_at_hint"],
        )
        for row in rows
    ]
