"""Find the open call that asks the same as a new request of the same client.

Rules: (1) the same is asked by the same session and sub-agent, with the same credential, in the
same bytes; (2) of several such calls the one that came first is found; (3) a lookup costs no more
where many calls of one client are open: a body is compared with one other, and hashed only where
two or more of its length are open; (4) forgetting a call takes the same time however many there
are.
Not here: what joining means (messages.py), clients whose call is no longer open (returning.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TypeAlias

from jackline.gateway.exchange import Exchange
from jackline.gateway.identity import Who
from jackline.gateway.messages import MessagesCall

# Who asks, the two headers that may pay, and the length of the body.
_Kind: TypeAlias = tuple[Who, bytes | None, bytes | None, int]


def digest(body: bytes | bytearray) -> bytes:
    """A short name for a body."""
    return hashlib.blake2b(body, digest_size=16).digest()


class _Alike:
    """The open calls of one kind, in the order in which they came; bodies are hashed late."""

    __slots__ = ("_by_digest", "_digests", "_unhashed")

    def __init__(self) -> None:
        self._unhashed: dict[str, MessagesCall] = {}
        self._digests: dict[str, bytes] = {}
        self._by_digest: dict[bytes, dict[str, MessagesCall]] = {}

    def __len__(self) -> int:
        return len(self._unhashed) + len(self._digests)

    def add(self, call: MessagesCall) -> None:
        self._unhashed[call.request.id] = call

    def remove(self, call_id: str) -> None:
        if self._unhashed.pop(call_id, None) is not None:
            return
        named = self._digests.pop(call_id)
        same = self._by_digest[named]
        del same[call_id]
        if not same:
            del self._by_digest[named]

    def perhaps(self, body: bytes | bytearray) -> Iterable[MessagesCall]:
        """Those that may ask this: the only one, or those whose bodies have the same digest."""
        if len(self) == 1 and self._unhashed:
            # Comparing ends at the first byte that differs; a digest needs all of both bodies.
            return self._unhashed.values()
        for call_id, call in self._unhashed.items():
            named = self._digests[call_id] = digest(call.request.message.body)
            self._by_digest.setdefault(named, {})[call_id] = call
        self._unhashed.clear()
        return self._by_digest.get(digest(body), {}).values()


class OpenTurns:
    """The open calls of clients that name a session."""

    def __init__(self) -> None:
        self._alike: dict[_Kind, _Alike] = {}
        # Of each call, because its message may grow and its clients may leave.
        self._kinds: dict[str, _Kind] = {}

    def add(self, who: Who, exchange: Exchange, call: MessagesCall) -> None:
        """A call was taken in for this request."""
        kind = _kind(who, exchange)
        self._kinds[call.request.id] = kind
        alike = self._alike.get(kind)
        if alike is None:
            alike = self._alike[kind] = _Alike()
        alike.add(call)

    def forget(self, call: MessagesCall) -> None:
        """A call is over; nothing happens where it was not added."""
        call_id = call.request.id
        kind = self._kinds.pop(call_id, None)
        if kind is None:
            return
        alike = self._alike[kind]
        alike.remove(call_id)
        if not alike:
            del self._alike[kind]

    def waiting(self, who: Who, exchange: Exchange) -> MessagesCall | None:
        """The first call that waits and asks the same, for whoever pays for it."""
        alike = self._alike.get(_kind(who, exchange))
        if alike is None:
            return None
        for call in alike.perhaps(exchange.body):
            if call.waiting and call.asks_the_same(exchange):
                return call
        return None


def _kind(who: Who, exchange: Exchange) -> _Kind:
    header = exchange.header
    return who, header(b"x-api-key"), header(b"authorization"), len(exchange.body)
