"""A request that comes in one packet, behind a head that came before, is read as any other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.gateway.settings import LimitSettings
from jackline.http1.requests import Packet, RequestParser, RequestStage

LIMITS = LimitSettings(headers=2000, body=1000)
BODY = st.binary(max_size=300)


def wire(body: bytes, *, name: bytes = b"Content-Length", session: bytes = b"s1") -> bytes:
    lines = b"Host: x\r\nX-Session: %b\r\n%b: %d\r\nX-Last: y" % (session, name, len(body))
    return b"POST /v1/messages HTTP/1.1\r\n%b\r\n\r\n%b" % (lines, body)


def reader_after(first: bytes) -> RequestParser:
    reader = RequestParser(LIMITS.headers, LIMITS.body)
    reader.feed(first)
    reader.take()
    return reader


@given(BODY, BODY, st.booleans())
def test_the_short_way_reads_what_the_long_way_reads(
    first: bytes, second: bytes, as_view: bool
) -> None:
    data: Packet = memoryview(wire(second)) if as_view else wire(second)
    at_once = reader_after(wire(first)).at_once(data)
    long_way = reader_after(wire(first))
    assert long_way.feed(wire(second)) == b""
    head, body = long_way.take()
    assert at_once is not None
    assert (at_once[0].headers, at_once[0].length) == (head.headers, head.length)
    assert (at_once[0].by_name, at_once[1]) == (head.by_name, body)


@given(BODY, st.integers(-400, 400))
def test_only_a_packet_that_is_one_whole_request_is_read_at_once(body: bytes, more: int) -> None:
    whole = wire(body)
    cut = whole[:more] if more < 0 else whole + b"P" * more
    assert (reader_after(whole).at_once(cut) is not None) == (cut == whole)


def test_another_head_is_read_in_full() -> None:
    assert reader_after(wire(b"1")).at_once(wire(b"1", session=b"s2")) is None
    assert reader_after(wire(b"1", session=b"s1")).at_once(wire(b"1", session=b"s12")) is None


def test_the_first_request_and_one_that_has_begun_are_read_in_full() -> None:
    assert RequestParser(LIMITS.headers, LIMITS.body).at_once(wire(b"1")) is None
    begun = reader_after(wire(b"1"))
    begun.feed(wire(b"12345")[:-2])
    assert begun.stage is RequestStage.BODY
    assert begun.at_once(wire(b"1")) is None


def test_a_body_above_the_limit_is_left_to_the_reader_that_refuses_it() -> None:
    assert reader_after(wire(b"1")).at_once(wire(b"x" * 1001)) is None
    assert reader_after(wire(b"1")).at_once(wire(b"x" * 1000)) is not None


def test_a_length_that_is_no_plain_number_is_left_to_the_reader_that_refuses_it() -> None:
    for digits in (b"", b"+1", b"1 ", b"1_0", b"\xb9", b"9" * 30):
        odd = wire(b"1").replace(b": 1\r", b": %b\r" % digits)
        assert reader_after(wire(b"1")).at_once(odd) is None
