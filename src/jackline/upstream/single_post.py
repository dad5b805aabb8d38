"""Post one document to an address that the user named: of a collector, or a webhook.

Rules: (1) it waits, and so runs in a thread; (2) no redirect is followed: whoever answers at that
address does not say where the document, or the credential beside it, goes next; (3) the proxy of
the environment is not used for this machine; (4) it ends in time, however slowly the other side
answers: a socket's own limit begins anew with every byte.
"""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import Message
from functools import partial
from typing import IO, Any
from urllib.parse import urlsplit

from jackline.upstream.origin import Address

_MOST_READ = 4096


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: HTTPError with its status."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        """Follow none."""


class _Deadline:
    """Shuts the connections of one post down when its time is over."""

    def __init__(self) -> None:
        self.is_over = False
        self._sockets: list[socket.socket] = []

    @contextmanager
    def of(self, seconds: float) -> Iterator[None]:
        """The block has so many seconds."""
        timer = threading.Timer(seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def opens(self, address: tuple[str, int], *limits: Any) -> socket.socket:
        """As `socket.create_connection`, which connections call for every socket."""
        opened = socket.create_connection(address, *limits)
        # A second name for it: the first is taken by TLS, or closed before the answer is read.
        self._sockets.append(opened.dup())
        if self.is_over:
            self._end()
        return opened

    def close(self) -> None:
        """Let go of the sockets."""
        for each in self._sockets:
            each.close()

    def _end(self) -> None:
        self.is_over = True
        for each in self._sockets:
            with suppress(OSError):  # it may have ended by itself
                each.shutdown(socket.SHUT_RDWR)


class _Plain(urllib.request.HTTPHandler):
    """Connections with sockets that the deadline can shut down."""

    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connection, http.client.HTTPConnection, self._deadline), req)


class _Encrypted(urllib.request.HTTPSHandler):
    """The same with TLS."""

    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connection, http.client.HTTPSConnection, self._deadline), req)


def _connection(
    kind: type[http.client.HTTPConnection], deadline: _Deadline, host: str, **options: Any
) -> http.client.HTTPConnection:
    connection = kind(host, **options)
    # http.client's own way to open a socket; it has no other.
    connection._create_connection = deadline.opens  # type: ignore[attr-defined] # noqa: SLF001
    return connection


def post(url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> None:
    """Send it; OSError, ValueError or HTTPException when it was not accepted in so many seconds.

    Of the answer nothing counts but its status: one that is not 2xx is urllib's HTTPError.
    """
    deadline = _Deadline()
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    handlers += [_Plain(deadline), _Encrypted(deadline)]
    parts = urlsplit(url)
    if Address(parts.scheme, parts.hostname or "", 0).is_loopback:
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, body, dict(headers))  # noqa: S310 -- its callers check the scheme
    try:
        with deadline.of(timeout):
            answer = urllib.request.build_opener(*handlers).open(request, timeout=timeout)
            with answer:
                if deadline.is_over:  # a head that was cut off there can pass for a whole one
                    raise TimeoutError
                # It was accepted: however the rest comes, sending it again would send it twice.
                with suppress(OSError, http.client.HTTPException):
                    answer.read(_MOST_READ)
    except (OSError, http.client.HTTPException) as error:
        if deadline.is_over:
            raise TimeoutError(f"no answer within {timeout:g} s") from error
        raise
    finally:
        deadline.close()
