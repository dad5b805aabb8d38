"""The gateway's reader of HTTP requests: any bytes on a connection, in any packets.

Rules: it reads requests or refuses, and nothing else; how the bytes were cut into packets changes
neither the requests nor whether they are refused; nothing is taken beyond the limits; a request
that was read and written again is read alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jackline.gateway.settings import LimitSettings
from jackline.http1.requests import RequestParser, RequestRefusal, RequestStage
from tests.fuzz.cutting import in_packets

LIMITS = LimitSettings(headers=2_000, body=3_000)
WORDS = (
    *(b"\r\n", b"\r\n\r\n", b"\n\n", b"\n", b"\r", b" ", b"\t", b"\0", b": ", b"?", b"#", b"%00"),
    *(b"GET ", b"POST ", b"OPTIONS ", b"CONNECT ", b"PRI * HTTP/2.0", b" HTTP/1.1", b" HTTP/1.0"),
    *(b"Host: x", b"Content-Length: ", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, "),
    *(b"Connection: close", b"Connection: upgrade", b"Upgrade: h2c", b"Expect: 100-continue"),
    *(
        b"0\r\n\r\n",
        b"5\r\nhello\r\n",
        b"FFFFFFFFFFFFFFF",
        b";ext=1",
        b"99999999999999999999",
        b"-1",
    ),
)
POST = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n"


class Read(NamedTuple):
    """What was read of a connection: whole requests, and whether it was refused then.

    Which of several faults of a head is told depends on the packets: some are seen before its end.
    """

    requests: list[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]]
    refused: bool


def seeds() -> Iterable[bytes]:
    """Requests as clients send them, and some that were attacks once."""
    counted = POST + b"Content-Length: 5\r\n\r\nhello"
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n"
    yield counted
    yield chunked
    yield counted + counted
    yield counted + chunked + b"GET /?a=b HTTP/1.0\r\n\r\n"
    yield b"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    yield POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"
    yield POST + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n"
    yield POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}"
    yield b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    yield b"GET http://other/ HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def check(data: bytes) -> None:
    """Read the bytes as one packet and as many."""
    whole, cut = read([data]), read(in_packets(data))
    assert whole == cut, "packets change what is read"
    for method, target, headers, body in whole.requests:
        assert len(body) <= LIMITS.body
        assert sum(len(name) + len(value) for name, value in headers) <= LIMITS.headers
        again = read([written(method, target, headers, body)])
        assert not again.refused
        assert [(one[0], one[1], one[3]) for one in again.requests] == [(method, target, body)]


def read(packets: Iterable[bytes]) -> Read:
    """What a connection's owner would be given."""
    reader = RequestParser(LIMITS.headers, LIMITS.body)
    requests: list[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]] = []
    for packet in packets:
        rest: bytes | memoryview = packet
        while rest:
            try:
                rest = reader.feed(rest)
            except RequestRefusal:
                return Read(requests, refused=True)
            if reader.stage is not RequestStage.COMPLETE:
                assert not rest, "bytes of an unfinished request are given back"
                break
            head, body = reader.take()
            requests.append((head.method, head.target, head.headers, bytes(body)))
    return Read(requests, refused=False)


def written(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    """The request as one would pass it on."""
    dropped = (b"content-length", b"transfer-encoding", b"connection", b"upgrade")
    kept = [(name, value) for name, value in headers if name.lower() not in dropped]
    if not any(name.lower() == b"host" for name, _ in kept):
        kept.append((b"Host", b"x"))
    lines = b"".join(b"%b: %b\r\n" % pair for pair in kept)
    head = b"%b %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (method, target, lines, len(body))
    return head + body
