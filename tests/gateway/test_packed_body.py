"""A compressed body is read whole, within its limits, or not at all."""

from __future__ import annotations

import asyncio
import gzip
import math
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from jackline.clock import VirtualClock
from jackline.gateway.compressed_body import CompressedBodies, is_compressed
from jackline.gateway.connection import Exchange
from jackline.http1.compression import MOST_RATIO, SLICE_BYTES
from jackline.http1.requests import parse_head
from tests.gateway.desk_world import ClientOnPaper

LARGEST = 64 * 1024 * 1024
Plain = bytearray | None


def no_room() -> None:
    raise AssertionError("there is room enough")


@dataclass
class Room:
    """Counts what is held; `most` is how much may be."""

    most: float = math.inf
    held: int = 0

    def take_room(self, size: int, _own: int) -> bool:
        if self.held + size > self.most:
            return False
        self.held += size
        return True

    def hold_more(self, size: int) -> None:
        self.held += size


def exchange_of(body: bytes | bytearray, coding: bytes) -> Exchange:
    head = parse_head(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: %b\r\n\r\n" % coding)
    client = ClientOnPaper(VirtualClock(datetime(2026, 3, 1, tzinfo=UTC)))
    return Exchange(client, head, body)


def plain_body(
    body: bytes | bytearray, coding: bytes, *, largest: int = LARGEST
) -> bytes | bytearray | None:
    """What is found in a body; all that was held meanwhile is given back."""
    room = Room()

    async def main() -> Plain:
        found: asyncio.Future[Plain] = asyncio.get_running_loop().create_future()
        bodies = CompressedBodies(room)
        bodies.decompress(exchange_of(body, coding), largest, found.set_result, no_room)
        return await found

    plain = asyncio.run(main())
    assert room.held == 0
    return plain


def test_only_what_says_so_is_packed() -> None:
    assert is_compressed(exchange_of(b"", b"gzip"))
    assert is_compressed(exchange_of(b"", b"br"))
    assert not is_compressed(exchange_of(b"", b" Identity "))
    assert not is_compressed(exchange_of(b"", b""))


@given(st.binary(max_size=200))
def test_compressed_bodies_are_read(plain: bytes) -> None:
    raw = zlib.compressobj(wbits=-15)
    assert plain_body(gzip.compress(plain), b"gzip") == plain
    assert plain_body(gzip.compress(plain) * 2, b" GZIP ") == plain * 2
    assert plain_body(bytearray(zlib.compress(plain)), b"deflate") == plain
    assert plain_body(raw.compress(plain) + raw.flush(), b"deflate") == plain


@given(st.binary(min_size=1, max_size=200), st.integers(1, 20))
def test_a_body_that_was_cut_is_not_taken_for_a_whole_one(plain: bytes, lost: int) -> None:
    assert plain_body(gzip.compress(plain)[:-lost], b"gzip") is None


def test_what_cannot_be_read_is_left_to_the_vendor() -> None:
    assert plain_body(b"anything", b"br") is None
    assert plain_body(b"anything", b"gzip") is None
    assert plain_body(b"anything", b"deflate") is None
    assert plain_body(b"anything", b"gzip, gzip") is None


def test_a_body_that_grows_without_end_is_refused() -> None:
    packed = zlib.compress(b" " * 5_000_000)
    assert len(packed) * MOST_RATIO < 5_000_000
    assert plain_body(packed, b"deflate") is None
    assert plain_body(gzip.compress(b"x" * 1000), b"gzip", largest=1000) == b"x" * 1000
    assert plain_body(gzip.compress(b"x" * 1001), b"gzip", largest=1000) is None
    assert plain_body(gzip.compress(b"x" * 600) * 2, b"gzip", largest=1000) is None


@settings(max_examples=20)
@given(st.integers(0, 3 * 1024 * 1024), st.sampled_from([0, 1, 6]))
def test_a_body_that_packs_well_is_unpacked_whole(size: int, level: int) -> None:
    plain = b"".join(b"%x," % number for number in range(size // 8))
    assert plain_body(gzip.compress(plain, level), b"gzip") == plain


def test_thousands_of_members_are_not_read() -> None:
    assert plain_body(gzip.compress(b"") * 10_000, b"gzip") is None


def test_a_turn_of_the_loop_unpacks_one_slice_of_all_bodies_together() -> None:
    plain = b"".join(b"%x," % number for number in range(200_000))
    packed = gzip.compress(plain)

    async def main() -> list[Plain]:
        room, found = Room(), list[Plain]()
        turns = CompressedBodies(room)
        for _ in range(5):
            turns.decompress(exchange_of(packed, b"gzip"), LARGEST, found.append, no_room)
        assert room.held == 5 * len(packed)
        while len(found) < 5:
            before = room.held
            await asyncio.sleep(0)
            assert room.held - before <= SLICE_BYTES
        assert room.held == 0
        return found

    assert asyncio.run(main()) == [bytearray(plain)] * 5


def test_a_small_body_does_not_wait_for_large_ones() -> None:
    large = gzip.compress(b"".join(b"%x," % number for number in range(400_000)))

    async def main() -> list[str]:
        turns, told, all_told = CompressedBodies(Room()), list[str](), asyncio.Event()

        def tell(name: str, _plain: Plain) -> None:
            told.append(name)
            if len(told) == 3:
                all_told.set()

        for name, body in (("large", large), ("larger", large * 2), ("small", gzip.compress(b"x"))):
            turns.decompress(exchange_of(body, b"gzip"), LARGEST, partial(tell, name), no_room)
        await all_told.wait()
        return told

    assert asyncio.run(main()) == ["small", "large", "larger"]


def test_a_body_that_finds_no_room_gives_back_what_it_held() -> None:
    packed = gzip.compress(b"".join(b"%x," % number for number in range(200_000)))

    def read(_plain: Plain) -> None:
        raise AssertionError("there is no room for it")

    async def main(room: Room) -> None:
        refused = asyncio.Event()
        CompressedBodies(room).decompress(exchange_of(packed, b"gzip"), LARGEST, read, refused.set)
        await refused.wait()

    for most in (len(packed) - 1, len(packed) + 2 * SLICE_BYTES):
        room = Room(most)
        asyncio.run(main(room))
        assert room.held == 0


def test_one_that_fails_when_it_is_told_does_not_stop_the_others() -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        turns = CompressedBodies(Room())
        found: asyncio.Future[Plain] = asyncio.get_running_loop().create_future()

        def fails(_plain: Plain) -> None:
            raise RuntimeError

        turns.decompress(exchange_of(gzip.compress(b"x"), b"gzip"), LARGEST, fails, no_room)
        body = exchange_of(gzip.compress(b"x"), b"gzip")
        turns.decompress(body, LARGEST, found.set_result, no_room)
        await found

    asyncio.run(main())
