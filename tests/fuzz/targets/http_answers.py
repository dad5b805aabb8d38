"""The reader of upstreams' HTTP answers: any bytes that a vendor, or who claims to be one, sends.

Rules: it reads an answer or finds a fault, and nothing else; how the bytes were cut into packets
changes neither status, headers nor content of an answer that is complete; what is held is bounded
by what has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jackline.http1.responses import ResponseParser
from tests.fuzz.cutting import in_packets

OK = b"HTTP/1.1 200 OK\r\n"
WORDS = (
    *(b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\0", b": ", b"HTTP/1.1 ", b"HTTP/1.0 ", b"HTTP/2 "),
    *(b"100 Continue", b"101 Switching", b"204 No Content", b"304 ", b"429 ", b"529 ", b"099 "),
    *(
        b"Content-Length: ",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip",
        b"Trailer: X",
    ),
    *(b"Connection: close", b"Connection: upgrade", b"Upgrade: h2c", b"Content-Encoding: gzip"),
    *(b"0\r\n\r\n", b"3\r\nabc\r\n", b"FFFFFFFFFFFFFFFF", b"-1", b"18446744073709551617"),
)


class Read(NamedTuple):
    """What was read: a complete answer, or that there is none."""

    complete: bool
    status: int
    headers: list[tuple[bytes, bytes]]
    content: bytes
    faulty: bool


def seeds() -> Iterable[bytes]:
    """Answers of all framings."""
    yield OK + b"Content-Length: 3\r\n\r\nabc"
    yield (
        OK
        + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nX: y\r\n\r\n"
    )
    yield OK + b"Connection: close\r\n\r\nuntil the end"
    yield b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + seeds_429()
    yield b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n"
    yield b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n"
    yield b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc"
    yield b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    yield OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield OK + b"Content-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n\r\n"


def seeds_429() -> bytes:
    """A refusal as it comes from a vendor."""
    return b"HTTP/1.1 429 Too Many\r\nRetry-After: 3\r\nContent-Length: 2\r\n\r\n{}"


def check(data: bytes) -> None:
    """Read the bytes as one packet and as many, also as the answer to a HEAD request."""
    for has_no_body in (False, True):
        whole = read([data], has_no_body=has_no_body)
        cut = read(in_packets(data), has_no_body=has_no_body)
        assert len(whole.content) <= len(data)
        if whole.complete and cut.complete:
            assert whole[:4] == cut[:4], "packets change what is read"
        else:
            assert whole.complete == cut.complete, "packets change whether it is complete"


def read(packets: Iterable[bytes], *, has_no_body: bool) -> Read:
    """What a connection's owner would see until the answer is complete or faulty."""
    reader = ResponseParser()
    reader.expect(has_no_body=has_no_body)
    headers: list[tuple[bytes, bytes]] = []
    content = b""
    for packet in packets:
        reader.feed(packet)
        if reader.new_head is not None:
            headers, reader.new_head = list(reader.new_head), None
        content += reader.take_content()
        if reader.is_complete or reader.fault is not None:
            break
    return Read(reader.is_complete, reader.status, headers, content, reader.fault is not None)
