"""What a program prints is cut into the same lines, however it comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.agents.process.program import LineCutter

BYTES = st.binary(max_size=200).map(lambda data: data.replace(b"x", b"\n"))


def cut(data: bytes, places: list[int], longest: int = 1 << 20) -> list[bytes]:
    cutter = LineCutter(longest)
    ends = [*sorted(min(place, len(data)) for place in places), len(data)]
    starts = [0, *ends[:-1]]
    pieces = [data[start:end] for start, end in zip(starts, ends, strict=True)]
    return [line for piece in pieces for line in cutter.feed(piece)]


@given(BYTES, st.lists(st.integers(0, 200), max_size=8))
def test_lines_do_not_depend_on_where_the_bytes_were_cut(data: bytes, places: list[int]) -> None:
    whole = data.rpartition(b"\n")[0].split(b"\n")
    assert cut(data, places) == [line for line in whole if line]


@given(BYTES, st.lists(st.integers(0, 200), max_size=8))
def test_a_line_over_the_limit_is_passed_over_and_no_other(data: bytes, places: list[int]) -> None:
    whole = data.rpartition(b"\n")[0].split(b"\n")
    assert cut(data, places, 5) == [line for line in whole if 0 < len(line) <= 5]
