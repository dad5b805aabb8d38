"""Attempts on real loopback connections: kept, resent, hung up on, paused, closed."""

from __future__ import annotations

import asyncio
import gc

import pytest

from jackline.errors import InternalError
from jackline.http1.responses import CutShortError
from jackline.lane_id import LaneId
from jackline.upstream import Headers, HttpUpstream, Origin, UpstreamAttempt, UpstreamRequest
from jackline.upstream.interface import ClosedHereError, NoAnswerError
from tests.upstream.conftest import Run
from tests.upstream.loopback import (
    Asking,
    Recorder,
    Server,
    Wire,
    answering,
    ask,
    get,
    idle_connections,
    open_connections,
    post,
    until,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_one_request_after_the_other_uses_one_connection(run: Run) -> None:
    async def main() -> None:
        async with Server(answering(OK)) as server, Asking(server.url) as upstream:
            for _ in range(5):
                ear = await ask(upstream)
                assert (ear.words, ear.body) == (["began", "heard", "ended"], b"ok")
            assert server.connections == 1
            assert (open_connections(upstream), idle_connections(upstream)) == (1, 1)

    run(main())


def test_a_next_request_may_be_started_from_the_last_word_of_the_one_before(run: Run) -> None:
    async def main() -> None:
        async with Server(answering(OK)) as server, Asking(server.url) as upstream:
            second = Recorder()

            class First(Recorder):
                def ended(self) -> None:
                    upstream.start(post(), LaneId("a", "model"), second)

            upstream.start(post(), LaneId("a", "model"), First())
            assert await second.last_word() == "ended"
            assert server.connections == 1

    run(main())


def test_the_connection_used_last_is_used_first(run: Run) -> None:
    async def handler(wire: Wire) -> None:
        while await wire.request():
            await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % wire.number)

    async def main() -> None:
        async with Server(handler) as server, Asking(server.url) as upstream:
            ears = [Recorder() for _ in range(3)]
            for ear in ears:
                upstream.start(post(), LaneId("a", "model"), ear)
            for ear in ears:
                await ear.last_word()
            assert idle_connections(upstream) == 3
            used = {(await ask(upstream)).body for _ in range(5)}
            assert len(used) == 1

    run(main())


def test_start_tells_nothing_before_it_returns(run: Run) -> None:
    async def main() -> None:
        async with Server(answering(OK)) as server, Asking(server.url) as upstream:
            await ask(upstream)
            ear = Recorder()
            upstream.start(post(), LaneId("a", "model"), ear)
            assert ear.words == []
            await ear.last_word()

    run(main())


def test_the_request_arrives_as_it_was_given_with_host_and_length(run: Run) -> None:
    seen: list[bytes] = []

    async def handler(wire: Wire) -> None:
        while request := await wire.request():
            seen.append(request)
            await wire.say(OK)

    async def main() -> None:
        async with Server(handler) as server, Asking(f"{server.url}/prefix/") as upstream:
            await ask(upstream, post(b"hello", (b"X-B", b"1"), (b"x-a", b"2")))
            await ask(upstream, get())
            host = f"127.0.0.1:{server.port}".encode()
            assert seen == [
                b"POST /prefix/v1/messages HTTP/1.1\r\nHost: " + host + b"\r\n"
                b"X-B: 1\r\nx-a: 2\r\nContent-Length: 5\r\n\r\nhello",
                b"GET /prefix/v1/models HTTP/1.1\r\nHost: " + host + b"\r\n\r\n",
            ]

    run(main())


@pytest.mark.parametrize("size", [0, 65_536, 65_537, 150_000, 262_144, 262_145, 8_000_000])
def test_a_body_of_any_size_arrives_whole(run: Run, size: int) -> None:
    body = bytearray(b"0123456789abcdef" * (size // 16 + 1))[:size]

    async def handler(wire: Wire) -> None:
        while request := await wire.request():
            is_same = request.partition(b"\r\n\r\n")[2] == body
            await wire.say(OK if is_same else b"nonsense")

    async def main() -> None:
        async with Server(handler) as server, Asking(server.url) as upstream:
            for _ in range(2):
                assert (await ask(upstream, post(body))).words[-1] == "ended"
            assert server.connections == 1

    run(main())


def test_an_answer_before_the_whole_request_was_taken_ends_the_connection(run: Run) -> None:
    async def handler(wire: Wire) -> None:
        await wire.reader.readuntil(b"\r\n\r\n")
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a read transport too
        await wire.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
        await asyncio.Event().wait()

    async def main() -> None:
        async with Server(handler) as server, Asking(server.url) as upstream:
            ear = await ask(upstream, post(bytes(32_000_000)))
            assert (ear.status, ear.words[-1]) == (413, "ended")
            assert idle_connections(upstream) == 0
            await until(lambda: open_connections(upstream) == 0)

    run(main())


def test_a_connection_that_the_server_closes_is_not_kept(run: Run) -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"

    async def main() -> None:
        async with Server(answering(closing)) as server, Asking(server.url) as upstream:
            for number in range(1, 4):
                assert (await ask(upstream)).words[-1] == "ended"
                assert idle_connections(upstream) == 0
                assert server.connections == number

    run(main())


def test_bytes_that_nobody_asked_for_end_an_idle_connection(run: Run) -> None:
    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        await asyncio.sleep(0.02)
        await wire.say(OK)
        await wire.request()

    async def main() -> None:
        async with Server(handler) as server, Asking(server.url) as upstream:
            await ask(upstream)
            await until(lambda: open_connections(upstream) == 0)
            assert idle_connections(upstream) == 0
            assert (await ask(upstream)).words[-1] == "ended"
            assert server.connections == 2

    run(main())


def test_an_idle_connection_that_the_server_closes_is_forgotten(run: Run) -> None:
    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        wire.close()

    async def main() -> None:
        async with Server(handler) as server, Asking(server.url) as upstream:
            await ask(upstream)
            await until(lambda: open_connections(upstream) == 0)
            assert (await ask(upstream)).words[-1] == "ended"
            assert server.connections == 2

    run(main())


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_kept_connection_that_dies_unspoken_is_replaced_unseen(run: Run, how: str) -> None:
    requests: list[int] = []

    async def handler(wire: Wire) -> None:
        while await wire.request():
            requests.append(wire.number)
            if requests.count(1) == 2 and wire.number == 1:
                wire.close() if how == "close" else wire.reset()
                return
            await wire.say(OK)

    async def main() -> None:
        async with Server(handler) as server, Asking(server.url) as upstream:
            await ask(upstream)
            ear = await ask(upstream)
            assert ear.words == ["began", "heard", "ended"]
            assert requests == [1, 1, 2]

    run(main())


def test_a_request_is_sent_again_only_once(run: Run) -> None:
    requests: list[int] = []

    async def handler(wire: Wire) -> None:
        while await wire.request():
            requests.append(wire.number)
            if len(requests) > 1:
                wire.close()
                return
            await wire.say(OK)

    async def main() -> None:
        async with Server(handler) as server, Asking(server.url) as upstream:
            await ask(upstream)
            ear = await ask(upstream)
            assert ear.words == ["broke"]
            assert isinstance(ear.error, NoAnswerError)
            assert requests == [1, 1, 2]

    run(main())


def test_a_kept_connection_that_dies_after_its_first_byte_is_not_replaced(run: Run) -> None:
    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        await wire.request()
        await wire.say(b"H")
        wire.close()

    async def main() -> None:
        async with Server(handler) as server, Asking(server.url) as upstream:
            await ask(upstream)
            ear = await ask(upstream)
            assert ear.words == ["broke"]
            assert isinstance(ear.error, CutShortError)
            assert server.connections == 1

    run(main())


def test_idle_connections_are_dropped_after_their_time(run: Run) -> None:
    async def main() -> None:
        async with (
            Server(answering(OK)) as server,
            Asking(Origin(server.url, idle_seconds=0.05)) as upstream,
        ):
            ears = [Recorder() for _ in range(3)]
            for ear in ears:
                upstream.start(post(), LaneId("a", "model"), ear)
            for ear in ears:
                await ear.last_word()
            await until(lambda: open_connections(upstream) == 0)
            assert idle_connections(upstream) == 0
            assert (await ask(upstream)).words[-1] == "ended"

    run(main())


def test_after_hanging_up_nothing_is_heard_and_the_server_knows(run: Run) -> None:
    gone = asyncio.Event()

    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.say(CHUNKED, b"1\r\na\r\n")
        await wire.reader.read()
        gone.set()

    async def main() -> None:
        async with Server(handler) as server, Asking(server.url) as upstream:
            ear = Recorder()
            attempt = upstream.start(post(), LaneId("a", "model"), ear)
            await ear.begun.wait()
            before = list(ear.words)
            attempt.hang_up()
            attempt.hang_up()
            await asyncio.wait_for(gone.wait(), 10)
            await until(lambda: open_connections(upstream) == 0)
            attempt.pause()
            attempt.resume()
            assert ear.words == before

    run(main())


@pytest.mark.parametrize("when", ["began", "heard"])
def test_an_ear_may_hang_up_in_the_middle_of_what_it_is_told(run: Run, when: str) -> None:
    async def main() -> None:
        async with Server(answering(OK)) as server, Asking(server.url) as upstream:

            class Impatient(Recorder):
                def began(self, status: int, headers: Headers) -> None:
                    super().began(status, headers)
                    if when == "began":
                        attempt.hang_up()

                def received(self, data: bytes) -> None:
                    super().received(data)
                    attempt.hang_up()

            ear = Impatient()
            attempt = upstream.start(post(), LaneId("a", "model"), ear)
            await ear.begun.wait()
            await until(lambda: open_connections(upstream) == 0)
            assert ear.words == (["began"] if when == "began" else ["began", "heard"])

    run(main())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_hanging_up_at_any_turn_of_connecting_leaves_nothing(run: Run, host: str) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        async with Server(answering(OK)) as server:
            for turns in range(40):
                async with Asking(f"http://{host}:{server.port}") as upstream:
                    ear = Recorder()
                    attempt = upstream.start(post(), LaneId("a", "model"), ear)
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    words = list(ear.words)
                    attempt.hang_up()
                    if turns % 2 and "ended" not in words:
                        await until(lambda: open_connections(upstream) == 0)
                assert ear.words == words
        assert asyncio.all_tasks() == before

    run(main())


def test_a_paused_attempt_is_told_no_more_and_goes_on_when_resumed(run: Run) -> None:
    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n")
        await wire.say(*[bytes(1_000_000)] * 30)

    async def main() -> None:
        async with Server(handler) as server, Asking(server.url) as upstream:
            ear = Recorder()
            attempt = upstream.start(post(), LaneId("a", "model"), ear)
            await ear.begun.wait()
            attempt.pause()
            await asyncio.sleep(0.05)
            received = len(ear.body)
            await asyncio.sleep(0.05)
            assert len(ear.body) == received < 30_000_000
            attempt.resume()
            assert await ear.last_word() == "ended"
            assert len(ear.body) == 30_000_000

    run(main())


def test_an_attempt_that_is_paused_at_its_end_ends_and_leaves_a_reading_connection(
    run: Run,
) -> None:
    async def main() -> None:
        async with Server(answering(OK)) as server, Asking(server.url) as upstream:
            attempts: list[UpstreamAttempt] = []

            class Pausing(Recorder):
                def received(self, data: bytes) -> None:
                    super().received(data)
                    attempts[-1].pause()

            for _ in range(3):
                ear = Pausing()
                attempts.append(upstream.start(post(), LaneId("a", "model"), ear))
                assert await ear.last_word() == "ended"
            assert server.connections == 1

    run(main())


def test_an_attempt_paused_before_it_is_connected_hears_nothing_until_resumed(run: Run) -> None:
    async def main() -> None:
        async with Server(answering(OK)) as server, Asking(server.url) as upstream:
            ear = Recorder()
            attempt = upstream.start(post(), LaneId("a", "model"), ear)
            attempt.pause()
            await until(lambda: open_connections(upstream) == 1)
            await asyncio.sleep(0.05)
            assert ear.words == []
            attempt.resume()
            assert await ear.last_word() == "ended"

    run(main())


@pytest.mark.parametrize("error", [KeyError("a bug"), OSError("a bug that looks like the network")])
@pytest.mark.parametrize("word", ["began", "heard", "ended"])
def test_an_ear_that_raises_reaches_the_loops_handler_and_its_attempt_still_ends(
    run: Run, word: str, error: Exception
) -> None:
    async def main() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context.get("exception"))
        )

        class Faulty(Recorder):
            def began(self, status: int, headers: Headers) -> None:
                super().began(status, headers)
                self._fail("began")

            def received(self, data: bytes) -> None:
                super().received(data)
                self._fail("heard")

            def ended(self) -> None:
                super().ended()
                self._fail("ended")

            def _fail(self, now: str) -> None:
                if now == word:
                    raise error

        async with Server(answering(OK)) as server, Asking(server.url) as upstream:
            ear = await ask_with(upstream, Faulty())
            assert ear.words[-1] == ("ended" if word == "ended" else "broke")
            await until(lambda: bool(reported))
            told = reported[0]
            assert told is error or (isinstance(told, RuntimeError) and told.__cause__ is error)
            assert (await ask(upstream)).words[-1] == "ended"

    run(main())


async def ask_with(upstream: HttpUpstream, ear: Recorder) -> Recorder:
    upstream.start(post(), LaneId("a", "model"), ear)
    await ear.last_word()
    return ear


def test_closing_breaks_off_everything_and_leaves_no_task(run: Run) -> None:
    async def silent(wire: Wire) -> None:
        await wire.request()
        await asyncio.Event().wait()

    async def main() -> None:
        before = asyncio.all_tasks()
        upstream_ears = [Recorder() for _ in range(4)]
        async with Server(silent) as server:
            upstream = HttpUpstream({"a": Origin(server.url)})
            for ear in upstream_ears[:2]:
                upstream.start(post(), LaneId("a", "model"), ear)
            await until(lambda: server.connections == 2)
            for ear in upstream_ears[2:]:  # still connecting
                upstream.start(post(), LaneId("a", "model"), ear)
            await upstream.close()
            assert open_connections(upstream) == 0
            late = Recorder()
            upstream.start(post(), LaneId("a", "model"), late)
            assert late.words == []
            for ear in (*upstream_ears, late):
                assert await ear.last_word() == "broke"
                assert isinstance(ear.error, ClosedHereError)
            await upstream.close()
        assert asyncio.all_tasks() == before

    run(main())


def test_each_lane_goes_to_the_origin_of_its_upstream(run: Run) -> None:
    async def main() -> None:
        async with Server(answering(OK)) as one, Server(answering(OK)) as two:
            upstream = HttpUpstream({"one": Origin(one.url), "two": Origin(two.url)})
            for lane in (
                LaneId("one", "claude", "1"),
                LaneId("two", "claude/x", "2"),
                LaneId("two"),
            ):
                ear = Recorder()
                upstream.start(post(), lane, ear)
                await ear.last_word()
            assert (one.connections, two.connections) == (1, 1)
            with pytest.raises(InternalError, match="three/claude"):
                upstream.start(post(), LaneId("three", "claude"), Recorder())
            await upstream.close()

    run(main())


def test_what_would_break_the_head_is_refused_before_anything_is_sent(run: Run) -> None:
    async def main() -> None:
        async with Server(answering(OK)) as server, Asking(server.url) as upstream:
            bad = UpstreamRequest(b"POST", b"/v1/messages", [(b"x", b"y\r\nhost: elsewhere")], b"")
            with pytest.raises(ValueError, match="line end"):
                upstream.start(bad, LaneId("a", "model"), Recorder())
            await asyncio.sleep(0.01)
            assert server.connections == 0

    run(main())


def test_finished_attempts_need_no_garbage_collector(run: Run) -> None:
    class Holding(Recorder):
        attempt: object = None

    async def one(upstream: HttpUpstream) -> None:
        ear = Holding()
        ear.attempt = upstream.start(post(), LaneId("a", "model"), ear)
        await ear.last_word()

    async def main() -> None:
        async with Server(answering(OK)) as server, Asking(server.url) as upstream:
            await one(upstream)
            gc.collect()
            gc.disable()
            try:
                before = len(gc.get_objects())
                for _ in range(200):
                    await one(upstream)
                assert len(gc.get_objects()) - before < 150
            finally:
                gc.enable()

    run(main())
