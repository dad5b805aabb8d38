"""Decode AWS's binary event stream, in which Bedrock wraps its answers.

Laws: (1) how the bytes were cut into chunks changes nothing; (2) a frame is given only when both of
its checksums are right; (3) nothing fed here raises: the first damage ends it, and nothing follows;
(4) what is kept is bounded.
Not here: what the frames mean (bedrock_stream.py).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

HeaderValue: TypeAlias = bool | int | bytes | str

_PRELUDE = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_SMALLEST = _PRELUDE.size + _CHECKSUM.size
_LARGEST = 24 * 1024 * 1024
_LARGEST_HEADERS = 128 * 1024
_NUMBERS: Mapping[int, struct.Struct] = {
    2: struct.Struct(">b"),
    3: struct.Struct(">h"),
    4: struct.Struct(">i"),
    5: struct.Struct(">q"),
    8: struct.Struct(">q"),  # milliseconds since 1970
}
_LENGTH = struct.Struct(">H")
_BYTES, _TEXT, _UUID = 6, 7, 9


class _DamageError(ValueError):
    """The bytes are no event stream, or were changed on their way."""


class Frame(NamedTuple):
    """One message of the stream."""

    headers: Mapping[str, HeaderValue]
    payload: bytes


class EventStreamDecoder:
    """Takes bytes as they come and gives whole frames back."""

    __slots__ = ("_kept", "is_damaged")

    def __init__(self) -> None:
        self._kept = bytearray()
        self.is_damaged = False

    @property
    def has_rest(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._kept)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole now, up to the first damage."""
        frames: list[Frame] = []
        if self.is_damaged:
            return frames
        self._kept += data
        try:
            while (frame := self._next()) is not None:
                frames.append(frame)
        except _DamageError:
            self.is_damaged = True
            self._kept.clear()
        return frames

    def _next(self) -> Frame | None:
        kept = self._kept
        if len(kept) < _PRELUDE.size:
            return None
        total, headers_length, checksum = _PRELUDE.unpack_from(kept)
        if zlib.crc32(kept[:8]) != checksum:
            raise _DamageError("the checksum of a prelude is wrong")
        if headers_length > _LARGEST_HEADERS or not (
            _SMALLEST + headers_length <= total <= _LARGEST
        ):
            raise _DamageError("a frame has lengths that cannot be")
        if len(kept) < total:
            return None
        frame = bytes(kept[:total])
        del kept[:total]
        body_end = total - _CHECKSUM.size
        if zlib.crc32(frame[:body_end]) != _CHECKSUM.unpack_from(frame, body_end)[0]:
            raise _DamageError("the checksum of a frame is wrong")
        headers_end = _PRELUDE.size + headers_length
        headers = _headers(frame[_PRELUDE.size : headers_end])
        return Frame(headers, frame[headers_end:body_end])


def _headers(data: bytes) -> dict[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name = _taken(data, at + 1, name_end).decode()
            value, at = _value(data, name_end + 1, data[name_end])
            if name in headers:
                raise _DamageError("a header comes twice")
            headers[name] = value
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _DamageError("the headers of a frame cannot be read") from error
    return headers


def _value(data: bytes, at: int, kind: int) -> tuple[HeaderValue, int]:
    if kind in (0, 1):
        return kind == 0, at
    if kind in _NUMBERS:
        number: int = _NUMBERS[kind].unpack_from(data, at)[0]
        return number, at + _NUMBERS[kind].size
    if kind == _UUID:
        return _taken(data, at, at + 16), at + 16
    if kind in (_BYTES, _TEXT):
        start = at + _LENGTH.size
        end = start + _LENGTH.unpack_from(data, at)[0]
        value = _taken(data, start, end)
        return (value.decode() if kind == _TEXT else value), end
    raise _DamageError("a header is of no known type")


def _taken(data: bytes, start: int, end: int) -> bytes:
    if end > len(data):
        raise IndexError(end)
    return data[start:end]
