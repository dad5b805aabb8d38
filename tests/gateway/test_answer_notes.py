"""What the gateway tells of an answer, written as header lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jackline.gateway.own_answers import new_call_id, note_lines, request_id, with_note_headers


@given(st.text(max_size=40), st.booleans())
def test_no_name_of_a_lane_can_begin_a_line_of_its_own(lane: str, names_it: bool) -> None:
    lines = note_lines("jl_1", lane, 1, 0.5, names_it=names_it)
    assert lines.endswith(b"\r\n")
    told = lines.split(b"\r\n")[:-1]
    assert len(told) == 4 + names_it
    assert not any(b"\r" in line or b"\n" in line or b"\0" in line for line in told)


@given(st.integers(0, 99), st.floats(-1, 1e6), st.booleans())
def test_the_lines_say_what_the_headers_say(attempts: int, waited: float, named: bool) -> None:
    given_headers = [(b"Request-Id", b"req_1")] if named else []
    headers = with_note_headers(given_headers, "jl_1", "first/m", attempts, waited)
    lines = note_lines("jl_1", "first/m", attempts, waited, names_it=not named)
    assert request_id(headers) == ("req_1" if named else "jl_1")
    ours = headers[len(given_headers) :]
    assert lines == b"".join(b"%b: %b\r\n" % pair for pair in ours)


def test_no_two_calls_have_the_same_name() -> None:
    names = [new_call_id() for _ in range(1000)]
    assert len(set(names)) == len(names)
    # All of one process are alike in their first part: another one's differ from them there.
    assert len({name[:11] for name in names}) == 1
