"""An upstream, or whoever answers in its place, that sends too much, or without an end."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from jackline.assembly import Service
from jackline.gateway.settings import LimitSettings
from jackline.providers.settings import Credential, UpstreamKind, UpstreamSettings
from jackline.states import LaneState
from tests.assembly.world import (
    Got,
    answered,
    ask,
    config_for,
    gateway,
    http,
    journalled,
    provider,
    question,
    request,
    run,
    until,
    whole,
)
from tests.planted import KEY
from tests.upstream.loopback import Server, Wire

MEGABYTE = 1024 * 1024
LIMITS = LimitSettings(drain=1.0, answer=4 * MEGABYTE, answer_time=3600.0)
JSON = (b"Content-Type", b"application/json")
STREAM = (b"Content-Type", b"text/event-stream")
GZIP = (b"Content-Encoding", b"gzip")
CHUNKED = (b"Transfer-Encoding", b"chunked")
DELTA = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"' + b"x" * 2000 + b'"}}\n\n'
)
BEGIN = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message",'
    b'"role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,'
    b'"usage":{"input_tokens":10,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    b'"content_block":{"type":"text","text":""}}\n\n'
)
Saying: TypeAlias = Callable[[Wire], Awaitable[None]]


@asynccontextmanager
async def endless(head: bytes, *pieces: bytes) -> AsyncIterator[tuple[list[int], str]]:
    """Says the head, the first pieces once and the last one until the other side has gone.

    The list counts: requests, and bytes said beyond the head.
    """
    counted = [0, 0]

    async def handler(wire: Wire) -> None:
        while await wire.request():
            counted[0] += 1
            await wire.say(head)
            for piece in pieces[:-1]:
                await wire.say(piece)
            while not wire.writer.is_closing():
                await wire.say(pieces[-1])
                counted[1] += len(pieces[-1])
                if counted[1] > 64 * MEGABYTE:
                    raise AssertionError("it was read on and on")
                await asyncio.sleep(0)

    async with Server(handler) as server:
        yield counted, server.url


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def bomb(size: int, *, begin: bytes = b"") -> bytes:
    """So many bytes in few."""
    return gzip.compress(begin + b" " * size)


def assert_too_large(got: Got) -> None:
    assert got.status == 502
    assert "larger than" in got.json["error"]["message"]
    assert "limits.answer" in got.json["error"]["message"]


def one_call(
    folder: Path, answer: bytes, *, stream: bool = False, limits: LimitSettings = LIMITS
) -> tuple[Got | None, int, int]:
    """What the client got (None: a broken answer), how often was asked, and the most memory."""

    async def main() -> tuple[Got | None, int, int]:
        async with (
            provider(answer) as (scripted, url),
            gateway(folder, url, limits=limits) as service,
        ):
            tracemalloc.start()
            try:
                raw = request(body=question(stream=stream))
                try:
                    got: Got | None = await ask(service.url, raw)
                except (asyncio.IncompleteReadError, ConnectionError):
                    got = None
                return got, len(scripted.asked), tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    return run(main())


# --- packed -----------------------------------------------------------------------------------


def test_a_packed_answer_that_unpacks_to_hundreds_of_megabytes_is_broken_off(
    tmp_path: Path,
) -> None:
    got, asked, peak = one_call(tmp_path, http(200, bomb(300 * MEGABYTE), JSON, GZIP))
    assert got is not None
    assert_too_large(got)
    assert asked == 1  # no quota is spent on hoping that it gets smaller
    assert peak < 40 * MEGABYTE


def test_a_packed_stream_that_unpacks_to_hundreds_of_megabytes_is_broken_off(
    tmp_path: Path,
) -> None:
    packed = gzip.compress(BEGIN + DELTA * 100_000)
    got, asked, peak = one_call(tmp_path, http(200, packed, STREAM, GZIP), stream=True)
    assert asked == 1
    assert got is None or got.status == 502 or b"limits.answer" in got.body
    assert peak < 60 * MEGABYTE


def test_many_packed_members_count_together(tmp_path: Path) -> None:
    got, asked, peak = one_call(tmp_path, http(200, bomb(MEGABYTE) * 100, JSON, GZIP))
    assert got is not None
    assert_too_large(got)
    assert (asked, peak < 40 * MEGABYTE) == (1, True)


def test_an_error_that_is_a_bomb_is_told_by_its_status(tmp_path: Path) -> None:
    packed = bomb(300 * MEGABYTE, begin=b'{"type":"error","error":{"type":"not_found_error",')
    got, _, peak = one_call(tmp_path, http(404, packed, JSON, GZIP))
    assert got is not None
    assert got.status == 404
    assert peak < 40 * MEGABYTE


def test_other_calls_are_answered_while_a_bomb_is_unpacked(tmp_path: Path) -> None:
    """A stream of small events that is worth seconds of work comes in one packet.

    Smaller ones would be broken off at once (tests/calls/test_tiny_events.py).
    """
    packed = gzip.compress(BEGIN + b": %b\n\n" % (b"x" * 40) * 80_000)

    async def main() -> None:
        async with (
            provider(http(200, packed, STREAM, GZIP), answered()) as (scripted, url),
            gateway(tmp_path, url, limits=LIMITS) as service,
        ):
            raw = request(body=question(stream=True))
            asking = asyncio.ensure_future(ask(service.url, raw))
            while not scripted.asked:  # noqa: ASYNC110 -- a state of the other side
                await asyncio.sleep(0)
            turns = 0
            while not asking.done():
                await asyncio.sleep(0)
                turns += 1
            await asyncio.gather(asking, return_exceptions=True)
            assert turns > 10

    run(main())


def test_a_packed_answer_of_usual_size_is_read(tmp_path: Path) -> None:
    got, _, _ = one_call(tmp_path, http(200, gzip.compress(whole()), JSON, GZIP))
    assert got is not None
    assert (got.status, got.body) == (200, whole())
    zipped = (b"Content-Encoding", b"deflate")
    got, _, _ = one_call(tmp_path, http(200, zlib.compress(whole("x" * MEGABYTE)), JSON, zipped))
    assert got is not None
    assert got.body == whole("x" * MEGABYTE)


DAMAGED = gzip.compress(whole())[:-20] + b"damage that nobody can undo"


@pytest.mark.parametrize(
    "trouble",
    [
        http(200, DAMAGED, JSON, GZIP),
        http(200, DAMAGED[:60], JSON, GZIP),
        http(529, b"junk", JSON, GZIP),
    ],
    ids=["damaged", "cut short", "an error whose words are damaged"],
)
def test_a_call_whose_answer_cannot_be_unpacked_is_tried_again(
    tmp_path: Path, trouble: bytes
) -> None:
    async def main() -> None:
        answers = provider(trouble, answered())
        async with answers as (scripted, url), gateway(tmp_path, url) as service:
            got = await ask(service.url, request(body=question()))
            assert got.status == 200
            assert got.body == whole()
            assert len(scripted.asked) == 2

    run(main())


# --- plain ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [JSON, STREAM], ids=["whole", "stream"])
@pytest.mark.parametrize("block", [True, False], ids=["block", "live"])
def test_an_answer_without_an_end_is_broken_off(
    tmp_path: Path, kind: tuple[bytes, bytes], block: bool
) -> None:
    head = http(200, b"", kind, CHUNKED, length=False)
    streams = kind is STREAM
    begin, piece = (BEGIN, DELTA * 50) if streams else (b'{"id":"', b"x" * 100_000)
    agent = b"claude-cli/2.1.0 (external, %b)" % (b"sdk-cli" if block else b"cli")

    async def main() -> None:
        async with endless(head, chunk(begin), chunk(piece)) as (counted, url):
            async with gateway(tmp_path, url, limits=LIMITS) as service:
                raw = request(
                    b"POST", b"/v1/messages", question(stream=streams), (b"User-Agent", agent)
                )
                try:
                    got: Got | None = await ask(service.url, raw)
                except (asyncio.IncompleteReadError, ConnectionError):
                    got = None
                if not streams:
                    assert got is not None
                    assert_too_large(got)
            assert counted[0] == 1
            assert counted[1] < 32 * MEGABYTE

    run(main())
    (ended,) = journalled(tmp_path)
    assert ended.outcome != "answered"


def test_an_answer_whose_length_says_that_it_is_too_large_is_not_read(tmp_path: Path) -> None:
    head = http(200, b"", JSON, (b"Content-Length", b"%d" % (1 << 40)), length=False)

    async def main() -> None:
        async with endless(head, b"x" * 1000) as (counted, url):
            async with gateway(tmp_path, url, limits=LIMITS) as service:
                assert_too_large(await ask(service.url, request(body=question())))
            assert counted[0] == 1
            assert counted[1] < MEGABYTE

    run(main())


def test_an_error_without_an_end_is_told_by_its_status(tmp_path: Path) -> None:
    head = http(404, b"", JSON, CHUNKED, length=False)
    begin = b'{"type":"error","error":{"type":"not_found_error","message":"model: no such'

    async def main() -> None:
        async with endless(head, chunk(begin), chunk(b"x" * 100_000)) as (counted, url):
            async with gateway(tmp_path, url, limits=LIMITS) as service:
                got = await ask(service.url, request(body=question()))
                assert got.status == 404
            assert counted[1] < 8 * MEGABYTE

    run(main())


def test_one_event_without_an_end_is_broken_off(tmp_path: Path) -> None:
    head = http(200, b"", STREAM, CHUNKED, length=False)

    async def main() -> None:
        async with endless(head, chunk(b"data: "), chunk(b"x" * 100_000)) as (counted, url):
            async with gateway(tmp_path, url, limits=LIMITS) as service:
                got = await ask(service.url, request(body=question(stream=True)))
                assert_too_large(got)
            assert counted[0] == 1
            assert counted[1] < 16 * MEGABYTE

    run(main())


def test_a_stream_that_only_says_that_it_lives_is_broken_off_in_time(tmp_path: Path) -> None:
    limits = LimitSettings(drain=1.0, answer_time=0.3)
    head = http(200, b"", STREAM, CHUNKED, length=False)

    async def main() -> None:
        async with endless(head, chunk(BEGIN), chunk(b"event: ping\ndata: {}\n\n")) as (
            counted,
            url,
        ):
            async with gateway(tmp_path, url, limits=limits) as service:
                got = await ask(service.url, request(body=question(stream=True)))
                assert got.status == 502
                assert "limits.answer_time" in got.json["error"]["message"]
            assert counted[0] == 1

    run(main())


# --- heads ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flood",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100,
    ],
    ids=["100", "103"],
)
def test_interim_answers_without_an_end_are_broken_off(tmp_path: Path, flood: bytes) -> None:
    async def main() -> None:
        async with endless(b"", flood) as (counted, url):
            async with gateway(tmp_path, url, limits=LIMITS) as service:
                asking = asyncio.ensure_future(ask(service.url, request(body=question())))
                while not service.observatory.tally.lanes:  # noqa: ASYNC110 -- as above
                    await asyncio.sleep(0.01)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            assert counted[1] / counted[0] < 2 * MEGABYTE

    run(main())


def test_thousands_of_headers_are_no_answer(tmp_path: Path) -> None:
    many = [(b"x-%d" % number, b"y") for number in range(20_000)]

    async def main() -> None:
        async with provider(http(200, whole(), JSON, *many), answered()) as (scripted, url):
            async with gateway(tmp_path, url, limits=LIMITS) as service:
                got = await ask(service.url, request(body=question()))
                assert got.status == 200
                assert len(got.headers) < 50
            assert len(scripted.asked) == 2

    run(main())


MANY_DIGITS = b"0" * 5000


@pytest.mark.parametrize("value", [b'"%b429"', b'"1%b"'], ids=["zeros", "large"])
def test_a_status_of_thousands_of_digits_in_an_error_is_no_bug(
    tmp_path: Path, value: bytes
) -> None:
    error = b'{"error":{"message":"no","status":%b}}' % (value % MANY_DIGITS)
    got, asked, _ = one_call(tmp_path, http(400, error, JSON))
    assert got is not None
    assert (got.status, asked) == (400, 1)


def test_a_length_of_thousands_of_digits_is_no_bug(tmp_path: Path) -> None:
    answer = answered().replace(b"Content-Length: ", b"Content-Length: " + MANY_DIGITS)

    async def main() -> None:
        async with (
            provider(answer) as (_, url),
            gateway(tmp_path, url, limits=LIMITS) as service,
        ):
            got = await ask(service.url, request(b"GET", b"/v1/files"))
            assert (got.status, got.body) == (200, whole())
            assert_too_large(await ask(service.url, request(body=question())))

    run(main())


def test_names_that_an_upstream_tells_are_kept_short(tmp_path: Path) -> None:
    long = b"r" * 60_000
    error = json.dumps(
        {"type": "error", "error": {"type": "not_found_error", "message": "m" * 90_000}}
    )

    async def main() -> None:
        async with (
            provider(
                http(404, error.encode(), JSON, (b"request-id", long)),
                http(200, whole(), JSON, (b"request-id", long)),
            ) as (_, url),
            gateway(tmp_path, url, limits=LIMITS) as service,
        ):
            assert (await ask(service.url, request(body=question()))).status == 404
            assert (await ask(service.url, request(body=question()))).status == 200

    run(main())
    for ended in journalled(tmp_path):
        assert len(ended.request_id or "") <= 200


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/messages/count_tokens", b"/v1/files"])
@pytest.mark.parametrize("status", [400, 401, 404])
def test_the_gateways_own_key_in_an_error_does_not_reach_the_caller(
    tmp_path: Path, path: bytes, status: int
) -> None:
    said = f"invalid x-api-key: {KEY}, that is {KEY[:20]}..."
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": said}}

    async def main() -> None:
        async with provider(http(status, json.dumps(error).encode(), JSON)) as (_, url):
            config = config_for(tmp_path, url, limits=LIMITS)
            upstream = UpstreamSettings(url=url, credential=Credential.API_KEY, secret=KEY)
            settings = replace(config.gateway, upstreams=(upstream,))
            async with Service(replace(config, gateway=settings)) as service:
                got = await ask(service.url, request(b"POST", path, question(), key=b"mine"))
                assert got.status >= 400
                assert KEY[:16].encode() not in got.body + repr(got.headers).encode()

    run(main())


@pytest.mark.parametrize("credential", [Credential.PASS_THROUGH, Credential.API_KEY])
def test_a_key_that_an_upstream_repeats_as_its_request_id_is_kept_nowhere(
    tmp_path: Path, credential: Credential
) -> None:
    """The client's own, or the one that the gateway has for the upstream."""
    repeated = (b"request-id", b"req_" + KEY.encode())
    error = b'{"type":"error","error":{"type":"invalid_request_error","message":"no"}}'

    own = credential is Credential.API_KEY
    asked = request(body=question(), key=b"sk-ant-other" if own else KEY.encode())

    async def main() -> None:
        async with provider(
            http(400, error, JSON, repeated), http(200, whole(), JSON, repeated)
        ) as (_, url):
            config = config_for(tmp_path, url, limits=LIMITS)
            upstream = UpstreamSettings(url=url, credential=credential, secret=KEY if own else None)
            settings = replace(config.gateway, upstreams=(upstream,))
            async with Service(replace(config, gateway=settings)) as service:
                for _ in range(2):
                    got = await ask(service.url, asked)
                    assert KEY.encode() not in b"".join(value for _, value in got.headers)

    run(main())
    ended = journalled(tmp_path)
    assert len(ended) == 2
    assert not any(KEY in repr(each) for each in ended)
    for kept in tmp_path.rglob("*"):
        assert not kept.is_file() or KEY.encode() not in kept.read_bytes(), kept.name


# --- numbers ----------------------------------------------------------------------------------

HUGE = 10**400
BILLS = [
    {"input_tokens": HUGE, "output_tokens": 1},
    {"input_tokens": 1, "output_tokens": HUGE},
    {"input_tokens": -HUGE, "output_tokens": -(10**18)},
    {"input_tokens": 9 * 10**18, "cache_read_input_tokens": HUGE},
    {"cache_creation_input_tokens": HUGE, "output_tokens": 2**63},
    {"input_tokens": True, "output_tokens": [1]},
    {"input_tokens": 1.5, "output_tokens": "x"},
]


def _events(usage: dict[str, object]) -> bytes:
    begin = BEGIN.replace(b'{"input_tokens":10,"output_tokens":1}', json.dumps(usage).encode())
    end: list[dict[str, object]] = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]
    told = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in end]
    return begin + DELTA + b"".join(told)


def _foreign(usage: dict[str, object]) -> bytes:
    names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
    bill: dict[str, object] = {names.get(name, name): each for name, each in usage.items()}
    cached = usage.get("cache_read_input_tokens", 0)
    bill["prompt_tokens_details"] = {"cached_tokens": cached}
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": bill}
    ).encode()


@pytest.mark.parametrize("way", ["whole", "stream", "chat", "translated"])
@pytest.mark.parametrize("usage", BILLS, ids=range(len(BILLS)))
def test_no_bill_breaks_what_is_counted(tmp_path: Path, way: str, usage: dict[str, object]) -> None:
    """The answer is passed on; metrics, status and journal go on with numbers that make sense."""
    answers = {
        "whole": http(200, whole(usage=usage), JSON),
        "stream": http(200, _events(usage), STREAM),
        "chat": http(200, _foreign(usage), JSON),
        "translated": http(200, _foreign(usage), JSON),
    }
    kind = UpstreamKind.OPENAI_CHAT if way in ("chat", "translated") else UpstreamKind.ANTHROPIC
    path = b"/v1/chat/completions" if way == "chat" else b"/v1/messages"

    async def main() -> None:
        async with provider(answers[way]) as (_, url):
            config = config_for(tmp_path, url, limits=LIMITS)
            upstream = UpstreamSettings(
                url=url, kind=kind, credential=Credential.BEARER, secret=KEY, models={"*": "m"}
            )
            settings = replace(config.gateway, upstreams=(upstream,))
            async with Service(replace(config, gateway=settings)) as service:
                for _ in range(3):
                    raw = request(b"POST", path, question(stream=way == "stream"))
                    assert (await ask(service.url, raw)).status == 200
                for page in (b"/metrics", b"/_jackline/status", b"/_jackline/fleet"):
                    got = await ask(service.url, request(b"GET", page))
                    assert got.status == 200
                    if page == b"/metrics":
                        counted = [
                            float(line.rpartition(b" ")[2])
                            for line in got.body.splitlines()
                            if b"tokens_total" in line and not line.startswith(b"#")
                        ]
                        assert counted
                        assert all(0 <= each <= 1e11 for each in counted)

    run(main())
    ended = journalled(tmp_path)
    assert len(ended) == 3
    for each in ended:
        assert 0 <= each.input_tokens <= 10**9
        assert 0 <= each.output_tokens <= 10**9
        assert 0 <= each.cache_read_tokens <= 10**9


# --- dates ------------------------------------------------------------------------------------

OVERLOADED = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
LATER = (b"Retry-After", b"Mon, 16 Nov 2026 05:00:00 GMT")
ENDS_OF_TIME = [
    [(b"Retry-After", b"9999-12-31T23:59:59-14:00")],
    [(b"Retry-After", b"Fri, 31 Dec 9999 23:59:59 -2359")],
    [(b"Date", b"0001-01-01T00:00:00+14:00"), LATER],
    [(b"Date", b"Mon, 01 Jan 0001 00:00:00 +1400"), LATER],
]


@pytest.mark.parametrize("headers", ENDS_OF_TIME, ids=range(len(ENDS_OF_TIME)))
def test_a_date_at_the_end_of_time_keeps_no_call_from_the_next_upstream(
    tmp_path: Path, headers: list[tuple[bytes, bytes]]
) -> None:
    async def main() -> None:
        async with (
            provider(http(529, OVERLOADED, JSON, *headers)) as (_, first),
            provider(answered()) as (second, other),
        ):
            config = config_for(tmp_path, first)
            upstreams = (
                UpstreamSettings(url=first),
                UpstreamSettings("other", other, credential=Credential.API_KEY, secret=KEY),
            )
            settings = replace(config.gateway, upstreams=upstreams)
            async with Service(replace(config, gateway=settings)) as service:
                got = await asyncio.wait_for(ask(service.url, request(body=question())), 30)
                assert got.status == 200
                assert second.asked

    run(main())


@pytest.mark.parametrize("headers", ENDS_OF_TIME, ids=range(len(ENDS_OF_TIME)))
def test_a_date_at_the_end_of_time_is_no_bug(
    tmp_path: Path, headers: list[tuple[bytes, bytes]]
) -> None:
    async def main() -> None:
        answers = provider(http(529, OVERLOADED, JSON, *headers), answered())
        async with answers as (scripted, url), gateway(tmp_path, url) as service:
            got = await ask(service.url, request(body=question()))
            assert got.status == 200
            assert len(scripted.asked) == 2

    run(main())


@pytest.mark.parametrize("reset", [b"6999999999", b"99999999999999", b"31536000000000"])
def test_a_reset_in_another_century_parks_nobody_until_then(tmp_path: Path, reset: bytes) -> None:
    """Whoever told it is asked again after a while, as if no reset had been told."""
    wall = http(
        429,
        b'{"type":"error","error":{"type":"rate_limit_error","message":"limit"}}',
        JSON,
        (b"anthropic-ratelimit-unified-status", b"rejected"),
        (b"anthropic-ratelimit-unified-representative-claim", b"five_hour"),
        (b"anthropic-ratelimit-unified-reset", reset),
    )

    async def main() -> None:
        async with provider(wall) as (_, url), gateway(tmp_path, url) as service:
            asking = asyncio.ensure_future(ask(service.url, request(body=question())))
            lanes = service.desk.carrier.controller.lanes
            await until(lambda: any(lane.state is LaneState.PARKED for lane in lanes.values()))
            (lane,) = lanes.values()
            assert lane.probe_at - service.desk.now() < 7 * 86400
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    run(main())


# --- many answers at once ---------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False], ids=["event", "document"])
def test_answers_that_never_end_hold_no_more_together_than_their_limit(
    tmp_path: Path, *, stream: bool
) -> None:
    """A few packed kilobytes each, and one event or document of megabytes."""
    most, calls = 8 * MEGABYTE, 6
    limits = LimitSettings(drain=1.0, answer=4 * MEGABYTE, held_answers=most)
    begin = BEGIN + b'data: {"type":"' if stream else b'{"type":"'
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(begin + b"a" * (3 * MEGABYTE)) + packer.flush(zlib.Z_SYNC_FLUSH)
    answer = http(200, packed, STREAM if stream else JSON, GZIP, length=False)

    async def main() -> None:
        async with (
            provider(answer) as (scripted, url),
            gateway(tmp_path, url, limits=limits) as service,
        ):
            held = service._upstream.held
            asking = []
            for number in range(calls):
                raw = request(body=question(f"question {number}", stream=stream))
                asking.append(asyncio.ensure_future(ask(service.url, raw)))
            largest = 0
            while sum(each.done() for each in asking) < calls - 2:
                await asyncio.sleep(0)
                largest = max(largest, held.total)
                assert largest <= most
            assert largest > most // 2
            for each in asking:
                if each.done():
                    got = each.result()
                    assert got.status == 502 or stream
                    assert b"limits.held_answers" in got.body
            assert len(scripted.asked) == calls  # nobody is sent into the same wall again
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await until(lambda: held.total == 0)

    run(main())
