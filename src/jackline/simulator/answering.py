"""Play what the model decided about one exchange onto its connection.

Laws: (1) only the model decides: this writes when told and as much as told; (2) a stream grows by
whole events, unless it is cut at a byte.
Not here: deciding (provider.py), encoding (wire.py), waiting for requests (server.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from jackline.simulator.calendar import Calendar
from jackline.simulator.conversation import Asked
from jackline.simulator.exchange import Accepted, Broken, Bytes, How, ProviderEvent, Rejected
from jackline.simulator.http_wire import LAST_CHUNK, chunk, head, reset, response
from jackline.simulator.wire import Answer, Dialect, with_request_id

PING_AFTER = 5.0
"""Model seconds without a piece after which a stream shows that it is alive."""


class Answering:
    """One answer being written; `play` takes its events in order."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        dialect: Dialect,
        answer: Answer,
        *,
        asked: Asked,
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
        elif isinstance(event, Broken):
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

    async def _break(self, event: Broken) -> None:
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

    def _write_broken(self, event: Broken) -> None:
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
