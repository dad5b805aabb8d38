"""Serve one client's connection: read each request, route it, and write its answer to the end.

Rules: (1) one request at a time; every one is answered, broken on purpose, or open until its client
leaves; (2) whatever cannot be parsed ends the connection, never the server; (3) a client that hangs
up is reported to the model at once; (4) only the model decides: this writes when and as much as its
events say; (5) a stream grows by whole events, unless it is cut at a byte.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jackline.http1.headers import LAST_CHUNK, chunk, response_head
from jackline.http1.requests import Packet, RequestParser, RequestRefusal, RequestStage
from jackline.simulator.anthropic_wire import JSON, Answer, Dialect, PendingReply, with_request_id
from jackline.simulator.client_request import ClientRequest
from jackline.simulator.endpoints import PREFIX, Route, answer_control, answer_rate_limits
from jackline.simulator.exchange import (
    NO_CREDENTIAL,
    NO_HEADERS,
    UNKNOWN_ENCRYPTED_CONTENT,
    Accepted,
    Bytes,
    ConnectionBroken,
    How,
    ProviderEvent,
    ProviderRefusal,
    Rejected,
    SimRequest,
    error_body,
)
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.live_provider import LiveProvider
from jackline.simulator.openai_wire import encrypted_reasoning_of
from jackline.simulator.prompt_cache import Hit
from jackline.simulator.reply_script import Fail, Say, Vanish, long_answer
from jackline.simulator.time_model import Calendar

HEAD_LIMIT = 256 * 1024
BODY_LIMIT = 64 * 1024 * 1024
_READ_AT_ONCE = 256 * 1024


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A method, a path, headers with lower-case names, and the body as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes


class ClientReader(asyncio.StreamReader):
    """Reads the requests of one client, and reports when it has closed or vanished."""

    def __init__(self) -> None:
        super().__init__(limit=_READ_AT_ONCE)
        self._parser = RequestParser(HEAD_LIMIT, BODY_LIMIT)
        # What came behind the last request.
        self._ahead: Packet = b""
        self.gone = False
        self.on_gone: Callable[[], None] | None = None

    def feed_eof(self) -> None:
        """The client has closed its side."""
        super().feed_eof()
        self._report_gone()

    def set_exception(self, exc: Exception) -> None:
        """The connection broke."""
        super().set_exception(exc)
        self._report_gone()

    def _report_gone(self) -> None:
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()

    async def next_request(self) -> HttpRequest | None:
        """The next request, or None when there is no more to read."""
        parser = self._parser
        try:
            while parser.stage is not RequestStage.COMPLETE:
                data = self._ahead or await self.read(_READ_AT_ONCE)
                if not data:
                    return None
                self._ahead = parser.feed(data)
        except (ConnectionError, RequestRefusal):
            return None
        head, body = parser.take()
        headers: dict[str, str] = {}
        for name, value in head.headers:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
            # Repeated headers have their values in one list.
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        return HttpRequest(head.method.decode(), head.path.decode(), headers, bytes(body))


def render_head(status: int, headers: Mapping[str, str], length: int | None) -> bytes:
    """The head of a response; without a length its body is chunked."""
    chunked = b"transfer-encoding: chunked\r\n"
    framing = chunked if length is None else b"content-length: %d\r\n" % length
    pairs = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers.items()]
    return response_head(status, pairs, framing)


def render_response(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    """One whole response; its length is known, so the connection stays open."""
    return render_head(status, {"content-type": "application/json", **headers}, len(body)) + body


def reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection so that the other side sees a reset, not an end."""
    connection = writer.get_extra_info("socket")
    if connection is not None and not writer.is_closing():
        linger = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


PING_AFTER = 5.0
"""Model seconds without a piece after which a stream sends a ping."""


@dataclass(slots=True)
class AnswerWriter:
    """Writes one answer; `play` is called with its events in order."""

    writer: asyncio.StreamWriter
    dialect: Dialect
    answer: Answer
    request: ClientRequest
    serial: int
    calendar: Calendar
    keeps_connection: bool = True
    _written: int = 0
    _last_piece_at: float = 0.0

    async def play(self, event: ProviderEvent) -> None:
        """Write what this event requires."""
        if isinstance(event, Accepted):
            announced = self.dialect.announced(event.headers, self.calendar.epoch_at(event.at))
            headers: dict[str, str] = {**self.dialect.identity(self.serial), **announced}
            headers["content-type"] = self.answer.content_type
            length = None if self.request.stream else sum(map(len, self.answer.pieces))
            self.writer.write(render_head(200, headers, length))
            self._last_piece_at = event.at
        elif isinstance(event, Bytes):
            before = self._written
            self._write_pieces(self._pieces_at(event.share))
            if self._written > before:
                self._last_piece_at = event.at
            elif event.at - self._last_piece_at >= PING_AFTER:
                self._last_piece_at = event.at
                self.writer.write(chunk(self.dialect.ping()))
        elif isinstance(event, Rejected):
            self._refuse(event)
        elif isinstance(event, ConnectionBroken):
            await self._break(event)
        else:
            self._write_pieces(len(self.answer.pieces))
            if self.request.stream:
                self.writer.write(LAST_CHUNK)
        if not self.writer.is_closing():
            await self.writer.drain()

    def _pieces_at(self, share: float) -> int:
        """How many pieces an unfinished answer has: at least one, never those that close it."""
        body = max(1, len(self.answer.pieces) - self.answer.closing)
        return max(1, min(body, int(body * share)))

    def _write_pieces(self, until: int) -> None:
        new = b"".join(self.answer.pieces[self._written : until])
        self._written = max(self._written, until)
        self.writer.write(chunk(new) if self.request.stream else new)

    def _refuse(self, event: Rejected) -> None:
        refusal = self.dialect.refused(event, self.request.model, self.calendar.epoch_at(event.at))
        body = with_request_id(refusal.body, self.serial)
        try:
            is_document = isinstance(json.loads(body), dict)
        except ValueError:
            is_document = False
        # An edge's own page has no request id: by that clients distinguish it from the API.
        identity = self.dialect.identity(self.serial) if is_document else {}
        headers: Mapping[str, str] = {**identity, **refusal.headers}
        self.writer.write(render_response(refusal.status, headers, body.encode()))

    async def _break(self, event: ConnectionBroken) -> None:
        self.keeps_connection = False
        if event.how in (How.REFUSED, How.RESET):
            reset(self.writer)
            return
        # The part of the answer that comes before the break.
        whole = b"".join(self.answer.pieces)
        if event.at_byte is not None:
            done = len(b"".join(self.answer.pieces[: self._written]))
            part = whole[done : max(done, event.at_byte)]
            self.writer.write(chunk(part) if self.request.stream else part)
        elif self.request.stream:
            self._write_pieces(self._pieces_at(event.share))
        else:
            self.writer.write(whole[: len(whole) // 2])
        await self.writer.drain()
        if event.how is How.CUT:
            reset(self.writer)
            return
        if event.how is How.ERROR_EVENT:
            self.writer.write(chunk(self.dialect.error_event(event.body, self._written)))
        if self.request.stream:
            self.writer.write(LAST_CHUNK)
        self.writer.close()


# The answer when a script demands a fault and no text.
_TEXT_TO_BREAK = long_answer(200)
_NOT_JSON = error_body("invalid_request_error", "The request body is not valid JSON")


@dataclass(slots=True)
class SimConnection:
    """One client's connection."""

    playing: LiveProvider
    reader: ClientReader
    writer: asyncio.StreamWriter

    async def serve(self) -> None:
        """Answer requests until the client or the script ends the connection."""
        try:
            while (request := await self.reader.next_request()) is not None:
                if not await self._answer(request):
                    break
        except ConnectionError:
            return  # the client left; the model knows it
        finally:
            self.writer.close()

    async def _answer(self, request: HttpRequest) -> bool:
        """Answer one request; False when the connection is over."""
        path = request.path
        if PREFIX in path:
            status, body = answer_control(
                self.playing, request.method, path, request.headers, request.raw
            )
            await self.playing.settled()
            return await self._send(status, body)
        if request.method == "GET" and path.endswith("/models"):
            found = Route.to_models(request.headers)
            client = ClientRequest(path, request.headers, {}, 0, "", "", "", "", 0, 0)
            models = found.dialect.models(self.playing.settings.models)
            return await self._answer_side_request(client, found, models)
        if request.method == "GET":
            limits = answer_rate_limits(self.playing.settings, path, request.headers)
            if limits is not None:
                return await self._send(*limits)
        endpoint = Route.of_post(path) if request.method == "POST" else None
        if endpoint is None:
            missing = error_body("not_found_error", "Not Found").encode()
            return await self._send(404, b"" if request.method == "HEAD" else missing)
        read = ClientRequest.parse(
            path, request.headers, request.raw, path_fields=endpoint.path_fields
        )
        if read is None:
            rejected = Rejected(0, 0.0, 400, NO_HEADERS, _NOT_JSON)
            refusal = endpoint.dialect.refused(rejected, "", 0.0)
            return await self._send(refusal.status, refusal.body.encode(), refusal.headers)
        if endpoint.counts_only:
            counted = json.dumps({"input_tokens": read.input_tokens}).encode()
            return await self._answer_side_request(read, endpoint, counted)
        return await self._answer_call(read, endpoint)

    async def _send(
        self, status: int, body: bytes, headers: Mapping[str, str] = NO_HEADERS
    ) -> bool:
        self.writer.write(render_response(status, headers, body))
        await self.writer.drain()
        return True

    async def _answer_side_request(
        self, request: ClientRequest, endpoint: Route, body: bytes
    ) -> bool:
        """Answer what is no model call; faults apply to it as to any other request."""
        dialect = endpoint.dialect
        model_request = SimRequest(
            model=request.model, stream=False, dialect=dialect.name, is_side_request=True
        )
        return await self._play_out(
            model_request,
            self._refusal_of_access(request, endpoint),
            lambda _hit: self._writer_of(request, dialect, Answer(JSON, [body], 0)),
        )

    async def _answer_call(self, request: ClientRequest, endpoint: Route) -> bool:
        playing, dialect = self.playing, endpoint.dialect
        forced: ProviderRefusal | Fault | None = self._refusal_of_access(request, endpoint)
        prompt = request.read_prompt(dialect.name)
        if isinstance(prompt, ProviderRefusal):
            forced = forced or prompt
        reply = _TEXT_TO_BREAK if forced else playing.reply_to(request)
        if isinstance(reply, Vanish):
            playing.add_fault(Fault(Effect.REFUSED))
            playing.drop_connections()
            return False
        if isinstance(reply, Fail):
            forced = reply.refusal()
        elif isinstance(reply, Fault):
            forced = reply
        say = reply.as_requested(request) if isinstance(reply, Say) else _TEXT_TO_BREAK
        serial = playing.next_serial()
        playing.encrypted_reasoning.add(encrypted_reasoning_of(serial))

        def writer_of(hit: Hit | None) -> AnswerWriter:
            pending = PendingReply(serial, request, say, hit)
            answer = dialect.stream(pending) if request.stream else dialect.whole(pending)
            return self._writer_of(request, dialect, answer, serial)

        service = None
        if say.tokens_per_second is not None:
            first_byte = playing.settings.service.first_byte
            service = first_byte + say.output_tokens / say.tokens_per_second
        model_request = SimRequest(
            model=request.model,
            input_tokens=request.input_tokens,
            output_tokens=say.output_tokens,
            stream=request.stream,
            session=request.session,
            agent=request.agent,
            body_hash=request.body_hash,
            service=service,
            dialect=dialect.name,
            delay=say.delay,
            prompt=None if isinstance(prompt, ProviderRefusal) else prompt,
        )
        return await self._play_out(model_request, forced, writer_of)

    def _refusal_of_access(self, request: ClientRequest, endpoint: Route) -> ProviderRefusal | None:
        demanded = self.playing.settings.demands_credential
        if demanded and not endpoint.has_credential(request.headers):
            return NO_CREDENTIAL
        known = self.playing.encrypted_reasoning
        return None if request.encrypted_reasoning <= known else UNKNOWN_ENCRYPTED_CONTENT

    def _writer_of(
        self, request: ClientRequest, dialect: Dialect, answer: Answer, serial: int | None = None
    ) -> AnswerWriter:
        serial = self.playing.next_serial() if serial is None else serial
        return AnswerWriter(self.writer, dialect, answer, request, serial, self.playing.calendar)

    async def _play_out(
        self,
        request: SimRequest,
        forced: ProviderRefusal | Fault | None,
        writer_of: Callable[[Hit | None], AnswerWriter],
    ) -> bool:
        """Write what the model decides; False when the connection is over.

        The answer has the hits of prompt caches, so it is composed when the request has arrived.
        """
        playing = self.playing
        id, queue = playing.submit(request, forced)  # noqa: A001
        writer = writer_of(playing.provider.hit(id))
        self.reader.on_gone = lambda: queue.put_nowait(None)
        if self.reader.gone:
            queue.put_nowait(None)
        try:
            while (event := await queue.get()) is not None:
                await writer.play(event)
                if not isinstance(event, Accepted | Bytes):
                    return writer.keeps_connection and not self.reader.gone
            return False
        finally:
            self.reader.on_gone = None
            playing.finish(id, queue)
