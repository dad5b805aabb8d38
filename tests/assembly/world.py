"""A whole gateway on a loopback port, a provider whose every byte a test decides, raw clients.

Rules: (1) real sockets, real journal, real state folder; (2) credentials and texts of these tests
hold the planted words, so that what was written can be searched for them (tests/planted.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from jackline import event_loop
from jackline.assembly import Service
from jackline.config import Config
from jackline.events import CallEnded
from jackline.gateway.settings import (
    GatewaySettings,
    HoldSettings,
    LimitSettings,
    ListenSettings,
)
from jackline.journal import JournalReader
from jackline.journal.store import JournalSettings
from jackline.providers.settings import UpstreamSettings
from tests.planted import ANSWER, KEY, PROMPT
from tests.upstream.loopback import Server, Wire

T = TypeVar("T")
Pair = tuple[bytes, bytes]

PATIENCE = 90.0  # only a test that fails ever waits so long
MODEL = "claude-opus-4-8"


def run(main: Coroutine[object, object, T]) -> T:
    return event_loop.run(_within_patience(main))


async def _within_patience(main: Coroutine[object, object, T]) -> T:
    return await asyncio.wait_for(main, PATIENCE * 2)


# --- the gateway ------------------------------------------------------------------------------


def config_for(
    folder: Path,
    upstream: str,
    *,
    token: str | None = None,
    hold: HoldSettings | None = None,
    limits: LimitSettings | None = None,
) -> Config:
    settings = GatewaySettings(
        listen=ListenSettings(port=0, token=token),
        upstreams=(UpstreamSettings(url=upstream),),
        hold=hold or HoldSettings(),
        limits=limits or LimitSettings(drain=5.0),
    )
    return Config(settings, folder / "state", JournalSettings(), "info", {}, ())


@asynccontextmanager
async def gateway(
    folder: Path,
    upstream: str,
    *,
    token: str | None = None,
    hold: HoldSettings | None = None,
    limits: LimitSettings | None = None,
) -> AsyncIterator[Service]:
    config = config_for(folder, upstream, token=token, hold=hold, limits=limits)
    async with Service(config) as service:
        yield service


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def journalled(folder: Path) -> list[CallEnded]:
    """The calls in the journal, the earliest first."""
    with JournalReader(folder / "state" / "journal.db") as reader:
        return reader.calls(0.0, 1e12, 1000)[::-1]


# --- the provider -----------------------------------------------------------------------------


@dataclass(slots=True)
class Asked:
    """One request as it came in at the provider."""

    raw: bytes

    @property
    def line(self) -> bytes:
        return self.raw.partition(b"\r\n")[0]

    @property
    def headers(self) -> list[Pair]:
        return _pairs(self.raw.partition(b"\r\n\r\n")[0])

    @property
    def body(self) -> bytes:
        return self.raw.partition(b"\r\n\r\n")[2]

    def header(self, name: bytes) -> bytes | None:
        return next((value for n, value in self.headers if n.lower() == name), None)


@dataclass(slots=True)
class Provider:
    """Answers every request with the next of its answers; the last one stays."""

    answers: Sequence[bytes]
    asked: list[Asked] = field(default_factory=list)

    async def serve(self, wire: Wire) -> None:
        while raw := await wire.request():
            answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
            self.asked.append(Asked(raw))
            await wire.say(answer)


@asynccontextmanager
async def provider(*answers: bytes) -> AsyncIterator[tuple[Provider, str]]:
    """A provider with these answers, and its URL."""
    scripted = Provider(answers)
    async with Server(scripted.serve) as server:
        yield scripted, server.url


def http(
    status: int = 200,
    body: bytes = b"",
    *headers: Pair,
    reason: bytes = b"Whatever",
    length: bool = True,
) -> bytes:
    """An answer on the wire."""
    lines = [b"HTTP/1.1 %d %b" % (status, reason), *(b": ".join(pair) for pair in headers)]
    if length:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def whole(text: str = ANSWER, **more: Any) -> bytes:
    """A message of the vendor's, spelled with blanks and fields that nobody knows."""
    document = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 5},
        **more,
    }
    return json.dumps(document, indent=1).encode()


def answered(text: str = ANSWER) -> bytes:
    return http(
        200, whole(text), (b"Content-Type", b"application/json"), (b"request-id", b"req_vendor")
    )


# --- the client -------------------------------------------------------------------------------


@dataclass(slots=True)
class Got:
    """One answer as it came on the wire."""

    status: int
    headers: list[Pair]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        return next((value for n, value in self.headers if n.lower() == name), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(
    method: bytes = b"POST",
    target: bytes = b"/v1/messages",
    body: bytes = b"",
    *headers: Pair,
    host: bytes = b"127.0.0.1",
    key: bytes | None = KEY.encode(),
) -> bytes:
    """A request on the wire."""
    pairs = [(b"Host", host), *headers]
    if key is not None:
        pairs.append((b"x-api-key", key))
    if body or method == b"POST":
        pairs.append((b"Content-Length", b"%d" % len(body)))
    head = [b"%b %b HTTP/1.1" % (method, target), *(b": ".join(pair) for pair in pairs)]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def question(text: str = PROMPT, *, stream: bool = False, **more: Any) -> bytes:
    """The body of a model call."""
    messages = [{"role": "user", "content": text}]
    document = {"model": MODEL, "max_tokens": 100, "messages": messages, **more}
    return json.dumps({**document, "stream": True} if stream else document).encode()


async def ask(url: str, raw: bytes) -> Got:
    """Send these bytes on a connection of their own and read the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url), limit=1 << 26)
    try:
        writer.write(raw)
        await writer.drain()
        return await asyncio.wait_for(
            read_answer(reader, to_head=raw.startswith(b"HEAD ")), PATIENCE
        )
    finally:
        writer.close()
        await asyncio.wait({asyncio.ensure_future(writer.wait_closed())}, timeout=PATIENCE)


async def read_answer(reader: asyncio.StreamReader, *, to_head: bool = False) -> Got:
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    headers = _pairs(head[:-4])
    lowered = {name.lower(): value for name, value in headers}
    if to_head or status in (204, 304):
        body = b""
    elif b"content-length" in lowered:
        body = await reader.readexactly(int(lowered[b"content-length"]))
    elif lowered.get(b"transfer-encoding") == b"chunked":
        body = await _chunks(reader)
    else:
        body = await reader.read()
    return Got(status, headers, body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(pieces)


def _pairs(head: bytes) -> list[Pair]:
    lines = [line.partition(b": ") for line in head.split(b"\r\n")[1:]]
    return [(name, value) for name, _, value in lines]


async def until(condition: Callable[[], bool]) -> None:
    """Return as soon as the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 -- what is awaited is a state of the code under test
            await asyncio.sleep(0.005)
