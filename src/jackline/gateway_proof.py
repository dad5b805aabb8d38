"""Have a gateway prove that it is this user's before anything is sent to it.

Rules: (1) a client asks with a fresh random nonce, and the gateway answers with a signature under
the user's installation key of that nonce, of the socket address that it reached and, as loopback
has the same addresses everywhere, of its network: whoever passes the request on to the real gateway
sits at another address or on another machine (of a home that several share), and fails; (2) the
request follows on the connection that was proved; (3) all of an answer is read within a time and a
size; (4) only the standard library is imported, and of it little, because hooks load this module at
every tool call.
"""

from __future__ import annotations

import os
import time

# What `socket` is built on, and a third of a hook's time quicker to load.
from _socket import gethostname, socket

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
    own = f" {_this_network()}" if host == "::1" or host.startswith("127.") else ""
    return f"{host} {name[1]}{own}"


def _this_network() -> str:
    """What tells the loopback addresses of this machine, or container, from those of others.

    Read anew each time: a machine may be renamed while its gateway runs.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:  # noqa: PTH123 -- quick to load
            boot = file.read(64).decode("latin-1").strip()
        return f"{boot} {os.stat('/proc/self/ns/net').st_ino}"  # noqa: PTH116
    except OSError:  # no Linux: there a machine has one network
        return gethostname()


# --- the client's side ----------------------------------------------------------------------------


class Challenge:
    """A question that only the user's own gateway can answer, and its answer as it comes."""

    def __init__(self, authority: str, key: bytes) -> None:
        self._nonce = os.urandom(_NONCE_BYTES).hex()
        self._key = key
        self._received = bytearray()
        self.question = (
            f"GET {PATH}?nonce={self._nonce} HTTP/1.1\r\nhost: {authority}\r\n\r\n".encode(
                "latin-1"
            )
        )

    def is_met(self, data: bytes, peer: object) -> bool:
        """Whether the answer is whole and right with these bytes; else UnprovenError, or more.

        `peer` is the name of the other end of the connection on which they came.
        """
        if not data:
            raise UnprovenError("it hung up when asked to prove itself")
        received = self._received
        received += data
        start = received.find(_HEAD_END)
        if start < 0:
            if len(received) > _PROOF_HEAD:
                raise UnprovenError("its answer is too large")
            return False
        try:
            status, length = _read_head(bytes(received[:start]))
        except ConnectionError as error:
            raise UnprovenError(f"it did not prove itself: {error}") from error
        if status != 200:
            raise UnprovenError(f"it answered {status} when asked to prove itself", status)
        if length is None or length > _PROOF_BODY:
            raise UnprovenError("its answer is no proof", status)
        body = bytes(received[start + len(_HEAD_END) :])
        if len(body) > length:
            raise UnprovenError("it said more than it was asked for", status)
        if len(body) < length:
            return False
        parts = (self._nonce.encode(), socket_address(peer).encode())
        if not is_signature(self._key, body.decode("latin-1"), _PURPOSE, *parts):
            raise UnprovenError("its proof is wrong", status)
        return True


def prove(line: socket, authority: str, key: bytes, until: float) -> None:
    """Return when the gateway at the other end of `line` has proved itself; else UnprovenError.

    `until` is by the monotonic clock. Nothing but a random number has been sent before.
    """
    challenge = Challenge(authority, key)
    try:
        exchange = _Exchange(line, until)
        exchange.send(challenge.question)
        while not challenge.is_met(exchange.receive(_PROOF_BODY), line.getpeername()):
            pass
    except UnprovenError:
        raise
    except OSError as error:
        raise UnprovenError(f"it did not prove itself: {error}") from error


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


def is_token(text: str) -> bool:
    """Whether this can be a control token, and so may stand in a header."""
    return 0 < len(text) <= _LONGEST_TOKEN and _TOKEN_SIGNS.issuperset(text)
