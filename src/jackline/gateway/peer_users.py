"""Find out which user of this machine is at the other end of a connection.

Rules: (1) the source is the system, by the addresses of both ends: nothing that the peer says
counts; (2) as long as the system answers at all, a peer is known to be this user's or it counts as
gone: one that has reset its end has no address any more, but what it sent before is still
delivered; (3) an answer counts only if it is about this very connection: to the last question, and
no listener on the peer's port; (4) where the system does not answer (only Linux does), nobody is
refused for it; (5) that it does not answer is decided by the system's own refusal to answer about a
listener of this process, never by a lack of ports, files or memory, which another user can cause.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from enum import Enum

# From linux/netlink.h, sock_diag.h and inet_diag.h.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLMSG_ERROR = 2
_NLM_F_REQUEST = 1
_HEAD = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBxI")
_NO_COOKIE = b"\xff" * 8
_PORTS = struct.Struct("!HH")
# Where they stand behind the head: the socket's id comes first, and begins with both ports.
_PORTS_AT = _HEAD.size + 4
_OWNER = struct.Struct("=II")
_STATE_AT = _HEAD.size + 1
# From net/tcp_states.h: what the other end of a connection can be in that this end has not closed.
_CONNECTED = frozenset((1, 4, 5))
_LISTENING = frozenset((10,))
_ERROR = struct.Struct("=i")
_OWNER_AT = _PORTS_AT + 48 + 12
# Answers to earlier questions, which came too late.
_MOST_STALE = 16
_ALL_STATES = 0xFFFFFFFF
# Answers come at once, from the kernel; the limit is for one that is none, and keeps silent.
_SECONDS = 1.0
# What is scarce for a moment, and may be so because another user has all of it.
_SCARCE = frozenset(
    (
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOBUFS,
        errno.EAGAIN,
        errno.EINTR,
        errno.EADDRINUSE,
        errno.EBUSY,
        errno.ECONNREFUSED,
    )
)


class Peer(Enum):
    """Whose the other end is."""

    OWN = "this user's, or root's"
    OTHER = "another user's"
    GONE = "nobody's any more"
    UNCHECKED = "not known at the moment: the system lacks something"
    UNKNOWN = "not known: this system does not report it"


class PeerUsers:
    """Asks the system about the other ends of connections within this machine.

    `listener` is the address of a socket that this process listens at, and keeps open meanwhile.
    """

    def __init__(self, listener: object) -> None:
        self._line: socket.socket | None = None
        self._sequence = 0
        self._closed = False
        self._answers = sys.platform == "linux" and self._answers_about(listener)
        if not self._answers:
            self.close()

    def peer_of(self, local: object, remote: object) -> Peer:
        """Whose the other end is, by `getsockname()` and `getpeername()` of ours."""
        if not self._answers:
            return Peer.UNKNOWN
        if self._closed or not isinstance(local, tuple) or not isinstance(remote, tuple):
            return Peer.GONE
        try:
            user = self._user_of(remote, local, _CONNECTED)
        except _NotAnsweredError:
            return Peer.UNCHECKED
        except (OSError, ValueError, struct.error):
            return Peer.GONE
        if user is None:
            return Peer.GONE
        if sys.platform == "win32":
            own = 0
        else:
            own = os.getuid()
        return Peer.OWN if user in (0, own) else Peer.OTHER

    def close(self) -> None:
        """Let go of the line to the system; whoever comes now is not known any more."""
        self._closed = True
        self._drop_line()

    def _answers_about(self, listener: object) -> bool:
        """Whether the system reports the user of a socket of this process.

        False only where it refuses or keeps silent. It needs no port, no connection and no second
        socket for that: a user who has taken all of them would pass for nobody in particular.
        """
        if not isinstance(listener, tuple):
            return True  # nothing shows that it does not
        # No connection has this other end, so that the listener itself is found.
        nowhere = ("::" if ":" in str(listener[0]) else "0.0.0.0", 0)  # noqa: S104
        try:
            return self._user_of(listener, nowhere, _LISTENING) is not None
        except _NotAnsweredError as error:
            return error.is_scarce

    def _user_of(
        self, near: tuple[object, ...], far: tuple[object, ...], states: frozenset[int]
    ) -> int | None:
        """The user of the socket between `near` and `far`; None if none is in one of the states."""
        self._sequence = sequence = (self._sequence + 1) % 2**32
        question = _question(sequence, near, far)
        try:
            kind, answer = self._ask(sequence, question)
        except OSError as error:
            # A line that has failed once may hold half an answer: the next question gets another.
            self._drop_line()
            raise _NotAnsweredError(error.errno in _SCARCE) from error
        if kind == _NLMSG_ERROR:
            (negative,) = _ERROR.unpack_from(answer, _HEAD.size)
            if -negative in _SCARCE:
                raise _NotAnsweredError(is_scarce=True)
            return None
        if _PORTS.unpack_from(answer, _PORTS_AT) != (_port(near), _port(far)):
            return None  # where no connection is found, a listener on the port is reported instead
        if answer[_STATE_AT] not in states:
            return None
        user, inode = _OWNER.unpack_from(answer, _OWNER_AT)
        # A socket that its owner has closed has no inode, and no user either.
        return int(user) if inode else None

    def _ask(self, sequence: int, question: bytes) -> tuple[int, bytes]:
        """What is answered to this question: the kind of answer, and all of it."""
        line = self._line
        if line is None:
            if sys.platform != "linux":
                raise OSError("only Linux has netlink")
            line = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG)
            line.settimeout(_SECONDS)
            self._line = line
        line.send(question)
        for _ in range(_MOST_STALE):
            answer = line.recv(4096)
            _, kind, _, answered, _ = _HEAD.unpack_from(answer)
            if answered == sequence:
                return kind, answer
        raise OSError(errno.EAGAIN, "only answers to earlier questions")

    def _drop_line(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()


class _NotAnsweredError(Exception):
    """The system has not answered: for lack of something at the moment, or since it never does."""

    def __init__(self, is_scarce: bool) -> None:
        super().__init__()
        self.is_scarce = is_scarce


def _question(sequence: int, near: tuple[object, ...], far: tuple[object, ...]) -> bytes:
    family, near_host = _packed(str(near[0]))
    subject = b"".join(
        (
            _ASKED.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES),
            _PORTS.pack(_port(near), _port(far)),
            near_host.ljust(16, b"\0"),
            _packed(str(far[0]))[1].ljust(16, b"\0"),
            struct.pack("=I", 0),
            _NO_COOKIE,
        )
    )
    size = _HEAD.size + len(subject)
    return _HEAD.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, sequence, 0) + subject


def _port(address: tuple[object, ...]) -> int:
    return int(str(address[1]))


def _packed(host: str) -> tuple[int, bytes]:
    host = host.partition("%")[0]
    if ":" in host:
        return socket.AF_INET6, socket.inet_pton(socket.AF_INET6, host)
    return socket.AF_INET, socket.inet_pton(socket.AF_INET, host)
