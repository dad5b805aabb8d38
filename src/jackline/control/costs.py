"""Who costs most: what agents, sessions, models, runs and days have used, from the journal.

Rules: (1) pure: rows of the journal come in, plain JSON data comes out; (2) each list has its
dearest entries, and the sums of the rest; the total is that of all; (3) a model whose price is not
known costs "unknown", never nothing; (4) no prompt, answer, key or token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from jackline.control.spending import Sums
from jackline.dialects import TokenUsage
from jackline.journal.store import Used

PERIODS = (1, 7, 30)
"""How many days may be summed up."""
MOST_ROWS = 200
_VIEWS = ("agent", "session", "model", "run", "day")


def day_bounds(now: datetime, days: int) -> list[tuple[datetime, datetime]]:
    """The beginning and the end of so many days, today last; by the calendar of `now`'s zone."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    begins = [_midnight(today, back) for back in range(days - 1, -1, -1)]
    return list(zip(begins, [*begins[1:], now + timedelta(days=1)], strict=True))


def _midnight(today: datetime, days_ago: int) -> datetime:
    # Wall-clock arithmetic: on the day of a clock change a day has 23 or 25 hours.
    return today - timedelta(days=days_ago)


class Costs:
    """Sums of one period, by everything that can cost."""

    def __init__(self, price_of: Callable[[str, TokenUsage], float | None]) -> None:
        self._price_of = price_of
        self.total = Sums()
        self._found: dict[str, dict[tuple[str, ...], Sums]] = {view: {} for view in _VIEWS}

    def add(self, day: str, rows: Iterable[Used]) -> None:
        """Count what was used on one day."""
        for row in rows:
            usage = row.usage
            dollars = self._price_of(row.model, usage)
            unpriced = usage.total if dollars is None else 0
            sums = Sums(row.calls, usage.total, dollars or 0.0, unpriced)
            self.total.join(sums)
            keys: dict[str, tuple[str, ...]] = {
                "agent": (row.session, row.agent),
                "session": (row.session,),
                "model": (row.model,),
                "run": (row.tag,),
                "day": (day,),
            }
            for view, key in keys.items():
                self._found[view].setdefault(key, Sums()).join(sums)

    def to_json(self) -> Mapping[str, Any]:
        """The lists, the dearest first."""
        return {
            "total": self.total.to_json(),
            "by": {view: _dearest(found) for view, found in self._found.items()},
        }


def _dearest(found: Mapping[tuple[str, ...], Sums]) -> dict[str, object]:
    ranked = sorted(found.items(), key=lambda each: (-each[1].dollars, -each[1].tokens))
    rest = Sums()
    for _, sums in ranked[MOST_ROWS:]:
        rest.join(sums)
    return {
        "rows": [{"key": key, **sums.to_json()} for key, sums in ranked[:MOST_ROWS]],
        "more": max(0, len(ranked) - MOST_ROWS),
        "rest": rest.to_json(),
    }
