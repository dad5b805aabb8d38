"""An error of an upstream does not carry the gateway's own key to the caller."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.http1.headers import Headers
from jackline.upstream.bounded_answers import (
    AnswerLimits,
    Blanker,
    BoundedAnswer,
    DecompressionTurns,
)
from tests.planted import KEY
from tests.upstream.loopback import Recorder

OWN = KEY.encode()
SENT: Headers = ((b"x-api-key", OWN), (b"user-agent", b"claude-cli/2.0.0-of-a-client"))
CLIENT: Headers = ((b"x-api-key", b"sk-of-the-caller-0123456789"), SENT[1])


def passed_on(
    body: bytes,
    cuts: list[int] | None = None,
    *,
    status: int = 401,
    sent: Headers = SENT,
    client: Headers = CLIENT,
    repeated: bytes = b"",
) -> Recorder:
    """What reaches the handler of an answer that comes in these pieces."""

    async def main() -> Recorder:
        ear = Recorder()
        answer = BoundedAnswer(
            ear, AnswerLimits(1 << 20, 3600.0), DecompressionTurns(), sent, client
        )
        answer.began(status, [(b"x-note", repeated)])
        edges = [0, *sorted(each % (len(body) + 1) for each in cuts or ()), len(body)]
        for start, end in pairwise(edges):
            answer.received(body[start:end])
        answer.ended()
        await ear.last_word()
        return ear

    return asyncio.run(main())


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 529])
def test_the_own_key_is_blanked_in_an_error(status: int) -> None:
    text = b'{"error":{"message":"invalid key %b (%b...)"}}'
    ear = passed_on(text % (OWN, OWN[:16]), status=status, repeated=b"key=" + OWN)
    assert ear.body == text % (b"*" * len(OWN), b"*" * 16)
    assert ear.headers == [(b"x-note", b"key=" + b"*" * len(OWN))]


def test_a_bearers_scheme_and_what_the_caller_sent_stay() -> None:
    text = b"Bearer refused: sk-of-the-caller-0123456789 claude-cli/2.0.0-of-a-client " + OWN[:15]
    sent = ((b"Authorization", b"Bearer " + OWN), *SENT[1:])
    assert passed_on(text, sent=sent).body == text
    assert passed_on(OWN, client=SENT).body == OWN, "the caller's own key"
    bearer = ((b"Authorization", b"Bearer " + OWN),)
    assert passed_on(OWN, sent=bearer, client=SENT).body == OWN, "in another header"


def test_a_short_key_counts_whole() -> None:
    sent = ((b"x-api-key", b"short-one"),)
    assert passed_on(b"no short-one, short-on", sent=sent).body == b"no *********, short-on"


def test_a_good_answer_passes_as_it_comes() -> None:
    ear = passed_on(b"one" + OWN, [3], status=200)
    assert ear.pieces == [b"one", OWN]


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.tuples(st.integers(0, 60), st.integers(0, 70)).map(lambda at: OWN[at[0] : at[1]]),
        ),
        max_size=6,
    ).map(b"".join),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_no_part_passes_however_the_error_is_cut_and_all_else_does(
    body: bytes, cuts: list[int]
) -> None:
    expected = bytearray(body)
    for at in range(len(body) - 15):
        if body[at : at + 16] in OWN:
            expected[at : at + 16] = b"*" * 16
    assert passed_on(body, cuts).body == expected


def test_an_error_that_is_nothing_but_parts_is_blanked_with_bounded_work() -> None:
    body = (OWN[:20] + b" ") * 12_000
    assert set(passed_on(body).body) == set(b"*")
    blanker = Blanker([OWN])
    blanker.blanked(body)
    assert blanker.hits_left == 0
