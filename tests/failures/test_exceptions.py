"""Exceptions of our own process are distinguished without importing any HTTP client."""

from __future__ import annotations

import asyncio
import socket
import ssl
import urllib.error
import urllib.request

import pytest

from jackline.failures import Failure, Kind, Observation, classify
from tests.failures.examples import NOW
from tests.ports import free_port


def judged(exception: BaseException) -> Failure:
    return classify(Observation.of_exception(exception), now=NOW)


def test_a_port_where_nobody_listens_is_a_refused_connection() -> None:
    with pytest.raises(urllib.error.URLError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{free_port()}/")
    failure = judged(caught.value)
    assert (failure.kind, failure.sub) == (Kind.NETWORK_EDGE, "refused")
    assert failure.retry_same


def test_a_name_that_does_not_resolve_is_dns() -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011 -- the class is what is under test
        socket.create_connection(("host.invalid", 80), timeout=5)
    failure = judged(caught.value)
    assert (failure.kind, failure.sub) == (Kind.NETWORK_EDGE, "dns")


def test_a_silent_server_is_a_timeout() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(TimeoutError) as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout=0.05)
    assert judged(caught.value).kind is Kind.TIMEOUT


def test_a_server_that_does_not_speak_tls_is_a_tls_fault_on_this_side() -> None:
    async def scene() -> BaseException:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            try:
                await asyncio.open_connection(
                    "127.0.0.1", port, ssl=ssl.create_default_context(), server_hostname="x"
                )
            except OSError as error:
                return error
        raise AssertionError("a plain server passed for a TLS one")

    failure = judged(asyncio.run(scene()))
    assert (failure.kind, failure.sub) == (Kind.NETWORK_EDGE, "tls")
    assert not failure.failover_helps


@pytest.mark.parametrize(
    ("exception", "kind"),
    [
        (ConnectionResetError(104, "Connection reset by peer"), Kind.NETWORK_EDGE),
        (BrokenPipeError(32, "Broken pipe"), Kind.NETWORK_EDGE),
        (asyncio.IncompleteReadError(b"", 10), Kind.TRUNCATED_STREAM),
        (asyncio.CancelledError(), Kind.CLIENT_CANCEL),
        (KeyboardInterrupt(), Kind.CLIENT_CANCEL),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), Kind.NETWORK_EDGE),
        (ValueError("our bug"), Kind.TOOL_ERROR),
    ],
    ids=lambda value: type(value).__name__,
)
def test_known_exceptions(exception: BaseException, kind: Kind) -> None:
    assert judged(exception).kind is kind


def test_the_cause_is_found_behind_the_wrapper() -> None:
    wrapper = RuntimeError("request failed")
    wrapper.__cause__ = ConnectionRefusedError(111, "Connection refused")
    assert judged(wrapper).sub == "refused"
    assert judged(ExceptionGroup("many", [TimeoutError("slow")])).kind is Kind.TIMEOUT


def test_a_chain_with_a_loop_is_cut() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert judged(first).kind is Kind.TOOL_ERROR


def test_an_exception_that_cannot_print_itself_is_still_classified() -> None:
    class MuteError(TimeoutError):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert judged(MuteError()).kind is Kind.TIMEOUT
