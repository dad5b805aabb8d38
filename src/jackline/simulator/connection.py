"""Serve one client's connection: route each request, and write its answer to the end.

Rules: (1) every request is answered, broken on purpose, or open until its client leaves; (2) a
client that hangs up is reported to the model at once; (3) only the model decides: this writes
when and as much as its events say; (4) a stream grows by whole events, unless it is cut at a
byte.
Not here: listening (server.py), deciding (provider.py), encoding (anthropic_wire.py,
openai_wire.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from jackline.simulator import control, endpoints
from jackline.simulator.anthropic_wire import JSON, Answer, Dialect, PendingReply, with_request_id
from jackline.simulator.client_request import ClientRequest, read_client_request, read_prompt
from jackline.simulator.endpoints import ANTHROPIC, Route, listing, route
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
from jackline.simulator.http_wire import (
    LAST_CHUNK,
    ClientReader,
    HttpRequest,
    chunk,
    head,
    read_request,
    reset,
    response,
)
from jackline.simulator.live_provider import LiveProvider
from jackline.simulator.openai_wire import encrypted_reasoning_in, encrypted_reasoning_of
from jackline.simulator.prompt_cache import Hit
from jackline.simulator.reply_script import Fail, Reply, Say, Vanish, as_asked, long_answer
from jackline.simulator.time_model import Calendar

PING_AFTER = 5.0
"""Model seconds without a piece after which a stream shows that it is alive."""


class AnswerWriter:
    """One answer being written; `play` takes its events in order."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        dialect: Dialect,
        answer: Answer,
        *,
        asked: ClientRequest,
        serial: int,
        calendar: Calendar,
    ) -> None:
        self._writer = writer
        self._dialect = dialect
        self._answer = answer
        self._stream = asked.stream
        self._model = asked.model
        self._serial = serial
        self._calendar = calendar
        self._written = 0
        self._last_piece_at = 0.0
        self.keeps_connection = True

    async def play(self, event: ProviderEvent) -> None:
        """Write what this event means."""
        if isinstance(event, Accepted):
            self._begin(event)
        elif isinstance(event, Bytes):
            self._grow(event)
        elif isinstance(event, Rejected):
            self._refuse(event)
        elif isinstance(event, ConnectionBroken):
            await self._break(event)
        else:
            self._write_pieces(len(self._answer.pieces))
            if self._stream:
                self._writer.write(LAST_CHUNK)
        if not self._writer.is_closing():
            await self._writer.drain()

    def _begin(self, event: Accepted) -> None:
        announced = self._dialect.announced(event.headers, self._calendar.epoch_at(event.at))
        headers: dict[str, str] = {**self._dialect.identity(self._serial), **announced}
        headers["content-type"] = self._answer.content_type
        if self._stream:
            headers["transfer-encoding"] = "chunked"
        else:
            headers["content-length"] = str(sum(map(len, self._answer.pieces)))
        self._writer.write(head(200, headers))
        self._last_piece_at = event.at

    def _grow(self, event: Bytes) -> None:
        before = self._written
        self._write_pieces(self._told_pieces(event.share))
        if self._written > before:
            self._last_piece_at = event.at
        elif event.at - self._last_piece_at >= PING_AFTER:
            self._last_piece_at = event.at
            self._writer.write(chunk(self._dialect.ping()))

    def _told_pieces(self, share: float) -> int:
        """The pieces of an unfinished answer: the first one, but never those that close it."""
        body = max(1, len(self._answer.pieces) - self._answer.closing)
        return max(1, min(body, int(body * share)))

    def _write_pieces(self, until: int) -> None:
        fresh = b"".join(self._answer.pieces[self._written : until])
        self._written = max(self._written, until)
        self._writer.write(chunk(fresh) if self._stream else fresh)

    def _refuse(self, event: Rejected) -> None:
        told = self._dialect.refused(event, self._model, self._calendar.epoch_at(event.at))
        body = with_request_id(told.body, self._serial)
        # An edge's own page has no request id: that is how clients tell it from the API.
        identity = self._dialect.identity(self._serial) if _is_error_document(body) else {}
        headers: Mapping[str, str] = {**identity, **told.headers}
        self._writer.write(response(told.status, headers, body.encode()))

    async def _break(self, event: ConnectionBroken) -> None:
        self.keeps_connection = False
        if event.how in (How.REFUSED, How.RESET):
            reset(self._writer)
            return
        self._write_broken(event)
        await self._writer.drain()
        if event.how is How.CUT:
            reset(self._writer)
            return
        if event.how is How.ERROR_EVENT:
            self._writer.write(chunk(self._dialect.error_event(event.body, self._written)))
        if self._stream:
            self._writer.write(LAST_CHUNK)
        self._writer.close()

    def _write_broken(self, event: ConnectionBroken) -> None:
        """The part of the answer that comes before the break."""
        whole = b"".join(self._answer.pieces)
        if event.at_byte is not None:
            done = len(b"".join(self._answer.pieces[: self._written]))
            part = whole[done : max(done, event.at_byte)]
            self._writer.write(chunk(part) if self._stream else part)
        elif self._stream:
            self._write_pieces(self._told_pieces(event.share))
        else:
            self._writer.write(whole[: len(whole) // 2])


def _is_error_document(body: str) -> bool:
    try:
        document = json.loads(body)
    except ValueError:
        return False
    return isinstance(document, dict)


_WORDS_TO_BREAK = long_answer(200)
"""What a model says when the script orders a fault and no words."""
_GONE = Fault(Effect.REFUSED)
_UNREAD = error_body("invalid_request_error", "The request body is not valid JSON")


class SimConnection:
    """One client's connection."""

    def __init__(
        self, playing: LiveProvider, reader: ClientReader, writer: asyncio.StreamWriter
    ) -> None:
        self._playing = playing
        self._reader = reader
        self._writer = writer

    async def serve(self) -> None:
        """Answer requests until the client or the script ends the connection."""
        try:
            while (request := await read_request(self._reader)) is not None:
                if not await self._answer(request):
                    break
        except ConnectionError:
            return  # the client left; the model has been told
        finally:
            self._writer.close()

    async def _answer(self, request: HttpRequest) -> bool:
        """Answer one request; False when the connection is over."""
        path = request.path
        if control.PREFIX in path:
            status, body = control.answer(self._playing, request)
            await self._playing.settled()
            return await self._send(status, body)
        if request.method == "GET" and path.endswith("/models"):
            return await self._list_models(request)
        if request.method == "GET":
            told = endpoints.answer(self._playing.settings, path, request.headers)
            if told is not None:
                return await self._send(*told)
        found = route(path) if request.method == "POST" else None
        if found is None:
            missing = error_body("not_found_error", "Not Found").encode()
            return await self._send(404, b"" if request.method == "HEAD" else missing)
        asked = read_client_request(path, request.headers, request.raw, told_by_path=found.told)
        if asked is None:
            unread = found.dialect.refused(Rejected(0, 0.0, 400, NO_HEADERS, _UNREAD), "", 0.0)
            return await self._send(unread.status, unread.body.encode(), unread.headers)
        if found.counts_only:
            return await self._run_errand(asked, found, ANTHROPIC.count_tokens(asked))
        return await self._converse(asked, found)

    async def _send(
        self, status: int, body: bytes, headers: Mapping[str, str] = NO_HEADERS
    ) -> bool:
        self._writer.write(response(status, headers, body))
        await self._writer.drain()
        return True

    async def _list_models(self, request: HttpRequest) -> bool:
        found = listing(request.headers)
        asked = ClientRequest(request.path, request.headers, {}, 0, "", "", "", "", 0, 0)
        listed = found.dialect.models(self._playing.settings.models)
        return await self._run_errand(asked, found, listed)

    async def _run_errand(self, asked: ClientRequest, found: Route, body: bytes) -> bool:
        """Answer what is no model call; faults strike it like any other request."""

        def answering(_hit: Hit | None) -> AnswerWriter:
            return self._answering(asked, found.dialect, Answer(JSON, [body], 0))

        errand = SimRequest(
            model=asked.model, stream=False, dialect=found.dialect.name, errand=True
        )
        return await self._play_out(errand, self._doorkeeper(asked, found), answering)

    async def _converse(self, asked: ClientRequest, found: Route) -> bool:
        playing, dialect = self._playing, found.dialect
        refusal = self._doorkeeper(asked, found)
        prompt = read_prompt(asked, dialect.name)
        if isinstance(prompt, ProviderRefusal):
            refusal = refusal or prompt
        reply = _WORDS_TO_BREAK if refusal else playing.hear(asked)
        if isinstance(reply, Vanish):
            playing.add_fault(_GONE)
            playing.drop_connections()
            return False
        say = as_asked(reply, asked) if isinstance(reply, Say) else _WORDS_TO_BREAK
        serial = playing.next_serial()
        playing.seals.add(encrypted_reasoning_of(serial))

        def answering(hit: Hit | None) -> AnswerWriter:
            message = PendingReply(serial, asked, say, hit)
            answer = dialect.stream(message) if asked.stream else dialect.whole(message)
            return self._answering(asked, dialect, answer, serial)

        request = _request(asked, say, playing.settings.service.first_byte, dialect.name)
        request = replace(request, prompt=None if isinstance(prompt, ProviderRefusal) else prompt)
        return await self._play_out(request, refusal or _ordered(reply), answering)

    def _doorkeeper(self, asked: ClientRequest, found: Route) -> ProviderRefusal | None:
        demanded = self._playing.settings.demands_credential
        if demanded and not found.has_credential(asked.headers):
            return NO_CREDENTIAL
        return (
            None
            if self._playing.seals.issuperset(encrypted_reasoning_in(asked))
            else UNKNOWN_ENCRYPTED_CONTENT
        )

    def _answering(
        self, asked: ClientRequest, dialect: Dialect, answer: Answer, serial: int | None = None
    ) -> AnswerWriter:
        return AnswerWriter(
            self._writer,
            dialect,
            answer,
            asked=asked,
            serial=self._playing.next_serial() if serial is None else serial,
            calendar=self._playing.calendar,
        )

    async def _play_out(
        self,
        request: SimRequest,
        ordered: ProviderRefusal | Fault | None,
        answering_of: Callable[[Hit | None], AnswerWriter],
    ) -> bool:
        """Write what the model decides; False when the connection is over.

        The answer tells what prompt caches held, so it is composed when the request has arrived.
        """
        playing = self._playing
        id, queue = playing.enter(request, ordered)  # noqa: A001
        answering = answering_of(playing.provider.hit(id))
        self._reader.on_gone = lambda: queue.put_nowait(None)
        if self._reader.gone:
            queue.put_nowait(None)
        try:
            while (event := await queue.get()) is not None:
                await answering.play(event)
                if not isinstance(event, Accepted | Bytes):
                    return answering.keeps_connection and not self._reader.gone
            return False
        finally:
            self._reader.on_gone = None
            playing.leave(id, queue)


def _request(asked: ClientRequest, say: Say, first_byte: float, dialect: str) -> SimRequest:
    tokens, own_speed = say.output_tokens, say.tokens_per_second
    return SimRequest(
        model=asked.model,
        input_tokens=asked.input_tokens,
        output_tokens=tokens,
        stream=asked.stream,
        session=asked.session,
        agent=asked.agent,
        body_hash=asked.body_hash,
        service=None if own_speed is None else first_byte + tokens / own_speed,
        dialect=dialect,
        delay=say.delay,
    )


def _ordered(reply: Reply) -> ProviderRefusal | Fault | None:
    if isinstance(reply, Fail):
        return reply.refusal()
    return reply if isinstance(reply, Fault) else None
