"""Events of a few bytes cost as much as large ones: too many of them break an attempt off."""

from __future__ import annotations

import tracemalloc

import pytest

from jackline.calls.continuation import Renumbering, StreamItem
from jackline.calls.stitch import KEPT_BACK, AnthropicStitch, Mode, OpenAiStitch
from jackline.dialects.anthropic_stream import BLOCK_DELTA
from jackline.dialects.json_bounds import MOST_VALUES
from jackline.dialects.neutral.options import AnswerOptions
from jackline.dialects.openai_chat import ChatStreamTranslator
from jackline.dialects.sse import EventSplitter
from tests.dialects.answers import answered, event, text

SLICE = 256 * 1024
TINY = [b"\n\n", b"\r\n\r\n", b":\n\n", b": ping\n\n", b"data:\n\n", b"event: a\n\n"]
START = event("message_start", message={"id": "msg_1", "usage": {}})
CHUNK = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
CREATED = event("response.created", response={"id": "resp_1"})
MODES: tuple[Mode, ...] = ("live", "block")


def stitches(mode: Mode) -> list[AnthropicStitch | OpenAiStitch]:
    """One of each dialect, whose answer has begun."""
    begun: list[AnthropicStitch | OpenAiStitch] = []
    for stitch, begin in (
        (AnthropicStitch(mode), START),
        (OpenAiStitch(mode, responses=False), CHUNK),
        (OpenAiStitch(mode, responses=True), CREATED),
    ):
        stitch.attempt_began()
        stitch.feed(begin)
        assert not stitch.broken
        begun.append(stitch)
    return begun


@pytest.mark.parametrize("tiny", TINY)
@pytest.mark.parametrize("mode", MODES)
def test_a_slice_of_tiny_events_breaks_an_attempt_off(mode: Mode, tiny: bytes) -> None:
    for stitch in stitches(mode):
        stitch.feed(tiny * (SLICE // len(tiny)))
        assert stitch.broken


@pytest.mark.parametrize("tiny", TINY)
def test_a_slice_of_tiny_events_breaks_a_translation_off(tiny: bytes) -> None:
    stream = ChatStreamTranslator(AnswerOptions("claude-x"))
    stream.feed(CHUNK)
    stream.feed(tiny * (SLICE // len(tiny)))
    assert stream.broken


def test_tiny_events_in_packets_of_a_few_kilobytes_are_too_many_as_well() -> None:
    splitter = EventSplitter()
    for _ in range(9):
        splitter.feed(b":\n\n" * 1000)
    with pytest.raises(ValueError, match="too small"):
        splitter.feed(b":\n\n" * 1000)


@pytest.mark.parametrize("tiny", TINY)
def test_signs_of_life_may_come_for_hours(tiny: bytes) -> None:
    """One a second for two hours, which is as long as an answer may take, each in its packet."""
    answer = answered([text("words")])
    stitch = AnthropicStitch("live")
    stitch.attempt_began()
    first, *rest = answer.events
    stitch.feed(first)
    for _ in range(7200):
        stitch.feed(tiny)
    for each in rest:
        stitch.feed(each)
    assert stitch.complete


def test_signs_of_life_that_a_slow_client_let_pile_up_are_read_together() -> None:
    splitter = EventSplitter()
    assert len(splitter.feed(b": ping\n\n" * 3600)) == 3600


@pytest.mark.parametrize("mode", MODES)
def test_what_is_held_takes_about_as_much_memory_as_is_counted(mode: Mode) -> None:
    """Small events that are no deltas, and are kept apart."""

    def held(stitch: AnthropicStitch | OpenAiStitch) -> int:
        small = b"event: something\ndata: {}     \n\n"
        tracemalloc.start()
        try:
            before = most = tracemalloc.get_traced_memory()[0]
            for _ in range(2 * KEPT_BACK // len(small) // 500):
                stitch.feed(small * 500)
                most = max(most, tracemalloc.get_traced_memory()[0])
            return most - before
        finally:
            tracemalloc.stop()

    for stitch in stitches(mode):
        assert held(stitch) < 2 * KEPT_BACK


def test_white_space_that_was_cut_off_is_compared_without_copying_it() -> None:
    """A second attempt repeats a long stretch of it letter by letter."""

    def copied(size: int) -> int:
        renumbering = Renumbering(1, text_open=True, tail=_Counted(" " * size))
        delta = event("content_block_delta", index=0, delta={"type": "text_delta", "text": " " * 8})
        _Counted.letters = 0
        renumbering.translate(
            StreamItem(
                b"content_block_start",
                event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
                "text",
            )
        )
        for _ in range(size // 8):
            renumbering.translate(StreamItem(BLOCK_DELTA, delta, "text"))
        return _Counted.letters

    assert copied(8000) < 8 * copied(2000)


class _Counted(str):
    """Counts the letters that are taken out of it."""

    __slots__ = ()
    letters = 0

    def __getitem__(self, place: object) -> str:
        found = _Counted(str.__getitem__(self, place))  # type: ignore[index]
        _Counted.letters += len(found)
        return found


def test_an_event_of_more_lines_than_any_real_one_breaks_an_attempt_off() -> None:
    for stitch in stitches("live"):
        stitch.feed(b"x\n" * 150_000 + b"\n")
        assert stitch.broken


def test_an_event_of_more_values_than_an_answer_has_is_not_decoded() -> None:
    stitch = OpenAiStitch("live", responses=False)
    stitch.attempt_began()
    stitch.feed(b'data: {"choices":[' + b"{}," * (MOST_VALUES + 1) + b"{}]}\n\n")
    assert stitch.broken
