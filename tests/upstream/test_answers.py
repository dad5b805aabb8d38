"""What an ear hears of answers, however their bytes are cut."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.http1.responses import FRAMING_BYTES, CutShortError, GarbledError, NotHttpError
from jackline.upstream.http_upstream import Connection, ConnectionPool, HttpAttempt
from jackline.upstream.origin import Origin
from tests.upstream.loopback import Recorder

OK = b"HTTP/1.1 200 OK\r\n"
LONG = b"x" * 5000
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"

# Name: bytes, whether they answer a HEAD, status, body, whether the connection can be kept.
WHOLE: dict[str, tuple[bytes, bool, int, bytes, bool]] = {
    "counted": (OK + b"Content-Length: 3\r\n\r\nabc", False, 200, b"abc", True),
    "counted, long": (OK + b"Content-Length: 5000\r\n\r\n" + LONG, False, 200, LONG, True),
    "empty": (OK + b"Content-Length: 0\r\n\r\n", False, 200, b"", True),
    "chunked": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
        False,
        200,
        b"abc0123456789",
        True,
    ),
    "chunked, with extension and trailer": (
        OK + b"Transfer-Encoding: Chunked\r\nTrailer: X\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n",
        False,
        200,
        b"abc",
        True,
    ),
    "chunked, empty": (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", False, 200, b"", True),
    "interim answers first": (
        INTERIM + b"HTTP/1.1 529 Overloaded\r\nContent-Length: 2\r\n\r\n{}",
        False,
        529,
        b"{}",
        True,
    ),
    "no content": (b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", False, 204, b"", True),
    "not modified, with a length": (
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
        False,
        304,
        b"",
        True,
    ),
    "closing": (
        OK + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc",
        False,
        200,
        b"abc",
        False,
    ),
    "of an old server": (
        b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        False,
        200,
        b"abc",
        False,
    ),
    "to HEAD, empty": (OK + b"Content-Length: 0\r\n\r\n", True, 200, b"", True),
    "of no reason": (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na", False, 200, b"a", True),
}


class Paper(asyncio.Transport):
    """A transport of paper: it takes everything and sends nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.is_torn = False

    def is_closing(self) -> bool:
        return self.is_torn

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def abort(self) -> None:
        self.is_torn = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Keeping(ConnectionPool):
    def __init__(self) -> None:
        super().__init__(Origin("http://127.0.0.1"))
        self.freed: list[Connection] = []
        self.resent: list[HttpAttempt] = []

    def free(self, connection: Connection) -> None:
        self.freed.append(connection)

    def flush_soon(self, connection: Connection) -> None:
        connection.flush()

    def lost(self, connection: Connection) -> None:
        pass

    def dial(self, attempt: HttpAttempt) -> None:
        self.resent.append(attempt)


@dataclass(slots=True)
class Reading:
    """A connection that has just sent a request, fed by hand."""

    is_head: bool = False
    ear: Recorder = field(default_factory=Recorder)
    keeper: Keeping = field(default_factory=Keeping)
    paper: Paper = field(default_factory=Paper)
    line: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.line = Connection(self.keeper)
        self.line.connection_made(self.paper)
        self.line.send(HttpAttempt(b"GET / HTTP/1.1\r\n\r\n", b"", self.is_head, self.ear))

    def feed(self, *pieces: bytes) -> Reading:
        for piece in pieces:
            if not self.paper.is_torn:
                self.line.data_received(piece)
        return self

    def end(self) -> Reading:
        if not self.paper.is_torn:
            self.line.eof_received()
        self.line.connection_lost(None)
        return self

    @property
    def last_words(self) -> list[str]:
        return [word for word in self.ear.words if word in ("ended", "broke")]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(edges)]


cuts = st.lists(st.integers(min_value=0, max_value=1 << 16), max_size=12)


@given(name=st.sampled_from(sorted(WHOLE)), places=cuts)
def test_a_whole_answer_is_heard_the_same_however_it_is_cut(name: str, places: list[int]) -> None:
    data, is_head, status, body, can_be_kept = WHOLE[name]
    reading = Reading(is_head).feed(*cut(data, places))
    assert reading.ear.words == ["began", *(["heard"] if body else []), "ended"]
    assert (reading.ear.status, reading.ear.body) == (status, body)
    assert reading.keeper.freed == ([reading.line] if can_be_kept else [])
    assert reading.paper.is_torn is not can_be_kept


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_an_answer_cut_short_at_any_place_breaks_and_never_ends(name: str) -> None:
    data, is_head, _, body, _ = WHOLE[name]
    for place in range(1, len(data)):
        reading = Reading(is_head).feed(data[:place]).end()
        assert reading.last_words == ["broke"], place
        assert isinstance(reading.ear.error, CutShortError)
        assert body.startswith(reading.ear.body)


@given(places=cuts, body=st.binary(max_size=200))
def test_an_answer_without_length_ends_with_the_connection(places: list[int], body: bytes) -> None:
    reading = Reading().feed(*cut(OK + b"X: y\r\n\r\n" + body, places))
    assert reading.last_words == []
    reading.end()
    assert reading.last_words == ["ended"]
    assert reading.ear.body == body


@given(garbage=st.binary(min_size=1, max_size=300), places=cuts)
def test_garbage_has_exactly_one_end(garbage: bytes, places: list[int]) -> None:
    reading = Reading().feed(*cut(garbage, places)).end()
    assert len(reading.last_words) == 1


@given(
    name=st.sampled_from(sorted(WHOLE)),
    spots=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4),
    tail=st.binary(max_size=20),
    places=cuts,
)
def test_a_damaged_answer_has_exactly_one_end(
    name: str, spots: list[tuple[int, int]], tail: bytes, places: list[int]
) -> None:
    data = bytearray(WHOLE[name][0])
    for place, value in spots:
        data[place % len(data)] = value
    reading = Reading(WHOLE[name][1]).feed(*cut(bytes(data) + tail, places)).end()
    assert len(reading.last_words) == 1
    assert reading.ear.words.count("began") <= 1


@given(name=st.sampled_from(sorted(WHOLE)), places=cuts)
def test_nothing_beyond_the_answer_is_heard_and_the_connection_is_left(
    name: str, places: list[int]
) -> None:
    data, is_head, _, body, _ = WHOLE[name]
    reading = Reading(is_head).feed(*cut(data + WHOLE["counted"][0], places))
    assert reading.ear.body == body
    assert reading.last_words == ["ended"]
    assert reading.paper.is_torn


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        b"Content-Length: 3\r\nContent-Length: 3\r\n",
        b"Content-Length: 3\r\nContent-Length: 4\r\n",
        b"Content-Length: 3, 3\r\n",
        b"Content-Length: +3\r\n",
        b"Content-Length: -3\r\n",
        b"Content-Length: 0x3\r\n",
        b"Content-Length : 3\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"X: a\r\n Content-Length: 3\r\n",
        b"X: a\0b\r\nContent-Length: 3\r\n",
        b"X: a\rContent-Length: 3\r\n",
    ],
)
def test_an_answer_whose_end_is_in_doubt_is_refused_before_its_head_is_told(head: bytes) -> None:
    reading = Reading().feed(OK + head + b"\r\n3\r\nabc\r\n0\r\n\r\n").end()
    assert reading.ear.words == ["broke"]
    assert isinstance(reading.ear.error, NotHttpError)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"<html>",
        b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    ],
)
def test_what_is_not_an_answer_breaks(answer: bytes) -> None:
    reading = Reading().feed(answer).end()
    assert reading.ear.words == ["broke"]
    assert isinstance(reading.ear.error, NotHttpError)


@pytest.mark.parametrize(
    "chunks", [b"3\nabc\n0\n\n", b"fffffffffffffffff\r\n", b"g\r\n", b"3\r\nabcd"]
)
def test_broken_chunks_break_an_answer_that_had_begun(chunks: bytes) -> None:
    reading = Reading().feed(OK + b"Transfer-Encoding: chunked\r\n\r\n", chunks)
    assert reading.ear.words[0] == "began"
    assert reading.last_words == ["broke"]
    assert isinstance(reading.ear.error, GarbledError)
    assert reading.paper.is_torn


@pytest.mark.parametrize("step", [100_000, FRAMING_BYTES - 1, 2 * FRAMING_BYTES])
def test_a_head_larger_than_allowed_breaks(step: int) -> None:
    head = OK + b"X: " + b"y" * (FRAMING_BYTES + 10) + b"\r\nContent-Length: 0\r\n\r\n"
    pieces = [head[i : i + step] for i in range(0, len(head), step)]
    assert Reading().feed(*pieces).ear.words == ["broke"]


def test_a_large_head_within_the_limit_is_heard() -> None:
    head = OK + b"X: " + b"y" * (FRAMING_BYTES - 1000) + b"\r\nContent-Length: 300000\r\n\r\n"
    data = head + b"z" * 300_000
    reading = Reading().feed(*[data[i : i + 100_000] for i in range(0, len(data), 100_000)])
    assert reading.ear.words == ["began", "heard", "ended"]


@pytest.mark.parametrize(
    "filler", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nA: b\r\n\r\n"]
)
def test_interim_answers_without_end_break(filler: bytes) -> None:
    reading = Reading()
    for _ in range(FRAMING_BYTES // len(filler * 100) + 2):
        reading.feed(filler * 100)
    assert reading.ear.words == ["broke"]


def test_trailers_without_end_break() -> None:
    reading = Reading().feed(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
    for _ in range(60):
        reading.feed(b"X: " + b"y" * 5000 + b"\r\n")
    assert reading.ear.words == ["began", "heard", "broke"]


@pytest.mark.parametrize(
    ("answer", "can_be_kept"),
    [
        (OK + b"Content-Length: 30\r\n\r\n", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", True),
        (OK + b"Content-Length: 3\r\n\r\nabc", False),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3", False),
        (OK + b"X: y\r\n\r\n", False),
    ],
)
def test_an_answer_to_head_ends_with_its_head(answer: bytes, can_be_kept: bool) -> None:
    reading = Reading(is_head=True).feed(answer)
    assert reading.ear.words == ["began", "ended"]
    assert reading.paper.is_torn is not can_be_kept


def test_a_connection_that_answered_head_reads_the_next_answer_right() -> None:
    reading = Reading(is_head=True).feed(OK + b"Content-Length: 30\r\n\r\n")
    ear = Recorder()
    reading.line.send(HttpAttempt(b"GET / HTTP/1.1\r\n\r\n", b"", False, ear))
    reading.feed(WHOLE["counted"][0])
    assert (ear.words, ear.body) == (["began", "heard", "ended"], b"abc")


def test_headers_come_in_order_and_spelling_without_those_of_the_connection() -> None:
    reading = Reading().feed(
        OK + b"Request-Id: r\r\nConnection: Keep-Alive, X-Hop\r\nKeep-Alive: timeout=5\r\n"
        b"x-hop: 1\r\nvAry: a\r\nVary: b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    assert reading.ear.headers == [
        (b"Request-Id", b"r"),
        (b"vAry", b"a"),
        (b"Vary", b"b"),
    ]


def test_what_is_said_to_browsers_about_the_upstreams_own_site_is_dropped() -> None:
    reading = Reading().feed(
        OK + b"Access-Control-Allow-Origin: *\r\nACCESS-CONTROL-EXPOSE-HEADERS: *\r\n"
        b"sEt-cookie: a=1\r\nAlt-Svc: h3\r\nClear-Site-Data: x\r\nVary: Origin\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    assert reading.ear.headers == [(b"Vary", b"Origin"), (b"Content-Length", b"0")]
