"""What `classify` makes of everything that can go wrong on the way, as it really comes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import trustme

from jackline.failures import Kind, Observation, classify
from jackline.upstream import Origin
from tests.ports import free_port
from tests.upstream.conftest import Certified, Run
from tests.upstream.loopback import Asking, Recorder, Server, Wire, answering, ask

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def verdict(error: OSError | None) -> tuple[Kind, str | None]:
    assert error is not None
    failure = classify(Observation.of_exception(error), now=datetime.now(UTC))
    return failure.kind, failure.sub


async def broken(origin: Origin | str) -> Recorder:
    async with Asking(origin) as upstream:
        ear = await ask(upstream)
    assert ear.words[-1] == "broke"
    return ear


def test_nobody_listens(run: Run) -> None:
    async def main() -> None:
        port = free_port()
        for host in ("127.0.0.1", "localhost"):
            ear = await broken(f"http://{host}:{port}")
            assert isinstance(ear.error, ConnectionRefusedError)
            assert verdict(ear.error) == (Kind.NETWORK_EDGE, "refused")

    run(main())


def test_no_such_name(run: Run) -> None:
    async def main() -> None:
        ear = await broken("http://no-such-host.invalid")
        assert isinstance(ear.error, socket.gaierror)
        assert verdict(ear.error) == (Kind.NETWORK_EDGE, "dns")

    run(main())


def test_no_connection_in_time(run: Run) -> None:
    async def mute(wire: Wire) -> None:
        await wire.reader.read()

    async def main() -> None:
        async with Server(mute) as server:
            url = server.url.replace("http:", "https:")
            ear = await broken(Origin(url, connect_seconds=0.05))
            assert isinstance(ear.error, TimeoutError)
            assert verdict(ear.error) == (Kind.NETWORK_EDGE, "connect_timeout")

    run(main())


def test_no_tunnel_in_time(run: Run) -> None:
    async def mute(wire: Wire) -> None:
        await wire.reader.read()

    async def main() -> None:
        async with Server(mute) as between:
            origin = Origin("https://provider.test", proxy=between.url, connect_seconds=0.05)
            assert verdict((await broken(origin)).error) == (Kind.NETWORK_EDGE, "connect_timeout")

    run(main())


def test_a_certificate_that_is_not_trusted(run: Run, certified: Certified) -> None:
    async def main() -> None:
        async with Server(answering(OK), certified.server) as server:
            ear = await broken(server.url)
            assert isinstance(ear.error, ssl.SSLCertVerificationError)
            assert verdict(ear.error) == (Kind.NETWORK_EDGE, "tls")

    run(main())


def test_a_certificate_for_another_name(run: Run, certified: Certified) -> None:
    async def main() -> None:
        async with Server(answering(OK), certified.server) as server:
            url = server.url.replace("127.0.0.1", "localhost")
            ear = await broken(Origin(url, ca_file=certified.ca_file))
            assert isinstance(ear.error, ssl.SSLCertVerificationError)
            assert verdict(ear.error) == (Kind.NETWORK_EDGE, "tls")

    run(main())


def test_a_file_of_certificates_that_is_none(run: Run, certified: Certified) -> None:
    async def main() -> None:
        async with Server(answering(OK), certified.server) as server:
            ear = await broken(Origin(server.url, ca_file=f"{certified.ca_file}.missing"))
            assert isinstance(ear.error, FileNotFoundError)

    run(main())


def test_no_tls_on_the_other_side(run: Run) -> None:
    async def plain(wire: Wire) -> None:
        await wire.reader.read(100)
        await wire.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        wire.close()

    async def main() -> None:
        async with Server(plain) as server:
            ear = await broken(server.url.replace("http:", "https:"))
            assert verdict(ear.error) == (Kind.NETWORK_EDGE, "tls")

    run(main())


@pytest.mark.parametrize("how", ["close", "reset"])
def test_an_end_before_the_answer(run: Run, how: str) -> None:
    async def handler(wire: Wire) -> None:
        await wire.request()
        wire.close() if how == "close" else wire.reset()

    async def main() -> None:
        async with Server(handler) as server:
            assert verdict((await broken(server.url)).error) == (Kind.NETWORK_EDGE, "reset")

    run(main())


@pytest.mark.parametrize(
    "begin", [OK[:10], OK[:-1], CHUNKED, CHUNKED + b"5\r\nab", CHUNKED + b"2\r\nab\r\n"]
)
@pytest.mark.parametrize("how", ["close", "reset"])
def test_an_end_in_the_middle_of_the_answer(run: Run, begin: bytes, how: str) -> None:
    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.say(begin)
        if how == "close":
            wire.close()
        else:
            linger = b"\1\0\0\0\0\0\0\0"
            wire.writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, linger
            )
            await asyncio.sleep(0.02)  # what was said must arrive before the reset does
            wire.reset()

    async def main() -> None:
        async with Server(handler) as server:
            kind, _ = verdict((await broken(server.url)).error)
            assert kind is Kind.TRUNCATED_STREAM

    run(main())


def test_a_reset_of_an_answer_that_has_no_length(run: Run) -> None:
    async def handler(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\n\r\nabc")
        wire.writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        )
        await asyncio.sleep(0.02)  # what was said must arrive before the reset does
        wire.reset()

    async def main() -> None:
        async with Server(handler) as server:
            kind, _ = verdict((await broken(server.url)).error)
            assert kind is Kind.TRUNCATED_STREAM

    run(main())


def test_an_answer_that_is_not_http(run: Run) -> None:
    async def main() -> None:
        async with Server(answering(b"220 mail.example ESMTP\r\n")) as server:
            assert verdict((await broken(server.url)).error)[0] is Kind.NETWORK_EDGE

    run(main())


def test_chunks_that_are_none(run: Run) -> None:
    async def main() -> None:
        async with Server(answering(CHUNKED + b"2\r\nabXY")) as server:
            assert verdict((await broken(server.url)).error) == (Kind.TRUNCATED_STREAM, "decode")

    run(main())


@pytest.mark.parametrize("status", [b"407", b"403", b"502"])
def test_a_proxy_that_refuses(run: Run, status: bytes) -> None:
    async def main() -> None:
        async with Server(answering(b"HTTP/1.1 " + status + b" No\r\n\r\n")) as between:
            ear = await broken(Origin("https://provider.test", proxy=between.url))
            assert verdict(ear.error) == (Kind.NETWORK_EDGE, "proxy")

    run(main())


def test_an_authority_of_its_own_replaces_those_of_the_machine(
    run: Run, certified: Certified, tmp_path: pytest.TempPathFactory
) -> None:
    other = f"{tmp_path}/other.pem"
    trustme.CA().cert_pem.write_to_path(other)

    async def main() -> None:
        async with Server(answering(OK), certified.server) as server:
            origin = Origin(server.url, ca_file=other)
            assert isinstance((await broken(origin)).error, ssl.SSLCertVerificationError)
            origin = replace(origin, ca_file=certified.ca_file)
            async with Asking(origin) as upstream:
                assert (await ask(upstream)).words[-1] == "ended"

    run(main())
