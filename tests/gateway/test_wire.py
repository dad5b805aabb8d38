"""What passes through a whole gateway is what would pass without it, byte for byte."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from jackline.gateway.settings import HoldSettings, LimitSettings
from tests.assembly.world import (
    MODEL,
    Asked,
    Got,
    Pair,
    answered,
    ask,
    gateway,
    http,
    journalled,
    port_of,
    provider,
    question,
    read_answer,
    request,
    run,
    until,
    whole,
)
from tests.planted import BEARER, KEY, TOOL_INPUT
from tests.upstream.loopback import Server, Wire

# Written anew on each hop, or asked for differently on purpose (desk.py says why).
OF_THE_HOP = {b"host", b"content-length", b"accept-encoding"}
FRAMING = {b"content-length", b"transfer-encoding", b"connection", b"date"}
NOTES = [b"x-jackline-call", b"x-jackline-lane", b"x-jackline-attempts", b"x-jackline-waited"]
JSON = (b"Content-Type", b"application/json")
EVENTS = (b"Content-Type", b"text/event-stream; charset=utf-8")


def sent(asked: Asked) -> list[Pair]:
    return [(n, v) for n, v in asked.headers if n.lower() not in OF_THE_HOP]


def received(got: Got) -> list[Pair]:
    """What the client was told, without the framing and our own notes."""
    return [
        (n, v)
        for n, v in got.headers
        if n.lower() not in FRAMING and not n.lower().startswith(b"x-jackline-")
    ]


async def both_ways(
    folder: Path, raw: bytes, answer: bytes
) -> tuple[tuple[Asked, Got], tuple[Asked, Got]]:
    """The same request straight to the provider and through the gateway."""
    async with provider(answer) as (scripted, url):
        direct = await ask(url, raw)
        async with gateway(folder, url) as service:
            through = await ask(service.url, raw)
        asked_directly, asked_through = scripted.asked
        return (asked_directly, direct), (asked_through, through)


def compare(folder: Path, raw: bytes, answer: bytes) -> Got:
    (asked, got), (asked_through, got_through) = run(both_ways(folder, raw, answer))
    assert asked_through.line == asked.line
    assert asked_through.body == asked.body
    assert sent(asked_through) == sent(asked)
    assert got_through.status == got.status
    assert got_through.body == got.body
    assert received(got_through) == received(got)
    return got_through


ODD_BODY = (
    b'{ "model" :\t"'
    + MODEL.encode()
    + b'","zukunft":{"b":[1e400,-0.0],"a":"\\u00e9\xc3\xa9"},\r\n'
    b'"messages":[{"role":"user","content":"hi","unknown_of_message":null}],"max_tokens":7}  \n'
)


def test_bodies_and_headers_pass_unchanged_in_both_directions(tmp_path: Path) -> None:
    answer = http(
        200,
        whole(future={"x": [1.50, None]}) + b" \n",
        (b"content-TYPE", b"application/json"),
        (b"X-Vendor-Unknown", b'a, b;c="d"'),
        (b"anthropic-ratelimit-requests-limit", b"4000"),
        (b"Vary", b"Accept"),
        (b"Vary", b"Accept-Encoding"),
        (b"request-id", b"req_vendor"),
    )
    raw = request(
        b"POST",
        b"/v1/messages?beta=true&x=%20",
        ODD_BODY,
        (b"Zebra", b"1"),
        (b"anthropic-BETA", b"one,two"),
        (b"anthropic-version", b"2023-06-01"),
        (b"X-Unknown", b"  kept ".strip()),
        (b"User-Agent", b"claude-cli/2.1.197 (external, cli)"),
        (b"Authorization", b"Bearer " + BEARER.encode()),
        (b"alpha", b"2"),
        (b"Alpha", b"3"),
        (b"Content-Type", b"application/json"),
    )
    got = compare(tmp_path, raw, answer)
    assert got.header(b"request-id") == b"req_vendor"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_the_vendors_refusals_reach_the_client_as_they_are(tmp_path: Path, status: int) -> None:
    body = (
        b'{"type":"error","error":{"type":"some_error","message":"no \xe2\x80\x94 ever"},"x":1}\n'
    )
    answer = http(status, body, JSON, (b"x-should-retry", b"false"), (b"request-id", b"req_9"))
    got = compare(tmp_path, request(body=question()), answer)
    assert got.header(b"x-jackline-attempts") == b"1"


def test_a_refusal_that_is_waited_out_too_long_is_told_once_in_the_vendors_words(
    tmp_path: Path,
) -> None:
    """With no patience at all for overload, the client gets the vendor's own 529."""
    overloaded = http(
        529,
        b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
        JSON,
        (b"request-id", b"req_529"),
    )

    async def main() -> Got:
        async with (
            provider(overloaded) as (_, url),
            gateway(tmp_path, url, hold=HoldSettings(other=0.0)) as service,
        ):
            return await ask(service.url, request(body=question()))

    got = run(main())
    assert got.status == 529
    assert got.json["error"]["type"] == "overloaded_error"
    assert got.header(b"request-id") == b"req_529"


def test_headers_of_one_hop_stay_on_it(tmp_path: Path) -> None:
    answer = http(
        200,
        whole(),
        JSON,
        (b"Connection", b"keep-alive, X-Hop"),
        (b"X-Hop", b"1"),
        (b"Keep-Alive", b"timeout=5"),
        (b"Proxy-Authenticate", b"Basic"),
        (b"Upgrade", b"h2c"),
    )
    raw = request(
        b"POST",
        b"/v1/messages",
        question(),
        (b"Connection", b"keep-alive, X-Mine"),
        (b"X-Mine", b"1"),
        (b"Keep-Alive", b"9"),
        (b"TE", b"trailers"),
        (b"Proxy-Authorization", b"Basic eDp5"),
        (b"X-Stays", b"1"),
    )
    _, (asked, got) = run(both_ways(tmp_path, raw, answer))
    gone = {b"connection", b"x-mine", b"keep-alive", b"te", b"proxy-authorization"}
    assert gone.isdisjoint(n.lower() for n, _ in asked.headers)
    assert asked.header(b"x-stays") == b"1"
    told = {n.lower() for n, _ in got.headers}
    assert told.isdisjoint({b"x-hop", b"keep-alive", b"proxy-authenticate", b"upgrade"})


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/files"])
def test_headers_for_us_are_not_passed_on(tmp_path: Path, target: bytes) -> None:
    raw = request(b"POST", target, question(), (b"X-Jackline-Hold", b"until-reset"))
    _, (asked, _) = run(both_ways(tmp_path, raw, answered()))
    assert not [n for n, _ in asked.headers if n.lower().startswith(b"x-jackline-")]


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        (b"POST", b"/v1/messages", question()),
        (b"POST", b"/v1/messages/count_tokens?beta=true", question()),
        (b"GET", b"/v1/models?limit=1000", b""),
        (b"GET", b"/v1/files", b""),
        (b"DELETE", b"/v1/files/1", b""),
        (b"PUT", b"/any/thing?x=1", b"\x00\xff raw"),
        (b"PATCH", b"/api/eval/sdk", b"{}"),
        (b"POST", b"/", b"{}"),
        (b"GET", b"/v1/messages/batches", b""),
        (b"POST", b"/proxy/prefix/v1/messages", question()),
    ],
)
def test_every_path_and_method_reaches_the_vendor_and_every_answer_is_noted(
    tmp_path: Path, method: bytes, target: bytes, body: bytes
) -> None:
    answer = http(200, b'{"data":[],"input_tokens":12}', JSON)
    got = compare_but_for_the_id(tmp_path, request(method, target, body), answer)
    assert [n for n, _ in got.headers if n.startswith(b"x-jackline-")] == NOTES
    call = got.header(b"x-jackline-call")
    assert call is not None
    assert call.startswith(b"jl_")
    assert got.header(b"request-id") == call
    assert got.header(b"x-jackline-attempts") == b"1"
    assert float(got.header(b"x-jackline-waited") or b"-1") >= 0.0
    assert (got.header(b"x-jackline-lane") or b"").startswith(b"anthropic/")


def compare_but_for_the_id(folder: Path, raw: bytes, answer: bytes) -> Got:
    (asked, got), (asked_through, through) = run(both_ways(folder, raw, answer))
    assert asked_through.line == asked.line
    assert asked_through.body == asked.body
    assert (through.status, through.body) == (got.status, got.body)
    return through


def test_a_head_request_to_a_path_of_the_vendors_gets_its_length_and_no_body(
    tmp_path: Path,
) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\nETag: x\r\n\r\n"
    _, (asked, got) = run(both_ways(tmp_path, request(b"HEAD", b"/v1/files/1"), answer))
    assert asked.line == b"HEAD /v1/files/1 HTTP/1.1"
    assert (got.header(b"content-length"), got.header(b"etag"), got.body) == (b"77", b"x", b"")


def test_the_probe_of_the_root_is_answered_here(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (scripted, url), gateway(tmp_path, url) as service:
            probe = await ask(service.url, request(b"HEAD", b"/", host=b"localhost"))
            assert (probe.status, probe.body) == (200, b"")
            hello = await ask(service.url, request(b"GET", b"/"))
            assert hello.json["jackline"]
            assert scripted.asked == []

    run(main())


@pytest.mark.parametrize(
    ("target", "upstream_target", "tag"),
    [
        (b"/t/night.run-1/v1/messages", b"/v1/messages", "night.run-1"),
        (b"/t/a/v1/messages?beta=true", b"/v1/messages?beta=true", "a"),
        (b"/v1/messages", b"/v1/messages", None),
    ],
)
def test_a_tag_is_taken_off_the_path_and_stands_in_the_journal(
    tmp_path: Path, target: bytes, upstream_target: bytes, tag: str | None
) -> None:
    _, (asked, _) = run(both_ways_tagged(tmp_path, target))
    assert asked.line == b"POST %b HTTP/1.1" % upstream_target
    assert [call.tag for call in journalled(tmp_path)] == [tag]


async def both_ways_tagged(folder: Path, target: bytes) -> tuple[None, tuple[Asked, Got]]:
    async with provider(answered()) as (scripted, url):
        async with gateway(folder, url) as service:
            got = await ask(service.url, request(b"POST", target, question()))
        assert got.status == 200
        return None, (scripted.asked[0], got)


@pytest.mark.parametrize("target", [b"/t/a/v1/models", b"/t/a/any/path"])
def test_a_tag_is_taken_off_every_path(tmp_path: Path, target: bytes) -> None:
    async def main() -> None:
        async with provider(http(200, b"{}", JSON)) as (scripted, url):
            async with gateway(tmp_path, url) as service:
                await ask(service.url, request(b"GET", target))
            assert scripted.asked[0].line == b"GET %b HTTP/1.1" % target.removeprefix(b"/t/a")

    run(main())


def test_an_upstream_with_a_path_of_its_own_is_asked_below_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (scripted, url):
            async with gateway(tmp_path, f"{url}/anthropic") as service:
                await ask(service.url, request(body=question()))
                await ask(service.url, request(b"GET", b"/v1/files"))
            lines = [asked.line for asked in scripted.asked]
        assert lines == [
            b"POST /anthropic/v1/messages HTTP/1.1",
            b"GET /anthropic/v1/files HTTP/1.1",
        ]

    run(main())


def test_a_packed_request_goes_on_packed_and_its_model_is_known(tmp_path: Path) -> None:
    packed = gzip.compress(question())
    raw = request(b"POST", b"/v1/messages", packed, (b"Content-Encoding", b"gzip"))
    compare(tmp_path, raw, answered())
    assert [call.model for call in journalled(tmp_path)] == [MODEL]


def test_a_packed_answer_that_was_not_asked_for_arrives_as_what_was_packed(
    tmp_path: Path,
) -> None:
    answer = http(200, gzip.compress(whole()), JSON, (b"Content-Encoding", b"gzip"))
    _, (asked, got) = run(both_ways(tmp_path, request(body=question()), answer))
    assert asked.header(b"accept-encoding") == b"identity"
    unpacked = gzip.decompress(got.body) if got.header(b"content-encoding") else got.body
    assert unpacked == whole()


def test_on_other_paths_packing_is_between_client_and_vendor(tmp_path: Path) -> None:
    answer = http(200, gzip.compress(b"x" * 999), JSON, (b"Content-Encoding", b"gzip"))
    raw = request(b"GET", b"/v1/files/1/content", b"", (b"Accept-Encoding", b"gzip, br"))
    _, (asked, got) = run(both_ways(tmp_path, raw, answer))
    assert asked.header(b"accept-encoding") == b"gzip, br"
    assert got.header(b"content-encoding") == b"gzip"
    assert gzip.decompress(got.body) == b"x" * 999


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/files"])
def test_a_chunked_request_arrives_whole(tmp_path: Path, target: bytes) -> None:
    body = question()
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:9], body[9:40], body[40:]))
    head = b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n" % target

    async def main() -> None:
        async with provider(answered()) as (scripted, url):
            async with gateway(tmp_path, url) as service:
                got = await ask(service.url, head + chunks + b"0\r\n\r\n")
            assert got.status == 200
            asked = scripted.asked[0]
            assert asked.body == body
            assert asked.header(b"content-length") == b"%d" % len(body)
            assert asked.header(b"transfer-encoding") is None

    run(main())


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/messages/count_tokens", b"/v1/files"])
def test_a_chunked_answer_arrives_whole(tmp_path: Path, target: bytes) -> None:
    body = whole()
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:50], body[50:]))
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    answer = head + pieces + b"0\r\n\r\n"
    _, (_, got) = run(both_ways(tmp_path, request(b"POST", target, question()), answer))
    assert (got.status, got.body) == (200, body)


START_OF_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def event(document: dict[str, object]) -> bytes:
    data = b"event: %b\ndata: %b\n\n" % (
        str(document["type"]).encode(),
        json.dumps(document).encode(),
    )
    return b"%x\r\n%b\r\n" % (len(data), data)


OPENING = event({"type": "message_start", "message": json.loads(whole())})


def streamed(*events: bytes) -> bytes:
    """A whole stream, each event in a chunk of its own."""
    return START_OF_STREAM + b"".join(events) + b"0\r\n\r\n"


def block(index: int, kind: str, start: dict[str, object], delta: dict[str, object]) -> list[bytes]:
    return [
        event(
            {
                "type": "content_block_start",
                "index": index,
                "content_block": {"type": kind, **start},
            }
        ),
        event({"type": "ping"}),
        event({"type": "content_block_delta", "index": index, "delta": delta, "unknown": [1]}),
        event({"type": "content_block_stop", "index": index}),
    ]


@pytest.mark.parametrize("entrance", [b"cli", b"sdk-cli"], ids=["live", "block"])
def test_a_stream_arrives_with_every_byte_that_the_vendor_sent(
    tmp_path: Path, entrance: bytes
) -> None:
    answer = streamed(
        OPENING,
        *block(0, "text", {"text": ""}, {"type": "text_delta", "text": "h\u00e9llo"}),
        *block(
            1,
            "tool_use",
            {"id": "toolu_1", "name": "Bash", "input": {}},
            {"type": "input_json_delta", "partial_json": json.dumps({"command": TOOL_INPUT})},
        ),
        event({"type": "an_event_of_next_year", "x": {"y": [None]}}),
        event(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "tool_use", "new_field": 1},
                "usage": {"output_tokens": 12},
            }
        ),
        event({"type": "message_stop"}),
    )
    agent = (b"User-Agent", b"claude-cli/2.1.197 (external, %b)" % entrance)
    raw = request(b"POST", b"/v1/messages", question(stream=True), agent)
    got = compare_but_for_the_id(tmp_path, raw, answer)
    assert got.header(b"content-type") == b"text/event-stream"
    assert [call.output_tokens for call in journalled(tmp_path)] == [12]


# --- size -------------------------------------------------------------------------------------


def resident() -> int:
    """This process's memory in bytes; 0 where the system does not tell it this way."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def test_a_download_waits_for_a_slow_reader_instead_of_filling_memory(tmp_path: Path) -> None:
    """While the client reads nothing the vendor can send no more than the buffers on the way."""
    size, piece = 64 << 20, b"x" * 65536
    written = 0

    async def serve(wire: Wire) -> None:
        nonlocal written
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while written < size:
            await wire.say(piece)
            written += len(piece)

    async def stands_still() -> int:
        before = -1
        while written != before:
            before = written
            await asyncio.sleep(0.2)
        return written

    async def main() -> None:
        async with Server(serve) as server, gateway(tmp_path, server.url) as service:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port_of(service.url), limit=1 << 16
            )
            writer.write(request(b"GET", b"/v1/files/1/content"))
            await reader.readuntil(b"\r\n\r\n")
            before = resident()
            assert await stands_still() < size // 2
            assert resident() - before < size // 2
            total = 0
            while total < size:
                total += len(await reader.read(1 << 20))
            assert total == size
            writer.close()
            await writer.wait_closed()

    run(main())


def test_a_request_of_32_mb_is_held_in_memory_about_once(tmp_path: Path) -> None:
    """The test holds it once and the provider reads it once or twice; the gateway may add two."""
    size = 32 << 20
    seen = 0

    async def serve(wire: Wire) -> None:
        nonlocal seen
        await wire.reader.readuntil(b"\r\n\r\n")
        while seen < size:
            seen += len(await wire.reader.read(1 << 20))
        await wire.say(answered())
        await wire.reader.read()

    async def main() -> None:
        async with Server(serve) as server, gateway(tmp_path, server.url) as service:
            body = question("x" * size)
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(service.url))
            head = request(b"POST", b"/v1/messages", b"", key=KEY.encode())
            head = head.replace(b"Content-Length: 0", b"Content-Length: %d" % len(body))
            before = resident()
            writer.write(head)
            for at in range(0, len(body), 1 << 20):
                writer.write(body[at : at + (1 << 20)])
                await writer.drain()
            got = await asyncio.wait_for(read_answer(reader), 30.0)
            assert got.status == 200
            assert seen >= size
            assert resident() - before < 3 * size
            writer.close()
            await writer.wait_closed()

    run(main())


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (request(body=b"x" * 2000), 413),
        (request(b"GET", b"/v1/models", b"", (b"X-Long", b"y" * 3000)), 431),
    ],
)
def test_what_is_too_large_is_refused_and_never_sent(
    tmp_path: Path, raw: bytes, status: int
) -> None:
    async def main() -> None:
        limits = LimitSettings(body=1000, headers=2000)
        async with (
            provider(answered()) as (scripted, url),
            gateway(tmp_path, url, limits=limits) as service,
        ):
            got = await ask(service.url, raw)
            assert got.status == status
            assert "jackline.toml" in got.json["error"]["message"]
            assert scripted.asked == []

    run(main())


# --- leaving ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [b"/v1/messages", b"/v1/files"])
@pytest.mark.parametrize("begun", [False, True])
def test_when_the_client_leaves_the_vendor_is_left_at_once(
    tmp_path: Path, target: bytes, begun: bool
) -> None:
    async def main() -> None:
        asked, left = asyncio.Event(), asyncio.Event()

        async def serve(wire: Wire) -> None:
            await wire.request()
            if begun:
                await wire.say(START_OF_STREAM, OPENING)
            asked.set()
            with suppress(ConnectionResetError):  # as good as an end
                assert await wire.reader.read() == b""
            left.set()

        async with Server(serve) as server, gateway(tmp_path, server.url) as service:
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(service.url))
            writer.write(request(b"POST", target, question(stream=True)))
            await asyncio.wait_for(asked.wait(), 30.0)
            assert not left.is_set()
            writer.close()
            await asyncio.wait_for(left.wait(), 30.0)
            await until(lambda: not service.desk.calls)
            assert service.carrier.under_way == 0

    run(main())
    if target == b"/v1/messages":
        assert [call.outcome for call in journalled(tmp_path)] == ["client_left"]


def test_an_answer_that_breaks_off_on_another_path_breaks_off_for_the_client(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async def serve(wire: Wire) -> None:
            await wire.request()
            await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            wire.close()

        async with Server(serve) as server, gateway(tmp_path, server.url) as service:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await ask(service.url, request(b"GET", b"/v1/files/1/content"))

    run(main())


def test_an_upstream_that_is_not_there_is_told_in_the_vendors_shape_on_other_paths(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url):
            pass
        async with gateway(tmp_path, url) as service:
            got = await ask(service.url, request(b"GET", b"/v1/files"))
            assert got.status == 502
            assert got.json["type"] == "error"
            assert got.header(b"x-jackline-call") is not None

    run(main())
