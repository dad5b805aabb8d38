"""TLS with certificates of our own, and origins behind HTTP proxies."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Self

import pytest

from jackline.lane_id import LaneId
from jackline.upstream import Origin
from jackline.upstream.interface import ProxyRefusedError
from tests.upstream.conftest import Certified, Run
from tests.upstream.loopback import (
    Asking,
    Handler,
    Recorder,
    Server,
    Wire,
    answering,
    ask,
    get,
    open_connections,
    post,
    until,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_tls_with_a_trusted_certificate_keeps_its_connection(
    run: Run, certified: Certified
) -> None:
    async def main() -> None:
        async with (
            Server(answering(OK), certified.server) as server,
            Asking(Origin(server.url, ca_file=certified.ca_file)) as upstream,
        ):
            for _ in range(3):
                assert (await ask(upstream)).words == ["began", "heard", "ended"]
            assert server.connections == 1

    run(main())


def test_only_http_1_1_is_offered_and_the_name_is_told(run: Run, certified: Certified) -> None:
    async def handler(wire: Wire) -> None:
        tls: ssl.SSLObject = wire.writer.get_extra_info("ssl_object")
        chosen.append(tls.selected_alpn_protocol())
        await answering(OK)(wire)

    chosen: list[str | None] = []

    async def main() -> None:
        async with (
            Server(handler, certified.server) as server,
            Asking(Origin(server.url, ca_file=certified.ca_file)) as upstream,
        ):
            await ask(upstream)
        assert chosen == ["http/1.1"]

    run(main())


def test_the_environment_may_name_the_certificates(
    run: Run, certified: Certified, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certified.ca_file)

    async def main() -> None:
        async with (
            Server(answering(OK), certified.server) as server,
            Asking(server.url) as upstream,
        ):
            assert (await ask(upstream)).words[-1] == "ended"

    run(main())


def test_large_bodies_go_both_ways_through_tls(run: Run, certified: Certified) -> None:
    body = b"0123456789abcdef" * 200_000

    async def handler(wire: Wire) -> None:
        while request := await wire.request():
            echoed = request.partition(b"\r\n\r\n")[2]
            await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(echoed), echoed)

    async def main() -> None:
        async with (
            Server(handler, certified.server) as server,
            Asking(Origin(server.url, ca_file=certified.ca_file)) as upstream,
        ):
            for _ in range(2):
                assert (await ask(upstream, post(body))).body == body

    run(main())


def test_hanging_up_on_tls_leaves_nothing(run: Run, certified: Certified) -> None:
    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nab")
        await wire.reader.read()

    async def main() -> None:
        async with (
            Server(handler, certified.server) as server,
            Asking(Origin(server.url, ca_file=certified.ca_file)) as upstream,
        ):
            ear = Recorder()
            attempt = upstream.start(post(), LaneId("a", "model"), ear)
            await ear.begun.wait()
            attempt.hang_up()
            early = [upstream.start(post(), LaneId("a", "model"), Recorder()) for _ in range(10)]
            for turns, started in enumerate(early):
                for _ in range(turns):
                    await asyncio.sleep(0.001)
                started.hang_up()
            await until(lambda: open_connections(upstream) == 0)

    run(main())


CLOSED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfirst half"


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(("says_end", "last"), [(True, "ended"), (False, "broke")])
def test_an_answer_without_a_length_is_whole_only_if_tls_says_that_it_ends(
    run: Run, certified: Certified, newest: ssl.TLSVersion, says_end: bool, last: str
) -> None:
    """Whoever is in between can end the connection, and cannot write TLS's own end."""

    async def main() -> None:
        async with (
            RawTls(certified.server, CLOSED, newest, says_end=says_end) as server,
            Asking(Origin(server.url, ca_file=certified.ca_file)) as upstream,
        ):
            ear = await ask(upstream)
            assert ear.words == ["began", "heard", last]
            assert ear.body == b"first half"

    run(main())


class RawTls:
    """Answers one request over TLS that a test can end without a word."""

    def __init__(
        self, context: ssl.SSLContext, answer: bytes, newest: ssl.TLSVersion, *, says_end: bool
    ) -> None:
        self._context, self._answer, self._newest = context, answer, newest
        self._says_end = says_end

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        before, self._context.maximum_version = self._context.maximum_version, self._newest
        taken, given = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context.wrap_bio(taken, given, server_side=True)
        self._context.maximum_version = before

        async def step(do: Callable[[], object]) -> None:
            while True:
                try:
                    do()
                except ssl.SSLWantReadError:
                    writer.write(given.read())
                    taken.write(await reader.read(65536))
                else:
                    writer.write(given.read())
                    return

        await step(tls.do_handshake)
        await step(partial(tls.read, 65536))
        await step(partial(tls.write, self._answer))
        if self._says_end:
            with suppress(ssl.SSLWantReadError):
                tls.unwrap()
            writer.write(given.read())
        writer.close()


def proxy(requests: list[bytes], verdict: bytes, to_port: int = 0) -> Handler:
    """A proxy that answers CONNECT with the verdict, and relays where that is a success."""

    async def handler(wire: Wire) -> None:
        requests.append(await wire.request())
        await wire.say(verdict)
        if not to_port:
            await wire.reader.read()
            return
        reader, writer = await asyncio.open_connection("127.0.0.1", to_port)
        try:
            await asyncio.gather(copy(wire.reader, writer), copy(reader, wire.writer))
        finally:
            writer.transport.abort()

    return handler


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


def test_https_goes_through_a_tunnel(run: Run, certified: Certified) -> None:
    requests: list[bytes] = []
    credentials = b"Proxy-Authorization: Basic bWU6c2VAY3JldA==\r\n\r\n"

    async def main() -> None:
        async with Server(answering(OK), certified.server) as server:
            relaying = proxy(requests, b"HTTP/1.1 200 Connection established\r\n\r\n", server.port)
            async with Server(relaying) as between:
                origin = Origin(
                    "https://provider.test/api",
                    proxy=f"http://me:se%40cret@127.0.0.1:{between.port}",
                    ca_file=certified.ca_file,
                )
                async with Asking(origin) as upstream:
                    for _ in range(2):
                        assert (await ask(upstream)).words == ["began", "heard", "ended"]
                assert (server.connections, between.connections) == (1, 1)
        assert requests == [
            b"CONNECT provider.test:443 HTTP/1.1\r\nHost: provider.test:443\r\n" + credentials
        ]

    run(main())


@pytest.mark.parametrize(
    "verdict",
    [
        b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nno way",
        b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
        b"SSH-2.0\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
    ],
)
def test_a_tunnel_that_is_refused_breaks_and_does_not_tell_the_password(
    run: Run, verdict: bytes
) -> None:
    async def main() -> None:
        async with Server(proxy([], verdict)) as between:
            origin = Origin(
                "https://provider.test", proxy=f"http://me:secret@127.0.0.1:{between.port}"
            )
            assert "secret" not in repr(origin)
            async with Asking(origin) as upstream:
                ear = await ask(upstream)
                assert ear.words == ["broke"]
                assert isinstance(ear.error, ProxyRefusedError)
                assert "secret" not in str(ear.error)

    run(main())


def test_http_goes_in_absolute_form(run: Run) -> None:
    requests: list[bytes] = []

    async def handler(wire: Wire) -> None:
        while request := await wire.request():
            requests.append(request)
            await wire.say(OK)

    async def main() -> None:
        async with Server(handler) as between:
            origin = Origin(
                "http://provider.test:8080/api", proxy=f"http://me:pw@127.0.0.1:{between.port}"
            )
            async with Asking(origin) as upstream:
                assert (await ask(upstream, get())).words[-1] == "ended"
        assert requests[0].split(b"\r\n") == [
            b"GET http://provider.test:8080/api/v1/models HTTP/1.1",
            b"Host: provider.test:8080",
            b"Proxy-Authorization: Basic bWU6cHc=",
            b"",
            b"",
        ]

    run(main())


def test_this_machine_is_never_reached_through_a_proxy(run: Run) -> None:
    async def main() -> None:
        async with Server(answering(OK)) as server, Server(answering(OK)) as between:
            origin = Origin(server.url, proxy=between.url)
            async with Asking(origin) as upstream:
                await ask(upstream)
            assert (server.connections, between.connections) == (1, 0)

    run(main())
