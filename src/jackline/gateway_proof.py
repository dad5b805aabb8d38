"""Have a gateway prove that it is this user's before anything is sent to it.

Rules: (1) a client asks with a fresh random nonce, and the gateway answers with a signature under
the user's installation key of that nonce and of the socket address that it reached: whoever
passes the request on to the real gateway sits at another address, and fails; (2) the request
follows on the connection that was proved; (3) all of an answer is read within a time and a size;
(4) an address in `gateway.json` is one of this machine, written in the one way in which a gateway
writes it; (5) only the standard library is imported, and of it little, because hooks load this
module at every tool call.
"""

from __future__ import annotations

import os
import time

# What `socket` is built on, and a third of a hook's time quicker to load.
from _socket import socket

from jackline.private_files import is_signature, signature

PATH = "/_jackline/proof"
_PURPOSE = "gateway proof"
_NONCE_BYTES = 32
_SHORTEST_NONCE, _LONGEST_NONCE = 32, 128
_HEX = frozenset("0123456789abcdef")
_HEAD_END = b"\r\n\r\n"
_PROOF_HEAD = 8192
_PROOF_BODY = 1024
_PIECE = 65_536
_LONGEST_TOKEN = 256
_TOKEN_SIGNS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_HOST_SIGNS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


class UnprovenError(ConnectionError):
    """Whoever listens there did not prove to be this user's gateway; `status` is its HTTP status.

    It is 0 when there was no answer in HTTP.
    """

    def __init__(self, words: str, status: int = 0) -> None:
        super().__init__(words)
        self.status = status


# --- the gateway's side ---------------------------------------------------------------------------


def nonce_in(query: bytes) -> str | None:
    """The nonce of a request for proof; None when there is none that may be signed."""
    name, _, value = query.partition(b"=")
    nonce = value.decode("latin-1")
    if name != b"nonce" or not _SHORTEST_NONCE <= len(nonce) <= _LONGEST_NONCE:
        return None
    return nonce if _HEX.issuperset(nonce) else None


def proof(key: bytes, nonce: str, address: str) -> str:
    """What a gateway answers to a request at this socket address."""
    return signature(key, _PURPOSE, nonce.encode(), address.encode())


def socket_address(name: object) -> str:
    """A socket's name, such as `getsockname()` gives, as text that both sides write alike."""
    if not isinstance(name, tuple) or len(name) < 2:
        raise UnprovenError("this connection has no address")
    host = str(name[0]).partition("%")[0].removeprefix("::ffff:")
    return f"{host} {name[1]}"


# --- the client's side ----------------------------------------------------------------------------


def prove(line: socket, authority: str, key: bytes, until: float) -> None:
    """Return when the gateway at the other end of `line` has proved itself; else UnprovenError.

    `until` is by the monotonic clock. Nothing but a random number has been sent before.
    """
    nonce = os.urandom(_NONCE_BYTES).hex()
    question = f"GET {PATH}?nonce={nonce} HTTP/1.1\r\nhost: {authority}\r\n\r\n"
    try:
        exchange = _Exchange(line, until)
        exchange.send(question.encode("latin-1"))
        status, answer = exchange.short_answer()
    except UnprovenError:
        raise
    except OSError as error:
        raise UnprovenError(f"it did not prove itself: {error}") from error
    if status != 200:
        raise UnprovenError(f"it answered {status} when asked to prove itself", status)
    address = socket_address(line.getpeername())
    if not is_signature(key, answer, _PURPOSE, nonce.encode(), address.encode()):
        raise UnprovenError("its proof is wrong", status)


def whole_answer(line: socket, request: bytes, until: float, most: int) -> tuple[int, bytes]:
    """Status and body of what is answered to a request with `connection: close`.

    OSError when it does not come whole, in time, or is larger than `most`.
    """
    exchange = _Exchange(line, until)
    exchange.send(request)
    received = bytearray()
    while piece := exchange.receive(_PIECE):
        received += piece
        if len(received) > most:
            raise ConnectionError("the answer is too large")
    head, mark, body = bytes(received).partition(_HEAD_END)
    if not mark:
        raise ConnectionError("the answer broke off")
    status, length = _read_head(head)
    if length is not None and length != len(body):
        raise ConnectionError("the answer broke off")
    return status, body


class _Exchange:
    """Sends and receives on one connection, until a time by the monotonic clock."""

    def __init__(self, line: socket, until: float) -> None:
        self._line = line
        self._until = until

    def send(self, data: bytes) -> None:
        self._set_time()
        self._line.sendall(data)

    def receive(self, most: int) -> bytes:
        self._set_time()
        return self._line.recv(most)

    def _set_time(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("it did not answer in time")
        self._line.settimeout(left)

    def short_answer(self) -> tuple[int, str]:
        """Status and text of an answer whose connection stays open."""
        received = bytearray()
        while _HEAD_END not in received:
            received += self._some()
            if len(received) > _PROOF_HEAD:
                raise UnprovenError("its answer is too large")
        head, _, start = bytes(received).partition(_HEAD_END)
        status, length = _read_head(head)
        if status != 200:
            return status, ""
        if length is None or length > _PROOF_BODY:
            raise UnprovenError("its answer is no proof", status)
        body = bytearray(start)
        while len(body) < length:
            body += self._some()
        if len(body) != length:
            raise UnprovenError("it said more than it was asked for", status)
        return status, body.decode("latin-1")

    def _some(self) -> bytes:
        piece = self.receive(_PROOF_BODY)
        if not piece:
            raise UnprovenError("it hung up when asked to prove itself")
        return piece


def _read_head(head: bytes) -> tuple[int, int | None]:
    """Status and declared length; ConnectionError when this is no head of HTTP/1.1."""
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or words[0] != b"HTTP/1.1" or len(words[1]) != 3 or not words[1].isdigit():
        raise ConnectionError("this is no answer in HTTP")
    length = None
    for each in lines:
        name, _, value = each.partition(b":")
        if name.strip().lower() != b"content-length":
            continue
        value = value.strip()
        if length is not None or not value.isdigit() or len(value) > 12:
            raise ConnectionError("this is no answer in HTTP")
        length = int(value)
    return int(words[1]), length


# --- addresses and tokens -------------------------------------------------------------------------


def host_and_port(url: str) -> tuple[str, int]:
    """Where a gateway's own URL leads to; ValueError unless it is written as gateways write it."""
    start, mark, place = url.partition("http://")
    if start or not mark:
        raise ValueError("not an address of a gateway")
    if place.startswith("["):
        host, mark, port = place[1:].partition("]:")
        fits = ":" in host and _HEX.union("ABCDEF:.").issuperset(host)
    else:
        host, mark, port = place.partition(":")
        fits = _HOST_SIGNS.issuperset(host)
    if not mark or not host or not fits:
        raise ValueError("not an address of a gateway")
    if not (port.isascii() and port.isdigit()) or len(port) > 5 or port.startswith("0"):
        raise ValueError("not a port")
    number = int(port)
    if number > 65_535:
        raise ValueError("not a port")
    return host, number


def authority_of(host: str, port: int) -> str:
    """The value of the Host header."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether this names nothing but this machine, in the plain way of writing it."""
    if host in ("localhost", "::1"):
        return True
    parts = host.split(".")
    return (
        len(parts) == 4
        and parts[0] == "127"
        and all(part.isascii() and part.isdigit() and len(part) <= 3 for part in parts)
        and all(str(int(part)) == part and int(part) < 256 for part in parts)
    )


def is_token(text: str) -> bool:
    """Whether this can be a control token, and so may stand in a header."""
    return 0 < len(text) <= _LONGEST_TOKEN and _TOKEN_SIGNS.issuperset(text)
