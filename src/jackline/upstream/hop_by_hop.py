"""Tell the headers that belong to the message from those that belong to one connection.

Rules: (1) order and spelling of what is kept stay as they were; (2) whatever `Connection` names
goes with it (RFC 9110, 7.6.1); (3) the answer depends on nothing but the headers; (4) what an
upstream says to browsers about its own site does not hold for ours: its answers come without it.
Not here: writing the headers that a connection needs (head.py).
"""

from __future__ import annotations

from jackline.upstream.port import Headers

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
# A browser would take these for the gateway's own word: who may read it, which cookies it sets for
# every port of this machine, where else it can be reached, what to delete.
_TO_BROWSERS = frozenset(
    {
        b"alt-svc",
        b"clear-site-data",
        b"nel",
        b"public-key-pins",
        b"refresh",
        b"report-to",
        b"reporting-endpoints",
        b"service-worker-allowed",
        b"set-cookie",
        b"set-cookie2",
        b"strict-transport-security",
        b"timing-allow-origin",
    }
)
_ONE_CONNECTIONS = (b"proxy-",)
_CROSS_ORIGIN = b"access-control-"
_NAMES_NOTHING = frozenset({b"keep-alive", b"close", b""})
# Clients and providers use some dozens of names; whoever invents more of them gains nothing.
_REMEMBERED_NAMES = 1024


class Sieve(dict[bytes, bool]):
    """Whether a header of this name is kept, remembered for each spelling that was seen."""

    __slots__ = ("_beginnings", "_dropped")

    def __init__(self, dropped: frozenset[bytes], *beginnings: bytes) -> None:
        super().__init__()
        self._dropped = dropped
        self._beginnings = (*_ONE_CONNECTIONS, *beginnings)

    def __missing__(self, name: bytes) -> bool:
        plain = name.lower()
        is_kept = plain not in self._dropped and not plain.startswith(self._beginnings)
        if len(self) < _REMEMBERED_NAMES:
            self[name] = is_kept
        return is_kept

    def keep(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The headers that pass, and that no `Connection` header names."""
        return self.sift(headers)[0]

    def sift(self, headers: Headers) -> tuple[list[tuple[bytes, bytes]], Headers]:
        """The headers that pass, and those that by their own name do not."""
        kept = [pair for pair in headers if self[pair[0]]]
        if len(kept) == len(headers):
            return kept, ()
        dropped = [pair for pair in headers if not self[pair[0]]]
        named = _named_by_connection(dropped)
        if named:
            kept = [pair for pair in kept if pair[0].lower() not in named]
        return kept, dropped


def _named_by_connection(dropped: Headers) -> set[bytes]:
    named: set[bytes] = set()
    for name, value in dropped:
        if len(name) == 10 and name.lower() == b"connection":
            named.update(token.strip().lower() for token in value.split(b","))
    return named - _NAMES_NOTHING if named else named


END_TO_END = Sieve(HOP_BY_HOP)
OF_ANSWERS = Sieve(HOP_BY_HOP | _TO_BROWSERS, _CROSS_ORIGIN)


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers without those that concern only the connection they came on."""
    return END_TO_END.keep(headers)
