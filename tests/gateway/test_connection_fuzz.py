"""How bytes are cut into packets changes nothing, and no bytes at all can harm the gateway."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from jackline.gateway.connection import Exchange
from jackline.gateway.settings import LimitSettings
from tests.gateway.serving import (
    HOST,
    PATIENCE,
    client_of,
    listening,
    read_answer,
    receive,
    run,
    until,
)

Seen = tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...], bytes]

TOKEN = st.text("abcXYZ-09", min_size=1, max_size=8).map(lambda text: b"X-" + text.encode())
VALUE = st.text("abc ,;=/\u00e9", max_size=12).map(lambda text: text.strip().encode("latin-1"))
HEADERS = st.lists(st.tuples(TOKEN, VALUE), max_size=4)
BODY = st.binary(max_size=300)
CUTS = st.lists(st.integers(0, 5000), max_size=20)
SMALL = LimitSettings(headers=2000, body=2000)


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, Seen]:
    """A valid request as it goes over the wire, and what the owner must see of it."""
    method = draw(st.sampled_from((b"POST", b"GET", b"PUT", b"DELETE")))
    target = b"/" + draw(st.text("abc/?&=%20", max_size=10)).encode()
    headers = [(b"Host", b"localhost"), *draw(HEADERS)]
    body = draw(BODY)
    kind = draw(st.sampled_from(("length", "chunked", "none")))
    if kind == "length":
        headers.append((b"Content-Length", b"%d" % len(body)))
        sent = body
    elif kind == "chunked":
        headers.append((b"Transfer-Encoding", b"chunked"))
        size = draw(st.integers(1, 100))
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        sent = b"".join(b"%X\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    else:
        sent = body = b""
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    wire = method + b" " + target + b" HTTP/1.1\r\n" + lines + b"\r\n" + sent
    return wire, (method, target, tuple(headers), body)


async def served(
    wire: bytes, cuts: list[int], limits: LimitSettings = SMALL
) -> tuple[list[Seen], list[int]]:
    """What the owner saw, and the statuses that the client got, for one way to cut the bytes.

    The pieces are given to the connection itself, since a socket may join them again; the answers
    go over the socket.
    """
    seen: list[Seen] = []
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))

    def handle(exchange: Exchange) -> None:
        seen.append(
            (exchange.method, exchange.target, tuple(exchange.headers), bytes(exchange.body))
        )
        exchange.respond(200, (), b"ok")

    async with listening(handle, limits) as listener, client_of(listener) as client:
        await until(lambda: listener.connections == 1)
        (connection,) = listener._open
        edges = [0, *sorted(cut % (len(wire) + 1) for cut in cuts), len(wire)]
        for start, stop in pairwise(edges):
            if start < stop:
                receive(connection, wire[start:stop])
        client.writer.write_eof()
        statuses: list[int] = []
        while not client.reader.at_eof():
            try:
                answer = await asyncio.wait_for(
                    read_answer(client.reader, to_head=seen_head(seen, len(statuses))), PATIENCE
                )
            except asyncio.IncompleteReadError as error:
                assert error.partial == b""  # noqa: PT017 -- no answer ends halfway
                break
            statuses.append(answer.status)
        await until(lambda: listener.connections == 0)
    assert faults == []
    return seen, statuses


def seen_head(seen: list[Seen], number: int) -> bool:
    return number < len(seen) and seen[number][0] == b"HEAD"


@settings(max_examples=150)
@given(st.lists(requests(), min_size=1, max_size=4), CUTS)
def test_valid_requests_are_seen_alike_however_they_are_cut(
    asked: list[tuple[bytes, Seen]], cuts: list[int]
) -> None:
    wire = b"".join(bytes_sent for bytes_sent, _ in asked)
    expected = [seen for _, seen in asked]
    assert run(served(wire, cuts)) == (expected, [200] * len(asked))


@settings(max_examples=40)
@given(st.lists(requests(), min_size=1, max_size=2))
def test_valid_requests_are_seen_alike_byte_by_byte(asked: list[tuple[bytes, Seen]]) -> None:
    wire = b"".join(bytes_sent for bytes_sent, _ in asked)
    expected = [seen for _, seen in asked]
    assert run(served(wire, list(range(len(wire))))) == (expected, [200] * len(asked))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 12_000), st.integers(0, 700_000)), min_size=1, max_size=3),
    st.lists(st.integers(0, 2_000_000), max_size=6),
)
@example([(0, 262_000), (9_000, 16_300), (0, 3)], [])
def test_large_requests_are_seen_alike_however_they_are_cut(
    sizes: list[tuple[int, int]], cuts: list[int]
) -> None:
    wire, expected = b"", []
    for number, (long_header, length) in enumerate(sizes):
        # No two stretches of a body are alike: one that is put in a wrong place is seen.
        body = b"".join(b"%d.%d " % (number, at) for at in range(length // 8 + 1))[:length]
        headers = [
            (b"Host", b"localhost"),
            (b"X-Long", b"x" * long_header),
            (b"Content-Length", b"%d" % len(body)),
        ]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        wire += b"POST / HTTP/1.1\r\n" + lines + b"\r\n" + body
        expected.append((b"POST", b"/", tuple(headers), body))
    assert run(served(wire, cuts, LimitSettings())) == (expected, [200] * len(sizes))


PIECES = st.sampled_from(
    (
        b"GET / HTTP/1.1\r\n",
        b"POST /a HTTP/1.1\r\n",
        b"HEAD / HTTP/1.1\r\n",
        b"GET / HTTP/1.0\r\n",
        b"GET /\r\n",
        b"GET /\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        HOST,
        HOST,
        b"Content-Length: 5\r\n",
        b"Content-Length: 99999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Connection: upgrade\r\nUpgrade: h2c\r\n",
        b"Expect: 100-continue\r\n",
        b"X: y\r\n",
        b" folded\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b"\0",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"hello",
        b"x" * 2500,
    )
)


@settings(max_examples=300)
@given(
    st.lists(st.one_of(PIECES, PIECES, PIECES, st.binary(max_size=10)), max_size=14).map(b"".join),
    CUTS,
)
@example(b"GET /\nX: HTTP/1.1\r\n" + HOST + b"\r\n", [])
def test_nonsense_is_judged_alike_however_it_is_cut_and_never_hangs_or_harms(
    wire: bytes, cuts: list[int]
) -> None:
    whole, whole_statuses = run(served(wire, []))
    cut, cut_statuses = run(served(wire, cuts))
    assert cut == whole
    # A client that waits with its body is told to go on, and some nonsense is recognised earlier,
    # by another of its faults; but what is refused is refused.
    assert [min(status, 400) for status in cut_statuses if status != 100] == [
        min(status, 400) for status in whole_statuses if status != 100
    ]


@settings(max_examples=60)
@given(requests(), st.integers(0, 5000), st.binary(min_size=1, max_size=3), CUTS)
def test_a_valid_request_with_a_few_bytes_changed_never_hangs_or_harms(
    asked: tuple[bytes, Seen], place: int, change: bytes, cuts: list[int]
) -> None:
    wire, _ = asked
    place %= len(wire)
    changed = wire[:place] + change + wire[place + len(change) :]
    assert run(served(changed, cuts))[0] == run(served(changed, []))[0]
