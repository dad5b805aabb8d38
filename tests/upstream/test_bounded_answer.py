"""An answer is unpacked and bounded on its way to whoever reads it."""

from __future__ import annotations

import asyncio
import gzip
import sys
import zlib
from collections.abc import Callable

import pytest

from jackline.http1.compression import SLICE_BYTES, DecompressionError
from jackline.http1.headers import Headers
from jackline.http1.responses import CutShortError, GarbledError
from jackline.upstream.bounded_answers import (
    FIRST_BYTES,
    LARGEST_ERROR,
    AnswerLimits,
    BoundedAnswer,
    DecompressionTurns,
)
from jackline.upstream.interface import AnswerTooLargeError, AnswerTooLongError
from tests.planted import KEY
from tests.upstream.loopback import Recorder

GZIP = [(b"Content-Type", b"text/plain"), (b"Content-Encoding", b"gzip")]
LIMITS = AnswerLimits(1 << 20, 3600.0)


class Line:
    """An attempt that writes down whether it was hung up on."""

    def __init__(self) -> None:
        self.is_dropped = False

    def hang_up(self) -> None:
        self.is_dropped = True

    def pause(self) -> None:
        """There is nothing to read."""

    resume = pause


def received(
    tell: Callable[[BoundedAnswer], None], limits: AnswerLimits = LIMITS
) -> tuple[Recorder, Line]:
    """What the reader of an answer hears, and what became of the attempt."""

    async def main() -> tuple[Recorder, Line]:
        ear, line = Recorder(), Line()
        bounded = BoundedAnswer(ear, limits, DecompressionTurns())
        bounded.attempt = line
        tell(bounded)
        await ear.last_word()
        await asyncio.sleep(0)
        return ear, line

    return asyncio.run(main())


def test_a_plain_answer_passes_as_it_comes() -> None:
    def tell(answer: BoundedAnswer) -> None:
        answer.began(200, [(b"Content-Length", b"6")])
        answer.received(b"one")
        answer.received(b"two")
        answer.ended()

    ear, line = received(tell)
    assert (ear.status, ear.pieces, ear.words[-1]) == (200, [b"one", b"two"], "ended")
    assert not line.is_dropped


def test_a_packed_answer_is_told_before_its_end_is() -> None:
    plain = b"What was packed. " * 60_000

    def tell(answer: BoundedAnswer) -> None:
        answer.began(200, GZIP)
        answer.received(gzip.compress(plain))
        answer.ended()

    ear, _ = received(tell)
    assert (ear.body, ear.words) == (plain, ["began", "heard", "ended"])
    assert ear.headers == [(b"Content-Type", b"text/plain")]
    assert max(map(len, ear.pieces)) <= 256 * 1024


def test_a_packed_answer_that_is_cut_is_told_so_after_what_came() -> None:
    def tell(answer: BoundedAnswer) -> None:
        answer.began(200, GZIP)
        answer.received(gzip.compress(b"x" * 600_000)[:-4])
        answer.broke(CutShortError())

    ear, _ = received(tell)
    assert len(ear.body) == 600_000
    assert isinstance(ear.error, CutShortError)


@pytest.mark.parametrize(
    "packed", [b"\0no gzip", gzip.compress(b"words")[:-3]], ids=["no gzip", "cut short"]
)
def test_damage_breaks_an_answer_and_ends_an_error(packed: bytes) -> None:
    for status, last in ((200, "broke"), (529, "ended")):

        def tell(answer: BoundedAnswer, status: int = status) -> None:
            answer.began(status, GZIP)
            answer.received(packed)
            answer.ended()

        ear, line = received(tell)
        assert ear.words[-1] == last
        assert line.is_dropped
        assert status == 529 or isinstance(ear.error, DecompressionError)


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_answer_beyond_its_size_is_broken_off_and_an_error_is_cut(is_packed: bool) -> None:
    plain = b"x" * (2 << 20)
    for status in (200, 404):

        def tell(answer: BoundedAnswer, status: int = status) -> None:
            answer.began(status, GZIP if is_packed else [])
            answer.received(gzip.compress(plain) if is_packed else plain)
            answer.ended()

        ear, line = received(tell)
        assert line.is_dropped
        if status == 200:
            assert isinstance(ear.error, AnswerTooLargeError)
        else:
            assert (ear.words[-1], len(ear.body)) == ("ended", LARGEST_ERROR)


def test_an_answer_beyond_its_time_is_broken_off() -> None:
    def tell(answer: BoundedAnswer) -> None:
        answer.began(200, [])
        answer.received(b"one")

    ear, line = received(tell, AnswerLimits(1 << 20, -1.0))
    assert isinstance(ear.error, AnswerTooLongError)
    assert line.is_dropped


@pytest.mark.parametrize("fails_at", ["began", "heard", "ended"])
@pytest.mark.parametrize("headers", [[], GZIP], ids=["plain", "packed"])
def test_when_its_reader_fails_an_answer_is_broken(
    fails_at: str, headers: list[tuple[bytes, bytes]]
) -> None:
    class Failing(Recorder):
        def began(self, status: int, headers: Headers) -> None:
            super().began(status, headers)
            self._fail("began")

        def received(self, data: bytes) -> None:
            super().received(data)
            self._fail("heard")

        def ended(self) -> None:
            self._fail("ended")
            super().ended()

        def _fail(self, at: str) -> None:
            if at == fails_at:
                raise OverflowError("made by this test")

    async def main() -> None:
        ear, line = Failing(), Line()
        answer = BoundedAnswer(ear, LIMITS, DecompressionTurns())
        answer.attempt = line
        answer.began(200, headers)
        answer.received(gzip.compress(b"one") if headers else b"one")
        answer.ended()
        await asyncio.wait_for(ear.last_word(), 10)
        assert isinstance(ear.error, GarbledError)
        assert "OverflowError" in str(ear.error)
        assert line.is_dropped

    asyncio.run(main())


def test_no_turn_of_the_loop_unpacks_more_than_one_large_slice_of_all_answers() -> None:
    """However many answers come packed at once: others are served between two slices."""

    async def main() -> list[int]:
        turns, packed = DecompressionTurns(), gzip.compress(b"x" * (1 << 20))
        ears = [Recorder() for _ in range(6)]
        for ear in ears:
            answer = BoundedAnswer(ear, AnswerLimits(4 << 20, 3600.0), turns)
            answer.began(200, GZIP)
            answer.received(packed)
            answer.ended()
        at_once = sum(len(ear.body) for ear in ears)
        assert at_once <= len(ears) * FIRST_BYTES
        told, grown = at_once, []
        while told < len(ears) << 20:
            await asyncio.sleep(0)
            now = sum(len(ear.body) for ear in ears)
            grown.append(now - told)
            told = now
        for ear in ears:
            await ear.last_word()
            assert ear.words[-1] == "ended"
        return grown

    assert max(asyncio.run(main())) <= SLICE_BYTES


def test_an_answer_that_is_hung_up_on_gives_its_turn_away() -> None:
    async def main() -> None:
        turns, packed = DecompressionTurns(), gzip.compress(b"x" * (1 << 20))
        gone, ear = Recorder(), Recorder()
        first = BoundedAnswer(gone, AnswerLimits(FIRST_BYTES + 1, 3600.0), turns)
        second = BoundedAnswer(ear, AnswerLimits(4 << 20, 3600.0), turns)
        for answer in (first, second):
            answer.began(200, GZIP)
            answer.received(packed)
            answer.ended()
        await gone.last_word()
        await ear.last_word()
        assert isinstance(gone.error, AnswerTooLargeError)
        assert len(ear.body) == 1 << 20

    asyncio.run(main())


def test_small_packets_are_told_at_once() -> None:
    """Words of a stream wait for no turn."""

    async def main() -> None:
        ear = Recorder()
        answer = BoundedAnswer(ear, LIMITS, DecompressionTurns())
        answer.began(200, GZIP)
        packing = zlib.compressobj(wbits=31)
        for word in (b"one", b"two", b"three"):
            answer.received(packing.compress(word) + packing.flush(zlib.Z_SYNC_FLUSH))
            assert ear.pieces[-1] == word
        answer.received(packing.flush())
        answer.ended()
        await ear.last_word()
        assert ear.words[-1] == "ended"

    asyncio.run(main())


IDS = [
    b"request-id",
    b"x-request-id",
    b"X-Request-ID",
    b"apim-request-id",
    b"x-ms-request-id",
    b"x-amzn-requestid",
    b"x-amzn-request-id",
    b"x-amz-request-id",
    b"x-goog-request-id",
    b"x-correlation-id",
    b"x-trace-id",
    b"cf-ray",
]


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize(
    ("value", "is_kept"), [(b"a09ddee54e2fbedb-FRA", True), (b"req_" + KEY.encode(), False)]
)
def test_an_id_under_any_name_is_left_out_if_it_repeats_a_credential(
    name: bytes, value: bytes, is_kept: bool
) -> None:
    async def main() -> Recorder:
        ear = Recorder()
        sent = [(b"x-api-key", KEY.encode())]
        bounded = BoundedAnswer(ear, LIMITS, DecompressionTurns(), sent)
        bounded.began(200, [(b"Content-Type", b"text/plain"), (name, value)])
        bounded.ended()
        await ear.last_word()
        return ear

    names = [each for each, _ in asyncio.run(main()).headers]
    assert names == ([b"Content-Type", name] if is_kept else [b"Content-Type"])


# As much as a caller's head may hold, of short words; and ids that share most of each of them.
WORDS = b" ".join(b"w%05x" % number for number in range(8_900))
LONG_ID = b"w0" * 64


@pytest.mark.parametrize("ids", [1, 15, 500])
def test_the_work_for_ids_does_not_multiply_what_caller_and_upstream_send(ids: int) -> None:
    """Counted in calls of functions: 2,300,000 for one id before."""
    steps = 0

    def count(*_event: object) -> None:
        nonlocal steps
        steps += 1

    async def main() -> Recorder:
        ear = Recorder()
        sent = [(b"x-my-token", WORDS)]
        bounded = BoundedAnswer(ear, LIMITS, DecompressionTurns(), sent)
        headers = [(b"x-request-id", LONG_ID)] * ids
        sys.setprofile(count)
        try:
            bounded.began(200, headers)
        finally:
            sys.setprofile(None)
        bounded.ended()
        await ear.last_word()
        return ear

    assert list(asyncio.run(main()).headers) == []  # what is too large to compare is not kept
    assert steps < 20 * ids + 1_000


def test_of_many_ids_the_first_are_kept() -> None:
    def tell(answer: BoundedAnswer) -> None:
        answer.began(200, [(name, b"a09ddee54e2fbedb-FRA") for name in IDS[3:]])
        answer.ended()

    ear, _ = received(tell)
    assert [name for name, _ in ear.headers] == IDS[3:7]
