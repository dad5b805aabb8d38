"""Play a model endpoint from a script, so that real clients can be run on loopback.

A script is a list of `Rule`s. The first rule that fits a request gives its reply:
words and tool calls (`Say`), an HTTP error (`Fail`), a dropped connection (`Hangup`)
or the end of the server (`Vanish`). Every request is recorded with its reply.

    with ScriptedServer([Rule(Say("four"), prompt="2+2")]) as server:
        run_claude(ANTHROPIC_BASE_URL=server.url)
    assert server.requests[-1].reply == Say("four")

Laws: (1) a reply depends on the request and the script alone, never on the clock;
(2) a request that no rule fits is answered with `fallback`, never left hanging.
Not here: the bytes of a reply (`scripted_dialects.py`), starting the clients.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from tests.real_clients.scripted_dialects import Fail, Message, Say, dialect_of, prompt_of, turns_of

__all__ = ["Fail", "Hangup", "Reply", "Request", "Rule", "Say", "ScriptedServer", "Vanish"]

BODY_LIMIT = 64 * 1024 * 1024


@dataclass(frozen=True)
class Hangup:
    """Drop this connection without a byte (the client sees a reset)."""


@dataclass(frozen=True)
class Vanish:
    """Drop all connections and stop listening: what follows is refused."""


Reply = Say | Fail | Hangup | Vanish
UNDERSTOOD = Say("Understood.")


@dataclass(frozen=True)
class Request:
    """One request as it came in, and where it stands in its conversation."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    size: int
    prompt: str = ""
    """The text of the first thing the user asked (system reminders left out)."""
    turn: int = 0
    """How often the model has spoken in this conversation; a retry keeps its turn."""
    call: int = 0
    """How many requests this speaker made before; a retry counts."""
    reply: Reply | None = None

    @property
    def agent_id(self) -> str | None:
        """The sub-agent that asks, or None for the main thread."""
        return self.headers.get("x-claude-code-agent-id")

    @property
    def speaker(self) -> tuple[str, str]:
        """The session and the agent that ask."""
        session = self.headers.get("x-claude-code-session-id") or self.headers.get("session-id")
        return session or "", self.agent_id or ""


@dataclass(frozen=True)
class Rule:
    """A reply, and the requests it is for; a condition left out always holds."""

    reply: Reply | Callable[[Request], Reply]
    prompt: str = ""
    sub_agent: bool | None = None
    turn: int | None = None
    call: int | None = None

    def fits(self, request: Request) -> bool:
        """Whether this rule answers the request."""
        return (
            self.prompt in request.prompt
            and self.sub_agent in (None, request.agent_id is not None)
            and self.turn in (None, request.turn)
            and self.call in (None, request.call)
        )

    def answer(self, request: Request) -> Reply:
        """The reply, worked out from the request if the script says so."""
        return self.reply(request) if callable(self.reply) else self.reply


class ScriptedServer:
    """An HTTP/1.1 server on a free loopback port; `with` runs it in a thread of its own,
    `async with` in the running loop."""

    def __init__(self, rules: Sequence[Rule], fallback: Reply = UNDERSTOOD) -> None:
        self.rules = list(rules)
        self.fallback = fallback
        self.requests: list[Request] = []
        self.port = 0
        self._calls: Counter[tuple[str, str]] = Counter()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        """The base URL to give to a client."""
        return f"http://127.0.0.1:{self.port}"

    def vanish(self) -> None:
        """Stop listening and drop every connection (call it from the server's loop)."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    # --- running it -----------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve_connection, "127.0.0.1", 0, limit=BODY_LIMIT
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.vanish()

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run_loop(self, ready: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self.__aenter__())
            ready.set()
            self._loop.run_forever()
            self.vanish()

    # --- one connection -------------------------------------------------------------

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._writers.add(writer)
        try:
            while (request := await _read_request(reader)) is not None:
                if not await self._answer(request, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the server is being stopped: nobody to tell
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Reply to one request; False when the connection is gone."""
        if request.method != "POST":
            writer.write(_response(404, {}, b"" if request.method == "HEAD" else b"{}"))
            return True
        known = self._record(request)
        reply = known.reply
        if isinstance(reply, Hangup):
            writer.transport.abort()
            return False
        if isinstance(reply, Vanish) or reply is None:
            self.vanish()
            return False
        if isinstance(reply, Say) and reply.delay:
            await asyncio.sleep(reply.delay)
        writer.write(_encode(known, reply, len(self.requests)))
        await writer.drain()
        return True

    def _record(self, request: Request) -> Request:
        """Place the request in its conversation, choose its reply, keep both."""
        placed = replace(
            request,
            prompt=prompt_of(request.body),
            turn=turns_of(request.body),
            call=self._calls[request.speaker],
        )
        self._calls[request.speaker] += 1
        rule = next((rule for rule in self.rules if rule.fits(placed)), None)
        reply = rule.answer(placed) if rule else self.fallback
        known = replace(placed, reply=reply)
        self.requests.append(known)
        return known


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request on a connection, or None when the client has closed it."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = head[0].split(" ", 2)
    fields = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    body = json.loads(raw) if raw else {}
    return Request(method, path.partition("?")[0], headers, body, len(raw))


def _encode(request: Request, reply: Say | Fail, serial: int) -> bytes:
    """The bytes of a reply in the dialect of the path that was asked."""
    headers = {"request-id": f"req_lab{serial:05d}", "x-request-id": f"req_lab{serial:05d}"}
    if isinstance(reply, Fail):
        payload = json.dumps(reply.json_body(headers["request-id"])).encode()
        return _response(reply.status, {**headers, **reply.headers}, payload)
    message = Message(serial, str(request.body.get("model", "")), request.size, request.turn, reply)
    kind, payload = dialect_of(request.path)(message, bool(request.body.get("stream")))
    return _response(200, {**headers, "content-type": kind}, payload)


def _response(status: int, headers: Mapping[str, str], payload: bytes) -> bytes:
    """One whole HTTP/1.1 response; its length is known, so the connection stays open."""
    fields = {"content-type": "application/json", **headers, "content-length": str(len(payload))}
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + payload
