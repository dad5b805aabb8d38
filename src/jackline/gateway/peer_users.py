"""Know which user of this machine is at the other end of a connection.

Rules: (1) the system is asked, by the addresses of both ends: nothing that the peer says counts;
(2) as long as the system answers at all, a peer is known to be this user's or it counts as gone:
one that has reset its end has no address any more, but what it sent before is still delivered;
(3) an answer counts only if it is about this very connection: to the last question asked, and no
listener on the peer's port; (4) where the system does not tell (only Linux does), nobody is refused
for it.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import suppress
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
_OWNER_AT = _PORTS_AT + 48 + 12
# Answers to earlier questions, which came too late for whoever asked.
_MOST_STALE = 16
_ALL_STATES = 0xFFFFFFFF
_SECONDS = 1.0


class Peer(Enum):
    """Whose the other end is."""

    OWN = "this user's, or root's"
    OTHER = "another user's"
    GONE = "nobody's any more"
    UNKNOWN = "not known"


class PeerUsers:
    """Asks the system about the other ends of connections within this machine."""

    def __init__(self) -> None:
        self._line: socket.socket | None = None
        self._sequence = 0
        if sys.platform == "linux":
            with suppress(OSError):
                # Answers come at once, from the kernel; the limit is for a kernel that is none.
                self._line = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG)
                self._line.settimeout(_SECONDS)
            if self._line is not None and not self._answers_truly():
                self.close()

    def peer_of(self, local: object, remote: object) -> Peer:
        """Whose the other end is, by `getsockname()` and `getpeername()` of ours."""
        if self._line is None:
            return Peer.UNKNOWN
        if not isinstance(local, tuple) or not isinstance(remote, tuple):
            return Peer.GONE
        try:
            user = self._user_of(self._line, remote, local)
        except (OSError, ValueError, struct.error):
            return Peer.GONE
        if user is None:
            return Peer.GONE
        return Peer.OWN if user in (0, _own_user()) else Peer.OTHER

    def close(self) -> None:
        """Let go of the line to the system."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _answers_truly(self) -> bool:
        """Whether the system knows this process's own user at the end of a connection."""
        with suppress(OSError), socket.create_server(("127.0.0.1", 0)) as server:
            name = server.getsockname()
            with socket.create_connection(name, timeout=_SECONDS) as client:
                return self.peer_of(name, client.getsockname()) is Peer.OWN
        return False

    def _user_of(
        self, line: socket.socket, near: tuple[object, ...], far: tuple[object, ...]
    ) -> int | None:
        """The user of the socket at `near` that is connected to `far`; None if there is none."""
        self._sequence = sequence = (self._sequence + 1) % 2**32
        line.send(_question(sequence, near, far))
        for _ in range(_MOST_STALE):
            answer = line.recv(4096)
            _, kind, _, answered, _ = _HEAD.unpack_from(answer)
            if answered == sequence:
                break
        else:
            return None
        if kind == _NLMSG_ERROR:
            return None
        if _PORTS.unpack_from(answer, _PORTS_AT) != (_port(near), _port(far)):
            return None  # where no connection is found, a listener on the port is given instead
        user, inode = _OWNER.unpack_from(answer, _OWNER_AT)
        # A socket that its owner has closed has no inode, and no user either.
        return int(user) if inode else None


def _question(sequence: int, near: tuple[object, ...], far: tuple[object, ...]) -> bytes:
    family, near_host = _packed(str(near[0]))
    _, far_host = _packed(str(far[0]))
    asked = b"".join(
        (
            _ASKED.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES),
            _PORTS.pack(_port(near), _port(far)),
            near_host.ljust(16, b"\0"),
            far_host.ljust(16, b"\0"),
            struct.pack("=I", 0),
            _NO_COOKIE,
        )
    )
    size = _HEAD.size + len(asked)
    return _HEAD.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, sequence, 0) + asked


def _port(address: tuple[object, ...]) -> int:
    return int(str(address[1]))


def _packed(host: str) -> tuple[int, bytes]:
    host = host.partition("%")[0]
    if ":" in host:
        return socket.AF_INET6, socket.inet_pton(socket.AF_INET6, host)
    return socket.AF_INET, socket.inet_pton(socket.AF_INET, host)


def _own_user() -> int:
    return os.getuid() if sys.platform != "win32" else 0
