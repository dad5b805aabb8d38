"""What all answers under way hold together is counted, and has a limit."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.calls.stitch import AnthropicStitch, OpenAiStitch
from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.openai_chat import ChatStreamTranslator
from jackline.providers.bedrock import BedrockStream
from jackline.testing.scripted_upstream import STREAMED
from jackline.upstream.bounded_answers import (
    STEP,
    AnswerLimits,
    BoundedAnswer,
    DecompressionTurns,
    HeldAnswers,
)
from jackline.upstream.interface import AnswersTooLargeError
from tests.upstream.loopback import Recorder

KILOBYTE = 1024
PIECE = 200 * KILOBYTE
ANSWERS = 6
PLAIN = [(b"content-type", b"application/json")]
PACKED = [*PLAIN, (b"content-encoding", b"gzip")]
NO_LIMIT = AnswerLimits(1 << 30, 3600.0)
BEGIN = STREAMED[: STREAMED.index(b"event: content_block_start")]


class Keeping(Recorder):
    """Keeps what it hears."""

    def received(self, data: bytes) -> None:
        super().received(data)
        self.held += len(data)


def answers_of(everything: HeldAnswers, ears: list[Keeping]) -> list[BoundedAnswer]:
    """One for each ear, every other one packed."""
    turns, answers = DecompressionTurns(), []
    for at, ear in enumerate(ears):
        answer = BoundedAnswer(ear, NO_LIMIT, turns, all_held=everything)
        answer.began(200, PACKED if at % 2 else PLAIN)
        answers.append(answer)
    return answers


class Scene:
    """Some answers, every other one packed, and what has become of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.everything = HeldAnswers(most)
        self.ears = [Keeping() for _ in range(ANSWERS)]
        self.answers = answers_of(self.everything, self.ears)
        self.ended = set[int]()
        self.dropped = set[int]()

    async def do(self, at: int, word: str, size: int) -> None:
        ear, answer = self.ears[at], self.answers[at]
        if at in self.ended or at in self.dropped or ear.over.is_set():
            return
        if word == "piece":
            data = b"x" * size
            answer.received(gzip.compress(data, 1) if at % 2 else data)
        elif word == "lets go":
            ear.held //= 2
        elif word == "hang up":
            answer.hang_up()
            self.dropped.add(at)
        elif word == "turn":
            await asyncio.sleep(0)
        else:
            self.ended.add(at)
            if word == "ended":
                answer.ended()
            else:
                answer.broke(ConnectionResetError("reset"))

    def check(self) -> None:
        going_on = [
            each.held
            for at, each in enumerate(self.ears)
            if at not in self.dropped and not each.over.is_set()
        ]
        assert sum(going_on) <= self.everything.total + ANSWERS * STEP
        if sum(size >= 2 * STEP for size in going_on) > 1:
            assert self.everything.total <= self.most

    async def end(self) -> None:
        for at, ear in enumerate(self.ears):
            await self.do(at, "broke", 0)
            if at not in self.dropped:
                await ear.over.wait()
            ends = sum(word in ("ended", "broke") for word in ear.words)
            assert ends == (at not in self.dropped)
        assert self.everything.total == 0


@given(
    told=st.lists(
        st.tuples(
            st.integers(0, ANSWERS - 1),
            st.sampled_from(["piece", "piece", "lets go", "ended", "broke", "hang up", "turn"]),
            st.integers(0, PIECE),
        ),
        max_size=60,
    ),
    most=st.integers(64 * KILOBYTE, 1024 * KILOBYTE),
)
def test_the_count_stays_within_its_limit_and_returns_to_zero(
    told: list[tuple[int, str, int]], most: int
) -> None:
    async def main() -> None:
        scene = Scene(most)
        for at, word, size in told:
            await scene.do(at, word, size)
            scene.check()
        await scene.end()

    asyncio.run(main())


def test_the_largest_answer_goes_and_the_others_go_on() -> None:
    async def main() -> None:
        everything, ears = HeldAnswers(100 * KILOBYTE), [Keeping() for _ in range(3)]
        small, large, last = (
            BoundedAnswer(each, NO_LIMIT, DecompressionTurns(), all_held=everything)
            for each in ears
        )
        for answer, size in ((small, 20), (large, 60), (last, 40)):
            answer.began(200, PLAIN)
            answer.received(b"x" * size * KILOBYTE)
        assert [each.words[-1] for each in ears] == ["heard", "broke", "heard"]
        assert isinstance(ears[1].error, AnswersTooLargeError)
        assert everything.total == 60 * KILOBYTE

    asyncio.run(main())


def test_an_answer_that_alone_holds_anything_is_not_broken_off() -> None:
    async def main() -> None:
        everything, ears = HeldAnswers(100 * KILOBYTE), [Keeping() for _ in range(2)]
        first, second = answers_of(everything, ears)
        first.received(b"x" * 500 * KILOBYTE)
        second.received(gzip.compress(b"x" * KILOBYTE))
        assert ears[0].words[-1] == "heard"
        first.ended()
        assert ears[0].words[-1] == "ended"
        assert everything.total == 0

    asyncio.run(main())


def test_what_is_not_decompressed_yet_is_counted() -> None:
    async def main() -> None:
        everything, ear = HeldAnswers(), Recorder()
        answer = BoundedAnswer(ear, NO_LIMIT, DecompressionTurns(), all_held=everything)
        answer.began(200, PACKED)
        answer.received(gzip.compress(b"x" * (1 << 20)))
        answer.received(bytes(1 << 20))
        assert everything.total == 1 << 20
        answer.hang_up()
        assert everything.total == 0

    asyncio.run(main())


def test_nothing_is_decompressed_for_a_reader_that_has_asked_for_a_pause() -> None:
    """Else a slow client's connection would hold what few bytes unpack to."""

    async def main() -> None:
        ear = Recorder()
        answer = BoundedAnswer(ear, NO_LIMIT, DecompressionTurns())
        answer.began(200, PACKED)
        answer.pause()
        answer.received(gzip.compress(b"x" * (1 << 22)))
        answer.ended()
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(ear.body) < 1 << 20
        answer.resume()
        await ear.over.wait()
        assert (len(ear.body), ear.words[-1]) == (1 << 22, "ended")

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["anthropic", "openai-chat", "openai-responses"])
def test_a_stitch_counts_its_unfinished_event_and_drops_it_with_the_attempt(kind: str) -> None:
    stitch: AnthropicStitch | OpenAiStitch = (
        AnthropicStitch("block")
        if kind == "anthropic"
        else OpenAiStitch("block", responses=kind == "openai-responses")
    )
    stitch.attempt_began()
    stitch.feed(BEGIN)
    before = stitch.held
    stitch.feed(b'data: {"type":"' + b"x" * (1 << 20))
    assert stitch.held >= before + (1 << 20)
    stitch.broke()
    assert stitch.held == 0


@pytest.mark.parametrize("kind", ["anthropic", "openai-chat", "openai-responses"])
def test_a_call_that_waits_keeps_no_error_of_the_attempt_before(kind: str) -> None:
    stitch: AnthropicStitch | OpenAiStitch = (
        AnthropicStitch("block")
        if kind == "anthropic"
        else OpenAiStitch("block", responses=kind == "openai-responses")
    )
    stitch.attempt_began()
    error = b'{"type":"error","error":{"type":"overloaded_error","message":"%b"}}'
    stitch.feed(b"event: error\ndata: " + error % (b"x" * (1 << 20)) + b"\n\n")
    assert stitch.error_event is not None
    stitch.broke()
    assert stitch.error_event is None


@pytest.mark.parametrize("stream", [BedrockStream(), ChatStreamTranslator(AnswerOptions("m"))])
def test_a_translation_counts_what_it_cannot_translate_yet(
    stream: BedrockStream | ChatStreamTranslator,
) -> None:
    stream.feed((1 << 22).to_bytes(4, "big") + b"x" * 3)
    assert stream.held == 7
