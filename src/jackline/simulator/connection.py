"""Serve one client's connection: route each request, and carry its answer to the end.

Laws: (1) every request is answered, broken on purpose, or held until its client goes; (2) a client
that hangs up is told to the model at once.
Not here: listening (server.py), what is decided (playing.py), how it is written (answering.py).
"""

from __future__ import annotations

import asyncio

from jackline.simulator import control
from jackline.simulator.answering import Answering
from jackline.simulator.conversation import Asked, read_asked
from jackline.simulator.exchange import Accepted, Bytes, SimRequest
from jackline.simulator.faults import Effect, Fault
from jackline.simulator.http_wire import ClientReader, HttpRequest, read_request, response
from jackline.simulator.mind import Fail, Reply, Say, Vanish, long_answer
from jackline.simulator.openai_responses import OpenAIResponses
from jackline.simulator.playing import Playing
from jackline.simulator.refusals import Refusal, error_body
from jackline.simulator.wire import AnthropicMessages, Dialect, Message

_ANTHROPIC = AnthropicMessages()
_DIALECTS: dict[str, Dialect] = {"/messages": _ANTHROPIC, "/responses": OpenAIResponses()}
_WORDS_TO_BREAK = long_answer(200)
"""What a model says when the script orders a fault and no words."""
_GONE = Fault(Effect.REFUSED)


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
            status, body = control.answer(self._playing, request.method, path, request.raw)
            await self._playing.settled()
            return await self._send(status, body)
        if request.method == "GET" and path.endswith("/v1/models"):
            return await self._send(200, _ANTHROPIC.models(self._playing.settings.models))
        dialect = next((d for end, d in _DIALECTS.items() if path.endswith(end)), None)
        counts_only = path.endswith("/messages/count_tokens")
        if request.method != "POST" or not (dialect or counts_only):
            missing = error_body("not_found_error", "Not Found").encode()
            return await self._send(404, b"" if request.method == "HEAD" else missing)
        asked = read_asked(path, request.headers, request.raw)
        if asked is None:
            unread = error_body("invalid_request_error", "The request body is not valid JSON")
            return await self._send(400, unread.encode())
        if dialect is None:
            return await self._send(200, _ANTHROPIC.count_tokens(asked))
        return await self._converse(asked, dialect)

    async def _send(self, status: int, body: bytes) -> bool:
        self._writer.write(response(status, {}, body))
        await self._writer.drain()
        return True

    async def _converse(self, asked: Asked, dialect: Dialect) -> bool:
        playing = self._playing
        reply = playing.hear(asked)
        if isinstance(reply, Vanish):
            playing.add_fault(_GONE)
            playing.drop_connections()
            return False
        say = reply if isinstance(reply, Say) else _WORDS_TO_BREAK
        playing.serial += 1
        message = Message(playing.serial, asked, say)
        answering = Answering(
            self._writer,
            dialect,
            dialect.stream(message) if asked.stream else dialect.whole(message),
            stream=asked.stream,
            serial=playing.serial,
        )
        await self._play_out(asked, say, reply, answering)
        return answering.keeps_connection and not self._reader.gone

    async def _play_out(self, asked: Asked, say: Say, reply: Reply, answering: Answering) -> None:
        playing = self._playing
        request = _request(asked, say, playing.settings.service.first_byte)
        id, queue = playing.enter(request, _ordered(reply))  # noqa: A001
        self._reader.on_gone = lambda: queue.put_nowait(None)
        if self._reader.gone:
            queue.put_nowait(None)
        try:
            while (event := await queue.get()) is not None:
                await answering.play(event)
                if not isinstance(event, Accepted | Bytes):
                    return
            answering.keeps_connection = False
        finally:
            self._reader.on_gone = None
            playing.leave(id, queue)


def _request(asked: Asked, say: Say, first_byte: float) -> SimRequest:
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
        delay=say.delay,
    )


def _ordered(reply: Reply) -> Refusal | Fault | None:
    if isinstance(reply, Fail):
        return reply.refusal()
    return reply if isinstance(reply, Fault) else None
