"""Write messages in the binary framing of Amazon's event streams.

Laws: (1) pure; (2) a frame is whole: lengths and both checksums are right, headers are strings.
Not here: which messages there are (clouds.py).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

CONTENT_TYPE = "application/vnd.amazon.eventstream"
_PRELUDE = 12
_CHECKSUM = 4
_STRING = 7


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message: prelude, its checksum, headers, payload, the checksum of all."""
    told = b"".join(_header(name, value) for name, value in headers.items())
    total = _PRELUDE + len(told) + len(payload) + _CHECKSUM
    prelude = struct.pack(">II", total, len(told))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + told + payload
    return body + struct.pack(">I", zlib.crc32(body))


def _header(name: str, value: str) -> bytes:
    text = value.encode()
    return (
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", _STRING, len(text)) + text
    )
