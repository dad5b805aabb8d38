"""Durations and sizes are read as people write them, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.config.field_types import (
    LONGEST,
    duration_text,
    read_duration,
    read_size,
    size_text,
)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("15m", 900.0),
        ("90s", 90.0),
        ("6h", 21600.0),
        ("2h30m", 9000.0),
        ("2h 30m", 9000.0),
        ("30d", 2_592_000.0),
        ("250ms", 0.25),
        ("1m500ms", 60.5),
        ("1.5h", 5400.0),
        ("90", 90.0),
        (90, 90.0),
        (0.5, 0.5),
        (0, 0.0),
    ],
)
def test_a_duration_is_read(written: object, seconds: float) -> None:
    assert read_duration(written) == seconds


@pytest.mark.parametrize(
    ("written", "size"),
    [("64MB", 64 * 1024**2), ("512 KiB", 512 * 1024), ("1.5gb", 3 * 2**29), ("7", 7), (7, 7)],
)
def test_a_size_is_read(written: object, size: int) -> None:
    assert read_size(written) == size


@pytest.mark.parametrize(
    "written", ["", " ", "m", "15 parsecs", "30m2h", "-5s", "1h-2m", True, None, -1, [], "1e3s"]
)
def test_what_is_no_duration_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"duration|below zero"):
        read_duration(written)


@pytest.mark.parametrize("written", ["", "MB", "64 elephants", "i", "5bb", "-1MB", False, None, -1])
def test_what_is_no_size_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"size|below zero"):
        read_size(written)


@pytest.mark.parametrize(
    "written",
    [float("inf"), 1e300, 10**400, "999999999999d"],
    ids=["infinite", "float", "whole", "days"],
)
def test_what_no_sleep_can_take_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="ten years"):
        read_duration(written)


def test_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="no number"):
        read_duration(float("nan"))


def test_a_long_text_is_not_quoted_because_it_may_be_a_secret() -> None:
    with pytest.raises(ValueError, match="duration") as caught:
        read_duration("sk-ant-planted-secret")
    assert "planted" not in str(caught.value)


@given(st.integers(0, int(LONGEST) * 1000))
def test_a_duration_that_was_written_reads_back(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert read_duration(duration_text(seconds)) == pytest.approx(seconds, abs=1e-6)


@given(st.floats(1e-6, 1e-3, exclude_max=True))
def test_a_fraction_of_a_millisecond_survives(seconds: float) -> None:
    assert read_duration(duration_text(seconds)) == seconds


@given(st.integers(0, 2**52))
def test_a_size_that_was_written_reads_back(size: int) -> None:
    assert read_size(size_text(size)) == size


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    for read in (read_duration, read_size):
        try:
            assert read(text) >= 0
        except ValueError as refusal:
            assert str(refusal)  # noqa: PT017 -- both ends are right; a crash is not
