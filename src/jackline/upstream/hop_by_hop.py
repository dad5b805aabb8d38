"""Tell the headers that belong to the message from those that belong to one connection.

Laws: (1) order and spelling of what is kept stay as they were; (2) whatever `Connection` names goes
with it (RFC 9110, 7.6.1); (3) the answer depends on nothing but the headers.
Not here: writing the headers that a connection needs (head.py).
"""

from __future__ import annotations

from jackline.upstream.port import Headers

HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
_NAMES_NOTHING = frozenset({b"keep-alive", b"close", b""})
# Clients and providers use some dozens of names; whoever invents more of them gains nothing.
_REMEMBERED_NAMES = 1024


class Sieve(dict[bytes, bool]):
    """Whether a header of this name is kept, remembered for each spelling that was seen."""

    __slots__ = ("_dropped",)

    def __init__(self, dropped: frozenset[bytes]) -> None:
        super().__init__()
        self._dropped = dropped

    def __missing__(self, name: bytes) -> bool:
        plain = name.lower()
        is_kept = plain not in self._dropped and not plain.startswith(b"proxy-")
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


def end_to_end(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers without those that concern only the connection they came on."""
    return END_TO_END.keep(headers)
