"""A clock that was just set is not believed by whoever deletes what is old."""

from __future__ import annotations

from pathlib import Path

from jackline.journal import Journal
from tests.journal import made

DAY = 86_400.0


def test_the_journal_says_which_time_is_believed(tmp_path: Path) -> None:
    wall, elapsed = 1e9, 0.0
    journal = Journal(tmp_path / "journal.db", wall=lambda: wall, elapsed=lambda: elapsed)
    with journal:
        made.written(journal)
        wall, elapsed = wall + 40 * DAY + 60, 60.0
        assert journal.believed_at == 1e9 + 60
        wall, elapsed = wall + DAY, elapsed + DAY
        assert journal.believed_at == wall
        wall -= 40 * DAY
        assert journal.believed_at == wall, "a clock that was set back only keeps more"
