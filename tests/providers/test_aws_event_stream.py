"""AWS's binary framing: any cut, any damage, and botocore's own reading of the same bytes."""

from __future__ import annotations

import struct
import zlib
from importlib import import_module
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jackline.providers.bedrock import EventStreamDecoder, Frame, HeaderValue
from tests.providers.frames import frame

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
    lambda name: len(name.encode()) < 256
)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.binary(max_size=30),
)
FRAMES = st.lists(
    st.builds(Frame, st.dictionaries(NAMES, VALUES, max_size=4), st.binary(max_size=60)),
    max_size=5,
)


def bytes_of(frames: list[Frame]) -> bytes:
    return b"".join(frame(dict(each.headers), each.payload) for each in frames)


def read(data: bytes, cuts: list[int]) -> tuple[list[Frame], EventStreamDecoder]:
    decoder = EventStreamDecoder()
    found: list[Frame] = []
    at = 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        found += decoder.feed(data[at:cut])
        at = cut
    return found, decoder


@given(frames=FRAMES, cuts=st.lists(st.integers(0, 10_000), max_size=12))
def test_however_the_bytes_are_cut_the_frames_are_the_same(
    frames: list[Frame], cuts: list[int]
) -> None:
    found, decoder = read(bytes_of(frames), cuts)
    assert found == frames
    assert not decoder.is_damaged
    assert not decoder._buffer


@given(frames=FRAMES)
def test_botocore_reads_the_same_frames(frames: list[Frame]) -> None:
    buffer: Any = import_module("botocore.eventstream").EventStreamBuffer()
    data = bytes_of(frames)
    buffer.add_data(data)
    theirs = [Frame(event.headers, event.payload) for event in buffer]
    assert theirs == read(data, [])[0]


@given(
    frames=FRAMES.filter(bool),
    place=st.integers(0, 100_000),
    flip=st.integers(1, 255),
    cuts=st.lists(st.integers(0, 10_000), max_size=4),
)
def test_of_damaged_bytes_only_the_frames_before_the_damage_are_returned(
    frames: list[Frame], place: int, flip: int, cuts: list[int]
) -> None:
    data = bytearray(bytes_of(frames))
    place %= len(data)
    data[place] ^= flip
    whole, end = 0, 0
    for each in frames:
        end += len(frame(dict(each.headers), each.payload))
        if end > place:
            break
        whole += 1
    found, decoder = read(bytes(data), cuts)
    assert found == frames[:whole]
    assert decoder.is_damaged
    assert decoder.feed(bytes_of(frames)) == [], "nothing follows a damage"


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_bytes_that_are_no_stream_raise_nothing(pieces: list[bytes]) -> None:
    decoder = EventStreamDecoder()
    for piece in pieces:
        decoder.feed(piece)


@given(st.binary(max_size=80))
def test_headers_that_cannot_be_read_are_damage(written: bytes) -> None:
    """The checksums are right, so that nothing but the headers themselves can be wrong."""
    prelude = struct.pack(">II", 16 + len(written), len(written))
    before = prelude + struct.pack(">I", zlib.crc32(prelude)) + written
    decoder = EventStreamDecoder()
    found = decoder.feed(before + struct.pack(">I", zlib.crc32(before)))
    assert decoder.is_damaged != bool(found)


def test_every_type_of_header_is_known() -> None:
    written = (
        b"\1a\0\1b\1\1c\2\xff\1d\3\xff\xfe\1e\4\xff\xff\xff\xfd\1f\5"
        + b"\xff" * 8
        + b"\1g\6\0\2hi\1h\7\0\2hi\1i\x08"
        + bytes(7)
        + b"\5\1j\x09"
        + bytes(range(16))
    )
    prelude = struct.pack(">II", 16 + len(written), len(written))
    before = prelude + struct.pack(">I", zlib.crc32(prelude)) + written
    data = before + struct.pack(">I", zlib.crc32(before))
    expected: dict[str, HeaderValue] = {
        "a": True,
        "b": False,
        "c": -1,
        "d": -2,
        "e": -3,
        "f": -1,
        "g": b"hi",
        "h": "hi",
        "i": 5,
        "j": bytes(range(16)),
    }
    (ours,) = EventStreamDecoder().feed(data)
    assert ours.headers == expected
    buffer: Any = import_module("botocore.eventstream").EventStreamBuffer()
    buffer.add_data(data)
    (theirs,) = list(buffer)
    assert theirs.headers == expected


def test_a_frame_that_could_never_end_is_damage() -> None:
    prelude = struct.pack(">II", 1 << 30, 0)
    decoder = EventStreamDecoder()
    assert decoder.feed(prelude + struct.pack(">I", zlib.crc32(prelude))) == []
    assert decoder.is_damaged
