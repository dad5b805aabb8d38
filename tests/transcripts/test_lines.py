"""The rules of cutting files into lines."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.transcripts.records import LineReader

chunky_bytes = st.lists(
    st.one_of(st.binary(max_size=12), st.just(b"\n"), st.just(b"\r\n"), st.just(b"\0" * 9)),
    max_size=60,
).map(b"".join)


def lines_of(data: bytes, *, piece: int, longest: int = 1 << 20) -> list[bytes]:
    return [bytes(line) for line in LineReader(io.BytesIO(data), piece=piece, longest=longest)]


@given(data=chunky_bytes, piece=st.integers(1, 40))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: bytes, piece: int) -> None:
    assert lines_of(data, piece=piece) == [line for line in data.split(b"\n") if line]


@given(data=chunky_bytes, piece=st.integers(1, 40), longest=st.integers(1, 30))
def test_only_lines_over_the_limit_are_missing_and_each_is_counted(
    data: bytes, piece: int, longest: int
) -> None:
    reader = LineReader(io.BytesIO(data), piece=piece, longest=longest)
    kept = [bytes(line) for line in reader]
    whole = [line for line in data.split(b"\n") if line]
    assert kept == [line for line in whole if len(line) <= longest]
    assert reader.oversized == len(whole) - len(kept)
    assert reader.bytes_read == len(data)


@pytest.mark.parametrize(
    ("data", "unfinished"), [(b"a\nb", True), (b"a\nb\n", False), (b"", False)]
)
def test_a_last_line_without_its_end_is_handed_out_and_marked(
    data: bytes, unfinished: bool
) -> None:
    reader = LineReader(io.BytesIO(data))
    assert [bytes(line) for line in reader] == [line for line in data.split(b"\n") if line]
    assert reader.unfinished is unfinished


class Endless:
    """A line of 100 MB that is never in memory as a whole."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.largest_read = 0

    def read(self, size: int = -1, /) -> bytes:
        self.largest_read = max(self.largest_read, size)
        take = min(size, self.left)
        self.left -= take
        return b"x" * take or b""


def test_a_line_of_100_megabytes_is_never_held_as_a_whole() -> None:
    endless = Endless(100 << 20)
    reader = LineReader(endless)
    assert list(reader) == []
    assert reader.oversized == 1
    assert endless.largest_read <= 8 << 20
