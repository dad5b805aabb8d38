"""Send a rendered request over a real loopback connection, and record what its handler gets."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from jackline.lane_id import LaneId
from jackline.providers.provider import Provider
from jackline.upstream import UpstreamRequest
from jackline.upstream.bounded_answers import AnswerLimits, BoundedAnswer, DecompressionTurns
from tests.upstream.loopback import Asking, Recorder, Server, Wire

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLIENT = (
    (b"Content-Type", b"application/json"),
    (b"x-api-key", b"sk-ant-of-the-client"),
    (b"Authorization", b"Bearer of-the-client"),
    (b"Cookie", b"of=the-client"),
    (b"anthropic-dangerous-direct-browser-access", b"true"),
    (b"anthropic-version", b"2023-06-01"),
    (b"anthropic-beta", b"oauth-2025-04-20,interleaved-thinking-2025-05-14"),
)
BODY_OF_CLIENT = (
    b'{"model":"claude-opus-4-8","max_tokens":64,'
    b'"messages":[{"role":"user","content":"Say hello."}]}'
)
STREAMED = BODY_OF_CLIENT[:-1] + b',"stream":true}'


def call(
    body: bytes = BODY_OF_CLIENT, target: bytes = b"/v1/messages?beta=true"
) -> UpstreamRequest:
    """A client's request."""
    return UpstreamRequest(b"POST", target, CLIENT, body)


def names(message: UpstreamRequest) -> dict[str, str]:
    """The headers by lower-case name; a header that comes twice fails the test."""
    found: dict[str, str] = {}
    for name, value in message.headers:
        plain = name.decode().lower()
        assert plain not in found
        found[plain] = value.decode()
    return found


def decoded(body: bytes | bytearray) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(body)
    return found


def answer(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A whole HTTP answer."""
    lines = [b"HTTP/1.1 " + status, *headers, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(*pieces: bytes) -> bytes:
    """Pieces in chunked coding, without the end."""
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"


class Exchanged:
    """One exchange: what the server got, and what the handler got."""

    def __init__(self, request: bytes, handler: Recorder) -> None:
        self.request = request
        self.handler = handler

    @property
    def request_line(self) -> bytes:
        return self.request.partition(b"\r\n")[0]

    @property
    def request_body(self) -> bytes:
        return self.request.partition(b"\r\n\r\n")[2]

    @property
    def headers(self) -> dict[str, str]:
        return {n.decode().lower(): v.decode() for n, v in self.handler.headers}


async def exchange(
    provider: Provider, message: UpstreamRequest, model: str, got: list[bytes]
) -> Exchanged:
    """Render, send, listen, as the gateway does."""
    if not provider.is_ready:
        await provider.prepare()
    handler = Recorder()
    async with Asking(provider.origin) as upstream:
        rendered = provider.render(message, model)
        listening = provider.wrap_handler(handler, message, model)
        bounded = BoundedAnswer(listening, AnswerLimits(1 << 26, 3600.0), DecompressionTurns())
        bounded.attempt = upstream.start(rendered, LaneId("a", "model"), bounded)
        await handler.last_word()
    return Exchanged(got[-1], handler)


def replying(*pieces: bytes, got: list[bytes], cut: bool = False) -> Server:
    """A server that writes down each request and says these pieces."""

    async def handler(wire: Wire) -> None:
        while request := await wire.request():
            got.append(request)
            await wire.say(*pieces)
            if cut:
                wire.close()
                return

    return Server(handler)
