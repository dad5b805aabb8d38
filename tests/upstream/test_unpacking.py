"""A compressed answer is unpacked as it comes; what is damaged is the upstream's broken answer."""

from __future__ import annotations

import gzip
import zlib
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.failures import Kind, Observation, classify
from jackline.http1.compression import (
    SLICE_BYTES,
    DecompressionError,
    Decompressor,
    decompressors_for,
)

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)

WORDS = b"What was packed. " * 50
PACKED = {"gzip": gzip.compress(WORDS), "x-gzip": gzip.compress(WORDS)}
PACKED |= {"deflate": zlib.compress(WORDS), "GZIP ": gzip.compress(WORDS)}


def fed(unpacking: Decompressor, data: bytes) -> bytes:
    """All that is unpacked after these bytes."""
    unpacking.feed(data)
    return b"".join(iter(unpacking.next_slice, b""))


@given(st.sampled_from(sorted(PACKED)), st.lists(st.integers(0, 400), max_size=8))
def test_how_the_bytes_are_cut_changes_nothing(coding: str, cuts: list[int]) -> None:
    packed = PACKED[coding]
    edges = [0, *sorted(cut % len(packed) for cut in cuts), len(packed)]
    unpacking = decompressors_for(coding)[0]
    plain = b"".join(fed(unpacking, packed[start:stop]) for start, stop in pairwise(edges))
    unpacking.end()
    assert plain == WORDS


def test_an_answer_of_several_members_is_unpacked_whole() -> None:
    (unpacking,) = decompressors_for("gzip")
    assert fed(unpacking, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"
    unpacking.end()


@pytest.mark.parametrize("coding", ["", "identity", "br"])
def test_what_is_not_packed_or_cannot_be_read_here_stays_as_it_is(coding: str) -> None:
    assert decompressors_for(coding) == []


@given(st.binary(min_size=1, max_size=60))
def test_damage_is_told_as_a_broken_answer_of_the_upstream(junk: bytes) -> None:
    (unpacking,) = decompressors_for("gzip")
    with pytest.raises(DecompressionError) as caught:
        fed(unpacking, b"\0" + junk)
    failure = classify(Observation.of_exception(caught.value), now=NOW)
    assert (failure.kind, failure.sub) == (Kind.TRUNCATED_STREAM, "decode")
    assert failure.retry_same


def test_one_that_ends_before_its_packing_does_is_broken() -> None:
    (unpacking,) = decompressors_for("gzip")
    fed(unpacking, PACKED["gzip"][:-1])
    with pytest.raises(DecompressionError):
        unpacking.end()


@given(st.integers(0, 5 * SLICE_BYTES), st.sampled_from([b"a", b"abc"]))
def test_no_slice_is_larger_than_a_slice_and_none_is_lost(size: int, pattern: bytes) -> None:
    plain = (pattern * size)[:size]
    (unpacking,) = decompressors_for("gzip")
    unpacking.feed(gzip.compress(plain, 1))
    slices = list(iter(unpacking.next_slice, b""))
    unpacking.end()
    assert b"".join(slices) == plain
    assert all(len(each) <= SLICE_BYTES for each in slices)


def test_thousands_of_empty_members_are_no_body() -> None:
    (unpacking,) = decompressors_for("gzip")
    with pytest.raises(DecompressionError):
        fed(unpacking, gzip.compress(b"") * 5000)
