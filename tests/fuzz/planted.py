"""A reader with a fault that no seed shows: the fuzzer must find it, byte by byte."""

from __future__ import annotations

from collections.abc import Iterable

WORDS = (b"no", b"help")


def seeds() -> Iterable[bytes]:
    """Nothing that leads there."""
    yield b"seed"


def check(data: bytes) -> None:
    """Fail for one beginning only."""
    if data[:1] == b"!" and data[1:2] == b"?" and data[2:3] == b"+":
        raise AssertionError("it has read the planted word")
