"""Answer each path whose document anybody may read who reaches the port: all go through here.

Rules: (1) a document is made once for all who want it meanwhile or within half a second, and few of
one path within that time; none waits in line, others are asked to come back; (2) whoever shows the
control token gets a document that was made after it was requested; (3) a document that nobody waits
for any more is given up, and its place is free when its work has really ended; (4) what is kept is
bounded, and a large document is sent in pieces, few in a turn of the loop, as its client takes
them; of many such clients that are behind, the one that has been so for longest is cut off.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qs

import msgspec

from jackline.clock import Clock
from jackline.control.http_handler import ServiceRequest
from jackline.errors import JacklineError

MOST_AT_ONCE = 2
"""Documents of one path that are made at once."""
MOST_KEPT = 4
"""Different documents of one path within half a second."""
MOST_BEHIND = 32
"""Clients that are behind with a large document."""
_SHARED_SECONDS = 0.5
# Two names of 200 characters, each in twelve.
_LONGEST_QUERY = 5000
_MOST_PARAMETERS = 8
_PIECE = 64 * 1024
_PIECES_A_TURN = 8
_JSON = b"application/json"
_NO_STORE = (b"cache-control", b"no-store")

IsWanted: TypeAlias = Callable[[], bool]
"""Whether somebody still waits; may be asked in any thread."""
Parameters: TypeAlias = tuple[str, ...]
Make: TypeAlias = Callable[[Parameters, IsWanted], Awaitable[bytes]]
"""Makes a document, of these values of its parameters; NotWantedError where it gives up."""
_Key: TypeAlias = tuple[bytes, Parameters]


class NotWantedError(Exception):
    """Raised while a document is made that nobody waits for any more."""


class OpenDocument(NamedTuple):
    """What is answered on one path."""

    make: Make
    parameters: Parameters = ()
    """Their names in the query; what it lacks is the empty text."""
    content_type: bytes = _JSON

    @classmethod
    def of(cls, make: Callable[[], object]) -> OpenDocument:
        """What is quickly made from memory alone, as JSON."""

        async def encoded(_parameters: Parameters, _is_wanted: IsWanted) -> bytes:
            return msgspec.json.encode(make())

        return cls(encoded)


class _Answer(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def _error(status: int, text: str, *headers: tuple[bytes, bytes]) -> _Answer:
    body = json.dumps({"error": {"message": text}}).encode()
    return _Answer(status, [(b"content-type", _JSON), _NO_STORE, *headers], body)


_BUSY = _error(
    503,
    "this service makes as many documents as it can: ask again in a second",
    (b"retry-after", b"1"),
)
_NO_ANSWER = _error(500, "Jackline: no answer was made")
_READ_ONLY = _error(405, "this is only read")
_TOO_MUCH = _error(
    400,
    f"the query of this path has at most {_LONGEST_QUERY} bytes and {_MOST_PARAMETERS} parameters",
)


@dataclass(eq=False, slots=True)
class _Making:
    waiting: list[ServiceRequest] = field(default_factory=list)

    def is_wanted(self) -> bool:
        return bool(self.waiting)


class OpenDocuments:
    """The documents that are being made, and those that have just been; `serve` must run."""

    def __init__(
        self,
        documents: Mapping[bytes, OpenDocument],
        trusts: Callable[[ServiceRequest], bool],
        clock: Clock,
    ) -> None:
        """`trusts` says who shows the control token."""
        self._documents = documents
        self._trusts = trusts
        self._clock = clock
        self._makings: dict[_Key, _Making] = {}
        self._kept: dict[_Key, tuple[float, _Answer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._large = _LargeAnswers()

    @property
    def paths(self) -> frozenset[bytes]:
        """Every path that is answered here."""
        return frozenset(self._documents)

    def knows(self, request: ServiceRequest) -> bool:
        """Whether this asks for one of the documents."""
        return request.path in self._documents

    def answer(self, request: ServiceRequest) -> None:
        """Send the document, now or when it is made."""
        document = self._documents[request.path]
        if request.method not in (b"GET", b"HEAD"):
            self._send(request, _READ_ONLY)
            return
        try:
            key = request.path, _parameters(request.query, document.parameters)
        except ValueError:
            self._send(request, _TOO_MUCH)
            return
        making = None
        if not self._trusts(request):
            self._forget_old()
            kept = self._kept.get(key)
            if kept is not None:
                self._send(request, kept[1])
                return
            making = self._makings.get(key)
            if making is None:
                at_once = sum(path == key[0] for path, _ in self._makings)
                recent = sum(path == key[0] for path, _ in self._kept)
                if at_once >= MOST_AT_ONCE or at_once + recent >= MOST_KEPT:
                    self._send(request, _BUSY)
                    return
                making = self._makings[key] = self._begin(document, key, is_shared=True)
        else:
            making = self._begin(document, key, is_shared=False)
        making.waiting.append(request)
        request.on_gone = partial(_remove, making, request)

    async def serve(self) -> None:
        """When the service ends: give up what is being made, and return when that has ended."""
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, document: OpenDocument, key: _Key, *, is_shared: bool) -> _Making:
        making = _Making()
        work = self._make(document, key, making, is_shared=is_shared)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return making

    async def _make(
        self, document: OpenDocument, key: _Key, making: _Making, *, is_shared: bool
    ) -> None:
        answer = _NO_ANSWER
        try:
            body = await document.make(key[1], making.is_wanted)
            answer = _Answer(200, [(b"content-type", document.content_type), _NO_STORE], body)
        except NotWantedError:
            answer = _BUSY  # for who has come in the very moment when it gave up
        except JacklineError as error:
            body = msgspec.json.encode({"error": error.to_json()})
            answer = _Answer(error.http_status, [(b"content-type", _JSON), _NO_STORE], body)
        finally:
            if is_shared:
                del self._makings[key]
                if answer is not _BUSY:
                    self._kept[key] = (self._clock.monotonic(), answer)
            for request in making.waiting:
                request.on_gone = None
                self._send(request, answer)

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - _SHARED_SECONDS
        self._kept = {key: kept for key, kept in self._kept.items() if kept[0] > oldest}

    def _send(self, request: ServiceRequest, answer: _Answer) -> None:
        if len(answer.body) <= _PIECE:
            request.respond(*answer)
        else:
            self._large.send(request, answer)


class _LargeAnswer:
    """A document that is sent as its client takes it."""

    def __init__(self, request: ServiceRequest, answer: _Answer) -> None:
        self.request = request
        self._body = answer.body
        self._sent = 0
        length = b"%d" % len(answer.body)
        request.begin(answer.status, [*answer.headers, (b"content-length", length)])

    def send_piece(self) -> bool:
        """Send the next piece; whether there are more."""
        self.request.send(self._body[self._sent : self._sent + _PIECE])
        self._sent += _PIECE
        return self._sent < len(self._body)


class _LargeAnswers:
    """All of those: `behind` are those whose client took no more at some time, the first first."""

    def __init__(self) -> None:
        self.behind: dict[_LargeAnswer, None] = {}
        self._sending: deque[_LargeAnswer] = deque()

    def send(self, request: ServiceRequest, answer: _Answer) -> None:
        large = _LargeAnswer(request, answer)
        request.on_resume = partial(self._go_on, large)
        request.on_gone = partial(self.behind.pop, large, None)
        self._go_on(large)

    def _go_on(self, large: _LargeAnswer) -> None:
        if large in self._sending:
            return
        if not self._sending:
            asyncio.get_running_loop().call_soon(self._take_turn)
        self._sending.append(large)

    def _take_turn(self) -> None:
        for _ in range(min(_PIECES_A_TURN, len(self._sending))):
            large = self._sending.popleft()
            request = large.request
            if request.gone:
                continue
            if request.paused:
                self.behind[large] = None
                if len(self.behind) > MOST_BEHIND:
                    first = next(iter(self.behind))
                    del self.behind[first]
                    first.request.reset()
            elif large.send_piece():
                self._sending.append(large)
            else:
                self.behind.pop(large, None)
                request.finish()
        if self._sending:
            asyncio.get_running_loop().call_soon(self._take_turn)


def _remove(making: _Making, request: ServiceRequest) -> None:
    with suppress(ValueError):
        making.waiting.remove(request)


def _parameters(query: bytes, names: Parameters) -> Parameters:
    """The values of these; ValueError when the query is larger than any that is meant."""
    if len(query) > _LONGEST_QUERY:
        raise ValueError
    if not names:
        return ()
    found = parse_qs(query.decode("latin-1"), max_num_fields=_MOST_PARAMETERS)
    return tuple(found.get(name, [""])[0] for name in names)
