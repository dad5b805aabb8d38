"""A client never takes a broken answer for a whole one, wherever the upstream's bytes are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.calls.stitch import (
    KEPT_BACK,
    AnthropicStitch,
    AskAgain,
    BreakOff,
    Close,
    Continue,
    Mode,
    Repair,
)
from jackline.dialects import TokenUsage
from tests.dialects.answers import (
    ANSWERS,
    FOUND,
    OTHER,
    PING,
    SEARCH,
    Answered,
    answered,
    event,
    text,
    thinking,
    tool,
)
from tests.dialects.strict_client import StrictClient

MODES: tuple[Mode, ...] = ("live", "block")
OVERLOADED = {"type": "overloaded_error", "message": "Overloaded"}

pytestmark = pytest.mark.filterwarnings("error")
names = st.sampled_from(sorted(ANSWERS))
modes = st.sampled_from(MODES)


def rest_of(answer: Answered, prefill: str) -> Answered:
    """What a model that was given the beginning of this answer says after it."""
    left: list[dict[str, Any]] = []
    skip = len(prefill)
    for block in answer.blocks:
        if block["type"] == "text":
            words = block["text"][skip:]
            skip = max(0, skip - len(block["text"]))
            if words.strip():
                left.append(text(words))
        else:
            assert skip == 0
            left.append(block)
    return answered(left, answer.stop_reason, id="msg_rest")


def words(blocks: list[dict[str, Any]]) -> str:
    return "".join(block.get("text", "") for block in blocks)


def others(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for block in blocks if block["type"] != "text"]


def check_shortened(client: StrictClient, answer: Answered) -> None:
    """A closed turn is a true beginning of the answer in which a tool has been started."""
    assert client.complete
    assert client.stop_reason == "tool_use"
    assert client.tools_started
    last = len(client.blocks) - 1
    assert client.blocks[:last] == answer.blocks[:last]
    given, whole = client.blocks[last], answer.blocks[last]
    if given != whole:
        assert given["type"] == "text"
        assert given["text"].strip()
        assert whole["text"].startswith(given["text"])


def repaired(
    stitch: AnthropicStitch, client: StrictClient, answer: Answered, repair: Repair
) -> None:
    """Do what the repair says, and check what the client has in the end."""
    match repair:
        case AskAgain():
            assert client.id is None
            assert not stitch.delivered
            stitch.attempt_began()
            out = stitch.feed(OTHER.stream)
            assert out == OTHER.stream
            client.read(out)
            assert client.complete
            assert client.blocks == OTHER.blocks
        case Close(data, shortened):
            client.read(data)
            assert stitch.complete
            if shortened:
                check_shortened(client, answer)
            else:
                assert client.complete
                assert client.blocks == answer.blocks
                assert client.stop_reason == answer.stop_reason
        case Continue(told):
            assert words(client.blocks) == told
            prefill = told.rstrip()
            stitch.continue_with(prefill)
            stitch.attempt_began()
            client.read(stitch.feed(rest_of(answer, prefill).stream))
            assert client.complete
            assert stitch.complete
            assert words(client.blocks).rstrip() == words(answer.blocks).rstrip()
            assert others(client.blocks) == others(answer.blocks)
            assert client.stop_reason == answer.stop_reason
        case BreakOff():
            assert not client.complete
            assert not stitch.complete


def broken_at(cut: int, answer: Answered, mode: Mode, more: bytes = b"") -> Repair | None:
    """Cut the upstream's bytes, repair, and judge; None when nothing was missing."""
    stitch, client = AnthropicStitch(mode), StrictClient()
    stitch.attempt_began()
    client.read(stitch.feed(answer.stream[:cut]))
    client.read(stitch.feed(more))
    if stitch.complete:
        assert client.complete
        assert client.blocks == answer.blocks
        return None
    assert not client.complete
    repair = stitch.broke()
    repaired(stitch, client, answer, repair)
    return repair


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ANSWERS)
def test_no_cut_makes_a_false_turn(name: str, mode: Mode) -> None:
    answer = ANSWERS[name]
    seen = {type(broken_at(cut, answer, mode)) for cut in range(len(answer.stream) + 1)}
    assert AskAgain in seen
    assert type(None) in seen
    if mode == "block":
        # Every break is repaired without the client.
        assert not seen & {BreakOff, Continue}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ANSWERS)
def test_no_error_event_makes_a_false_turn_or_is_passed_on(name: str, mode: Mode) -> None:
    answer = ANSWERS[name]
    error = event("error", error=OVERLOADED)
    at = 0
    for one in answer.events[:-1]:
        at += len(one)
        repair = broken_at(at, answer, mode, error)
        assert repair is not None
        assert repair != Close(b"", shortened=False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ANSWERS)
def test_an_undisturbed_answer_passes_byte_for_byte(name: str, mode: Mode) -> None:
    answer = ANSWERS[name]
    stitch = AnthropicStitch(mode)
    stitch.attempt_began()
    out = b"".join(stitch.feed(answer.stream[at : at + 1]) for at in range(len(answer.stream)))
    assert out == answer.stream
    assert stitch.complete
    assert stitch.usage.input_tokens == 11
    assert stitch.usage.output_tokens == 42
    assert stitch.usage.cache_read_tokens == 5
    assert stitch._reader.stop_reason == answer.stop_reason


@given(name=names, mode=modes, data=st.data())
def test_chunks_change_nothing(name: str, mode: Mode, data: st.DataObject) -> None:
    stream = ANSWERS[name].stream
    end = data.draw(st.integers(0, len(stream)))
    cuts = sorted(data.draw(st.lists(st.integers(0, end), max_size=12)))
    at_once, in_pieces = AnthropicStitch(mode), AnthropicStitch(mode)
    whole = at_once.feed(stream[:end])
    pieces = [in_pieces.feed(stream[a:b]) for a, b in zip([0, *cuts], [*cuts, end], strict=True)]
    assert b"".join(pieces) == whole
    assert at_once.complete == in_pieces.complete
    assert at_once.broke() == in_pieces.broke()


blocks = st.one_of(
    st.text(max_size=20).map(text),
    st.text(max_size=20).map(thinking),
    st.integers().map(lambda n: tool(f"T{n}", n=n, words="ö" * (n % 5))),
    st.sampled_from([SEARCH, FOUND]),
)


@given(content=st.lists(blocks, max_size=5), mode=modes, data=st.data())
def test_no_content_cut_several_times_makes_a_false_turn(
    content: list[dict[str, Any]], mode: Mode, data: st.DataObject
) -> None:
    """Attempt after attempt breaks; whatever is continued goes on where it broke."""
    answer = answered(content)
    stitch, client = AnthropicStitch(mode), StrictClient()
    attempt = answer
    for _ in range(3):
        stitch.attempt_began()
        cut = data.draw(st.integers(0, len(attempt.stream)))
        client.read(stitch.feed(attempt.stream[:cut]))
        if stitch.complete:
            break
        repair = stitch.broke()
        match repair:
            case AskAgain():
                assert client.id is None
            case Continue(told):
                prefill = told.rstrip()
                stitch.continue_with(prefill)
                attempt = rest_of(answer, prefill)
            case Close(closing, shortened):
                client.read(closing)
                if shortened:
                    assert client.tools_started
                break
            case BreakOff():
                assert not client.complete
                return
    assert client.complete == stitch.complete
    if client.complete:
        assert words(answer.blocks).startswith(words(client.blocks).rstrip())
        given = others(client.blocks)
        assert given == others(answer.blocks)[: len(given)]


ODD_EVENTS = [
    *answered([text("a"), tool("T", x=1), thinking("t")]).events,
    PING,
    event("content_block_stop", index=7),
    event("content_block_delta", index=1, delta={"type": "text_delta", "text": "x"}),
    event("content_block_start", index=2, content_block={"type": "tool_use"}),
    event("message_delta", delta={"stop_reason": None}, usage={"output_tokens": None}),
    event("message_delta", delta={"stop_reason": "end_turn"}, usage="much"),
    event("from_the_future", x=1),
    b": a comment\n\n",
    b"\n\n",
    b"data: no name\n\n",
    b"event: content_block_start\ndata: {\n\n",
    b"event: message_stop\n\n",
    b"event: message_start\ndata: [1]\n\n",
    b"event: content_block_delta\ndata: \xff\n\n",
]


class CarefulClient(StrictClient):
    """Passes over what every client passes over: comments, events without name, unknown ones."""

    def read(self, data: bytes) -> None:
        known = [b"event: " + name for name in (b"message", b"content", b"error", b"ping")]
        parts = [part for part in data.split(b"\n\n") if any(part.startswith(k) for k in known)]
        super().read(b"".join(part + b"\n\n" for part in parts))


@given(events=st.lists(st.sampled_from(ODD_EVENTS), max_size=16), mode=modes)
def test_odd_orders_of_events_never_raise_and_never_reach_the_client_out_of_order(
    events: list[bytes], mode: Mode
) -> None:
    stitch, client = AnthropicStitch(mode), CarefulClient()
    for one in [ODD_EVENTS[0], *events]:
        client.read(stitch.feed(one))
    assert client.complete == stitch.complete
    if not stitch.complete:
        repair = stitch.broke()
        if isinstance(repair, Close):
            client.read(repair.data)
            assert client.complete


@given(junk=st.binary(max_size=300), mode=modes)
def test_junk_never_raises_and_is_asked_again(junk: bytes, mode: Mode) -> None:
    stitch = AnthropicStitch(mode)
    stitch.feed(junk)
    assert not stitch.delivered
    assert stitch.broke() == AskAgain()


NEXT_BLOCK = [
    event("content_block_start", index=2, content_block={"type": "text", "text": ""}),
    event("content_block_stop", index=2),
]
OTHER_DELTA = event("content_block_delta", index=1, delta={"type": "text_delta", "text": "x"})
OTHER_STOP = event("content_block_stop", index=1)
BEFORE = answered([text("Hello"), tool("T", x=1)], "tool_use").events


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*BEFORE[:-2], BEFORE[-1]], id="message_stop without message_delta"),
        pytest.param([*BEFORE[:-3], *BEFORE[-2:]], id="a block left open"),
        pytest.param([BEFORE[0], *BEFORE], id="a second message_start"),
        pytest.param([BEFORE[0], *BEFORE[5:]], id="indexes that begin with 1"),
        pytest.param(BEFORE[1:], id="no message_start"),
        pytest.param([*BEFORE[:-1], *NEXT_BLOCK, BEFORE[-1]], id="content after the stop reason"),
        pytest.param([*BEFORE[:3], OTHER_DELTA, *BEFORE[3:]], id="a delta of another block"),
        pytest.param([*BEFORE[:4], OTHER_DELTA, *BEFORE[4:]], id="a late delta of another block"),
        pytest.param([*BEFORE[:3], OTHER_STOP, *BEFORE[5:]], id="the end of another block"),
    ],
)
def test_an_answer_that_is_not_in_order_is_broken(events: list[bytes], mode: Mode) -> None:
    stitch = AnthropicStitch(mode)
    out = b"".join(stitch.feed(one) for one in events)
    assert stitch.broken
    assert not stitch.complete
    assert b"message_stop" not in out


def test_what_comes_after_message_stop_is_dropped() -> None:
    answer = ANSWERS["text"]
    stitch = AnthropicStitch("live")
    assert stitch.feed(answer.stream + OTHER.stream) == answer.stream
    assert stitch.feed(OTHER.stream) == b""
    assert stitch.broke() == Close(b"", shortened=False)


def test_live_keeps_only_the_head_back_until_content_begins() -> None:
    start, *more = ANSWERS["text"].events
    stitch = AnthropicStitch("live")
    assert stitch.feed(start) == b""
    assert stitch.feed(PING) == b""
    assert stitch.feed(more[0]) == start + PING + more[0]
    assert stitch.feed(more[1]) == more[1]
    assert stitch.feed(more[2]) == more[2]


def test_a_comment_in_front_of_a_delta_changes_nothing_wherever_it_is_cut() -> None:
    events = ANSWERS["text"].events
    before, after = b"".join(events[:4]), b"".join(events[5:])
    commented = b": a comment\n" + events[4]
    for cut in range(len(commented)):
        stitch = AnthropicStitch("live", keeps_text=False)
        stitch.feed(before)
        assert stitch.feed(commented[:cut]) + stitch.feed(commented[cut:]) == commented
        assert stitch.feed(after) == after


def test_the_end_of_a_live_message_waits_for_its_message_stop() -> None:
    """Else an error after the stop reason would leave the client with a turn that looks ended."""
    *events, delta, stop = ANSWERS["text and a tool"].events
    stitch = AnthropicStitch("live")
    assert stitch.feed(b"".join(events)) == b"".join(events)
    assert stitch.feed(delta) == b""
    assert stitch.feed(PING) == b""
    assert stitch.feed(stop) == delta + PING + stop


def test_block_mode_lets_texts_go_with_the_tool_that_follows() -> None:
    answer = ANSWERS["text and a tool"]
    stitch = AnthropicStitch("block")
    outs = [stitch.feed(one) for one in answer.events]
    went = [index for index, out in enumerate(outs) if out]
    assert went == [len(answer.events) - 3, len(answer.events) - 1]


@pytest.mark.parametrize("mode", MODES)
def test_only_a_missing_message_stop_is_added(mode: Mode) -> None:
    """The vendor has said why the model stopped: to ask again would pay twice for the same."""
    answer = ANSWERS["text"]
    stitch, client = AnthropicStitch(mode), StrictClient()
    client.read(stitch.feed(b"".join(answer.events[:-1])))
    repair = stitch.broke()
    assert isinstance(repair, Close)
    assert not repair.shortened
    client.read(repair.data)
    assert client.blocks == answer.blocks


@pytest.mark.parametrize("mode", MODES)
def test_an_error_after_the_stop_reason_is_believed(mode: Mode) -> None:
    answer = ANSWERS["text"]
    stitch = AnthropicStitch(mode)
    stitch.feed(b"".join(answer.events[:-1]) + event("error", error=OVERLOADED))
    assert stitch.error_event is not None
    assert json.loads(stitch.error_event)["error"] == OVERLOADED
    assert not isinstance(stitch.broke(), Close)


def test_live_text_stays_open_until_it_is_known_what_follows() -> None:
    """A client asks again when a block is open, and gives up on complete text (F12b, F12f)."""
    events = answered([text("Let me look."), tool("T", x=1), text("Done.")], pings=False).events
    stitch, client = AnthropicStitch("live", keeps_text=False), StrictClient()
    after_end_of_block = []
    for one in events:
        client.read(stitch.feed(one))
        if b"event: content_block_stop" in one:
            after_end_of_block.append((len(client.blocks), client.open))
    assert after_end_of_block == [(1, True), (2, False), (3, True)]
    assert client.complete


def live_cut_after(content: list[dict[str, Any]], events_left_out: int) -> Repair:
    stitch = AnthropicStitch("live")
    for one in answered(content, pings=False).events[:-events_left_out]:
        stitch.feed(one)
    return stitch.broke()


def test_after_a_tool_open_words_are_closed_but_nothing_else_that_is_open() -> None:
    first = tool("T", x=1)
    # Left out: message_stop, message_delta, content_block_stop, and one delta where there are two.
    assert isinstance(live_cut_after([first, text("Some words")], 3), Close)
    assert isinstance(live_cut_after([first, text("   ")], 3), BreakOff)
    assert isinstance(live_cut_after([first, text("")], 3), BreakOff)
    assert isinstance(live_cut_after([first, thinking("Hm")], 4), BreakOff)
    assert isinstance(live_cut_after([first, tool("U", x=1)], 4), Close)
    assert isinstance(live_cut_after([first, SEARCH], 2), Close | BreakOff)


def test_a_servers_tool_without_its_result_is_not_closed() -> None:
    stitch = AnthropicStitch("live")
    events = answered([tool("T", x=1), SEARCH, FOUND]).events
    until_search_ends = len(events) - 4
    for one in events[:until_search_ends]:
        stitch.feed(one)
    assert isinstance(stitch.broke(), BreakOff)


def test_no_continue_after_thinking_nor_without_kept_text() -> None:
    assert isinstance(live_cut_after([thinking("Hm"), text("So.")], 3), BreakOff)
    stitch = AnthropicStitch("live", keeps_text=False)
    for one in ANSWERS["text"].events[:-3]:
        stitch.feed(one)
    assert isinstance(stitch.broke(), BreakOff)


def test_block_mode_lets_go_of_what_is_too_large_to_keep_and_still_makes_no_false_turn() -> None:
    answer = answered([text("x" * 7 * 40_000), tool("T", x=1)], "tool_use")
    assert len(answer.stream) > KEPT_BACK
    stitch, client = AnthropicStitch("block"), StrictClient()
    events = iter(answer.events)
    for one in events:
        client.read(stitch.feed(one))
        if stitch.delivered:
            break
    assert client.open
    assert isinstance(stitch.broke(), Continue)
    whole = AnthropicStitch("block")
    assert b"".join(whole.feed(one) for one in answer.events) == answer.stream


def test_endless_pings_before_content_are_not_kept_for_ever() -> None:
    stitch = AnthropicStitch("block")
    stitch.feed(ANSWERS["text"].events[0])
    for _ in range(12):
        stitch.feed(PING * 10_000)
    assert stitch.broken


def test_usage_of_attempts_that_came_to_nothing_is_counted_apart() -> None:
    stitch = AnthropicStitch("block")
    for _ in range(2):
        stitch.attempt_began()
        stitch.feed(ANSWERS["text"].events[0])
        assert stitch.broke() == AskAgain()
    assert (stitch.wasted_usage.input_tokens, stitch.wasted_usage.output_tokens) == (22, 2), (
        "before the next"
    )
    stitch.attempt_began()
    stitch.feed(OTHER.stream)
    assert (stitch.wasted_usage.input_tokens, stitch.wasted_usage.output_tokens) == (22, 2)
    assert (stitch.usage.input_tokens, stitch.usage.output_tokens) == (11, 42)


def test_words_in_the_start_of_a_continued_block_are_not_lost() -> None:
    events = answered([text("Hello big world")], pings=False).events
    stitch, client = AnthropicStitch("live"), StrictClient()
    client.read(stitch.feed(b"".join(events[:3])))
    assert stitch.broke() == Continue("Hello b")
    stitch.continue_with("Hello b")
    stitch.attempt_began()
    start = event("content_block_start", index=0, content_block=text("ig wo"))
    rest = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "rld"})
    client.read(stitch.feed(events[0] + start + rest + b"".join(events[-3:])))
    assert client.blocks == [text("Hello big world")]


def test_white_space_that_was_cut_off_the_prefill_is_not_said_twice() -> None:
    events = answered([text("Hello \n  world")], pings=False).events
    stitch, client = AnthropicStitch("live"), StrictClient()
    client.read(stitch.feed(b"".join(events[:3])))
    assert stitch.broke() == Continue("Hello \n")
    stitch.continue_with("Hello")
    stitch.attempt_began()
    parts = [text(" "), text("\n"), text("  wor"), text("ld")]
    deltas = [
        event("content_block_delta", index=0, delta={**part, "type": "text_delta"})
        for part in parts[1:]
    ]
    start = event("content_block_start", index=0, content_block=parts[0])
    client.read(stitch.feed(b"".join([events[0], start, *deltas, *events[-3:]])))
    assert client.blocks == [text("Hello \n  world")]


def test_two_answers_never_run_into_each_other() -> None:
    """A new attempt after something was delivered is refused unless it continues that."""
    stitch = AnthropicStitch("live")
    stitch.feed(b"".join(ANSWERS["text"].events[:4]))
    stitch.attempt_began()
    assert stitch.feed(OTHER.stream) == b""
    assert stitch.broken


def test_an_event_too_large_to_be_real_breaks_the_attempt() -> None:
    stitch = AnthropicStitch("live")
    chunk = b"x" * (8 * 1024 * 1024)
    for _ in range(5):
        assert stitch.feed(chunk) == b""
    assert stitch.broken
    assert stitch.broke() == AskAgain()


def test_after_an_error_nothing_passes_any_more() -> None:
    events = ANSWERS["text"].events
    stitch = AnthropicStitch("live", keeps_text=False)
    stitch.feed(b"".join(events[:4]))
    assert stitch.feed(events[4]) == events[4]
    assert stitch.feed(event("error", error=OVERLOADED)) == b""
    assert stitch.feed(events[5]) == b""


def test_a_second_name_behind_a_carriage_return_is_seen() -> None:
    events = ANSWERS["text"].events
    stitch = AnthropicStitch("live", keeps_text=False)
    stitch.feed(b"".join(events[:4]))
    assert stitch.feed(events[4].replace(b"\n\n", b"\revent: message_stop\n\n")) == b""
    assert stitch.broken


@pytest.mark.parametrize("mode", MODES)
def test_what_begins_after_the_stop_reason_must_be_message_stop(mode: Mode) -> None:
    stitch = AnthropicStitch(mode)
    stitch.feed(b"".join(ANSWERS["text"].events[:-1]) + b"event: err")
    assert not isinstance(stitch.broke(), Close)


def test_a_servers_tool_does_not_let_go_of_what_block_mode_keeps() -> None:
    stitch = AnthropicStitch("block")
    assert [stitch.feed(one) for one in ANSWERS["server tools"].events[:-1]].count(b"") == len(
        ANSWERS["server tools"].events[:-1]
    )


def test_what_one_answer_meets_is_not_seen_by_another() -> None:
    """An answer that was never taken apart shares its stand-ins with all others of its kind."""
    broken = AnthropicStitch("live")
    broken.attempt_began()
    assert isinstance(broken.broke(), AskAgain)
    fresh = AnthropicStitch("live")
    assert not fresh.broken
    assert not fresh.delivered
    assert fresh.usage == TokenUsage()
    fresh.attempt_began()
    assert not fresh.broken


@given(
    names,
    modes,
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.lists(st.integers(1, 300), max_size=40),
)
def test_events_are_counted_alike_whatever_their_line_ends_and_packets(
    name: str, mode: Mode, end: bytes, cuts: list[int]
) -> None:
    raw = ANSWERS[name].stream.replace(b"\r\n", b"\n").replace(b"\n", end)
    stitch = AnthropicStitch(mode)
    stitch.attempt_began()
    rest = raw
    for cut in cuts:
        stitch.feed(rest[:cut])
        rest = rest[cut:]
    stitch.feed(rest)
    expected = len(ANSWERS[name].events)
    assert stitch.complete
    assert stitch.events == expected
    assert stitch.size == len(raw)
