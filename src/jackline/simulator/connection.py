"""Serve one client's connection: route each request, and carry its answer to the end.

Laws: (1) every request is answered, broken on purpose, or held until its client goes; (2) a client
that hangs up is told to the model at once.
Not here: listening (server.py), what is decided (playing.py), how it is written (answering.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from jackline.simulator import control, rate_limits
from jackline.simulator.answering import Answering
from jackline.simulator.conversation import Asked, read_asked
from jackline.simulator.exchange import NO_HEADERS, Accepted, Bytes, Rejected, SimRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.http_wire import ClientReader, HttpRequest, read_request, response
from jackline.simulator.mind import Fail, Reply, Say, Vanish, as_asked, long_answer
from jackline.simulator.openai_responses import seal_of, seals_in
from jackline.simulator.playing import Playing
from jackline.simulator.prompt_cache import Hit
from jackline.simulator.prompts import read_prompt
from jackline.simulator.refusals import NO_CREDENTIAL, STRANGE_SEAL, Refusal, error_body
from jackline.simulator.routes import ANTHROPIC, Route, listing, route
from jackline.simulator.wire import JSON, Answer, Dialect, Message

_WORDS_TO_BREAK = long_answer(200)
"""What a model says when the script orders a fault and no words."""
_GONE = Fault(Effect.REFUSED)
_UNREAD = error_body("invalid_request_error", "The request body is not valid JSON")


class Connection:
    """One client's connection."""

    def __init__(
        self, playing: Playing, reader: ClientReader, writer: asyncio.StreamWriter
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
            told = rate_limits.answer(self._playing.settings, path, request.headers)
            if told is not None:
                return await self._send(*told)
        found = route(path) if request.method == "POST" else None
        if found is None:
            missing = error_body("not_found_error", "Not Found").encode()
            return await self._send(404, b"" if request.method == "HEAD" else missing)
        asked = read_asked(path, request.headers, request.raw, told_by_path=found.told)
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
        asked = Asked(request.path, request.headers, {}, 0, "", "", "", "", 0, 0)
        listed = found.dialect.models(self._playing.settings.models)
        return await self._run_errand(asked, found, listed)

    async def _run_errand(self, asked: Asked, found: Route, body: bytes) -> bool:
        """Answer what is no model call; faults strike it like any other request."""

        def answering(_hit: Hit | None) -> Answering:
            return self._answering(asked, found.dialect, Answer(JSON, [body], 0))

        errand = SimRequest(
            model=asked.model, stream=False, dialect=found.dialect.name, errand=True
        )
        return await self._play_out(errand, self._doorkeeper(asked, found), answering)

    async def _converse(self, asked: Asked, found: Route) -> bool:
        playing, dialect = self._playing, found.dialect
        refusal = self._doorkeeper(asked, found)
        prompt = read_prompt(asked, dialect.name)
        if isinstance(prompt, Refusal):
            refusal = refusal or prompt
        reply = _WORDS_TO_BREAK if refusal else playing.hear(asked)
        if isinstance(reply, Vanish):
            playing.add_fault(_GONE)
            playing.drop_connections()
            return False
        say = as_asked(reply, asked) if isinstance(reply, Say) else _WORDS_TO_BREAK
        serial = playing.next_serial()
        playing.seals.add(seal_of(serial))

        def answering(hit: Hit | None) -> Answering:
            message = Message(serial, asked, say, hit)
            answer = dialect.stream(message) if asked.stream else dialect.whole(message)
            return self._answering(asked, dialect, answer, serial)

        request = _request(asked, say, playing.settings.service.first_byte, dialect.name)
        request = replace(request, prompt=None if isinstance(prompt, Refusal) else prompt)
        return await self._play_out(request, refusal or _ordered(reply), answering)

    def _doorkeeper(self, asked: Asked, found: Route) -> Refusal | None:
        demanded = self._playing.settings.demands_credential
        if demanded and not found.has_credential(asked.headers):
            return NO_CREDENTIAL
        return None if self._playing.seals.issuperset(seals_in(asked)) else STRANGE_SEAL

    def _answering(
        self, asked: Asked, dialect: Dialect, answer: Answer, serial: int | None = None
    ) -> Answering:
        return Answering(
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
        ordered: Refusal | Fault | None,
        answering_of: Callable[[Hit | None], Answering],
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


def _request(asked: Asked, say: Say, first_byte: float, dialect: str) -> SimRequest:
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


def _ordered(reply: Reply) -> Refusal | Fault | None:
    if isinstance(reply, Fail):
        return reply.refusal()
    return reply if isinstance(reply, Fault) else None
