"""Limits are shown with the origin of their numbers, in the same text everywhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jackline.control.text import limit_text

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
READ = datetime(2026, 11, 16, 10, 2, 30, tzinfo=UTC).timestamp()


def limit(per_minute: float, origin: str, read_at: float | None = None) -> dict[str, Any]:
    return {"per_minute": per_minute, "origin": origin, "read_at": read_at}


def test_each_origin_is_reported_once() -> None:
    known = {
        "requests": limit(50, "vendor", READ),
        "input": limit(30_000, "vendor", READ),
        "output": limit(8000.5, "headers"),
    }
    assert limit_text({"known_limits": known}, NOW) == (
        "50 requests, 30,000 input tokens a minute (from the vendor's rate-limits API, read 10:02);"
        " 8,000.5 output tokens a minute (learned from headers)"
    )


def test_what_the_user_wrote_is_reported_as_that() -> None:
    known = {"requests": limit(3, "written")}
    assert limit_text({"known_limits": known}, NOW) == "3 requests a minute (written by you)"


def test_a_reading_of_another_day_is_reported_with_its_date() -> None:
    known = {"requests": limit(3, "vendor", READ - 86_400)}
    assert limit_text({"known_limits": known}, NOW).endswith("read 10:02 on 15 November)")


def test_nothing_is_reported_where_nothing_is_known() -> None:
    assert limit_text({"known_limits": {}}, NOW) == ""
    assert limit_text({}, NOW) == ""  # an older gateway
