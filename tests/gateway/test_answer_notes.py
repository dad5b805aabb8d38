"""What the gateway tells of an answer, written as header lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.gateway.call_intake import new_call_id
from jackline.gateway.own_answers import (
    ASK_AGAIN,
    note_lines,
    request_id,
    without_note_headers,
)


@given(st.text(max_size=40), st.booleans())
def test_no_name_of_a_lane_can_begin_a_line_of_its_own(lane: str, names_it: bool) -> None:
    lines = note_lines("jl_1", lane, 1, 0.5, names_it=names_it)
    assert lines.endswith(b"\r\n")
    told = lines.split(b"\r\n")[:-1]
    assert len(told) == 4 + names_it
    assert not any(b"\r" in line or b"\n" in line or b"\0" in line for line in told)


@given(st.integers(0, 99), st.floats(-1, 1e6), st.booleans())
def test_the_lines_are_our_headers(attempts: int, waited: float, named: bool) -> None:
    headers = [(b"Request-Id", b"req_1")] if named else []
    assert request_id(headers) == ("req_1" if named else None)
    lines = note_lines("jl_1", "first/m", attempts, waited, names_it=not named)
    ours = {
        **({} if named else {b"request-id": b"jl_1"}),
        b"x-jackline-call": b"jl_1",
        b"x-jackline-lane": b"first/m",
        b"x-jackline-attempts": b"%d" % attempts,
        b"x-jackline-waited": b"%.3f" % max(0.0, waited),
    }
    assert lines == b"".join(b"%b: %b\r\n" % pair for pair in ours.items())


def test_no_upstream_says_what_only_the_gateway_may_say() -> None:
    theirs = [(b"X-Jackline-Again", b"true"), ASK_AGAIN, (b"x-jackline-lane", b"l"), (b"a", b"b")]
    assert without_note_headers(theirs) == [(b"a", b"b")]


def test_no_two_calls_have_the_same_name() -> None:
    names = [new_call_id() for _ in range(1000)]
    assert len(set(names)) == len(names)
    # All of one process are alike in their first part: another one's differ from them there.
    assert len({name[:11] for name in names}) == 1
