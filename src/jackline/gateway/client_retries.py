"""Recognise clients that send again what they sent before: the open call, its place, its refusal.

Rules: (1) the same request has the same session and sub-agent, the same credential and the same
bytes; a client without a session is recognised by credential and bytes only, and gets a place by
that, never an answer or a refusal; (2) of several open calls the first is found; a lookup compares
one body, and hashes only where two or more of its length are open; (3) a client that comes back has
its old place in the queue; (4) a turn that was refused after its headers were sent gets its proper
status when it is sent again; (5) everything is dropped after a while, and memory is bounded.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from jackline.calls import CallRefusal
from jackline.dialects import request_messages
from jackline.gateway.caller import Who
from jackline.gateway.client_call import ClientCall
from jackline.gateway.connection import Exchange

# The sender, the two headers that may pay, and the length of the body.
_Kind: TypeAlias = tuple[Who, bytes | None, bytes | None, int]


def digest(body: bytes | bytearray) -> bytes:
    """A short name for a body."""
    return hashlib.blake2b(body, digest_size=16).digest()


class _Alike:
    """The open calls of one kind, in the order in which they came; bodies are hashed late."""

    __slots__ = ("_by_digest", "_digests", "_unhashed")

    def __init__(self) -> None:
        self._unhashed: dict[str, ClientCall] = {}
        self._digests: dict[str, bytes] = {}
        self._by_digest: dict[bytes, dict[str, ClientCall]] = {}

    def __len__(self) -> int:
        return len(self._unhashed) + len(self._digests)

    def add(self, call: ClientCall) -> None:
        self._unhashed[call.request.id] = call

    def remove(self, call_id: str) -> None:
        if self._unhashed.pop(call_id, None) is not None:
            return
        named = self._digests.pop(call_id)
        same = self._by_digest[named]
        del same[call_id]
        if not same:
            del self._by_digest[named]

    def perhaps(self, body: bytes | bytearray) -> Iterable[ClientCall]:
        """Those that may have this body: the only one, or those with the same digest."""
        if len(self) == 1 and self._unhashed:
            # Comparing ends at the first byte that differs; a digest needs all of both bodies.
            return self._unhashed.values()
        for call_id, call in self._unhashed.items():
            named = self._digests[call_id] = digest(call.request.message.body)
            self._by_digest.setdefault(named, {})[call_id] = call
        self._unhashed.clear()
        return self._by_digest.get(digest(body), {}).values()


class OpenCalls:
    """The open calls of clients that name a session."""

    def __init__(self) -> None:
        self._alike: dict[_Kind, _Alike] = {}
        # Of each call, because its message may grow and its clients may leave.
        self._kinds: dict[str, _Kind] = {}

    def add(self, who: Who, exchange: Exchange, call: ClientCall) -> None:
        """A call was submitted for this request."""
        kind = _kind(who, exchange)
        self._kinds[call.request.id] = kind
        alike = self._alike.get(kind)
        if alike is None:
            alike = self._alike[kind] = _Alike()
        alike.add(call)

    def forget(self, call: ClientCall) -> None:
        """A call is over; nothing happens where it was not added."""
        call_id = call.request.id
        kind = self._kinds.pop(call_id, None)
        if kind is None:
            return
        alike = self._alike[kind]
        alike.remove(call_id)
        if not alike:
            del self._alike[kind]

    def waiting(self, who: Who, exchange: Exchange) -> ClientCall | None:
        """The first waiting call with the same body and credential."""
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


# A client waits 40 s at most between two of its tries, and its own time limit may lie before that.
_PLACE_SECONDS = 600.0
_FATE_SECONDS = 120.0
_MOST = 4096
_KEY = secrets.token_bytes(32)
# An error with more words than that is remembered by its status alone.
_LONGEST_WORDS = 16 * 1024


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A call whose client left while it waited."""

    digest: bytes
    call: str
    since: float
    left_at: float


@dataclass(frozen=True, slots=True)
class PastRefusal:
    """A turn that could not be answered."""

    digest: bytes
    refusal: CallRefusal
    at: float


class ClientRetries:
    """What is remembered of clients that may come back."""

    def __init__(self) -> None:
        self._places: OrderedDict[Who, QueuePlace] = OrderedDict()
        # Of clients without a session, by digest; several may have sent the same.
        self._unnamed: OrderedDict[bytes, list[QueuePlace]] = OrderedDict()
        self._unnamed_places = 0
        self._fates: OrderedDict[Who, PastRefusal] = OrderedDict()

    def left(
        self,
        who: Who | None,
        payer: bytes,
        body: bytes | bytearray,
        call: str,
        *,
        since: float,
        now: float,
    ) -> None:
        """A client has gone, or was sent back, while its call waited."""
        place = QueuePlace(_digest(payer, body), call, since, now)
        if who is None:
            self._add_unnamed(place)
            return
        self._places[who] = place
        self._places.move_to_end(who)
        if len(self._places) > _MOST:
            self._places.popitem(last=False)

    def place(
        self, who: Who, payer: bytes, body: bytes | bytearray, now: float
    ) -> QueuePlace | None:
        """The place of the same call when it was sent before, which is removed."""
        place = self._places.get(who)
        if place is None or now - place.left_at > _PLACE_SECONDS:
            return None
        if place.digest != _digest(payer, body):
            return None
        del self._places[who]
        return place

    @property
    def knows_unnamed(self) -> bool:
        """Whether there is a place of anyone without a session."""
        return bool(self._unnamed)

    def unnamed_place(self, payer: bytes, body: bytes | bytearray, now: float) -> QueuePlace | None:
        """The earliest place of anyone without a session for this body and credential.

        It is removed.
        """
        digest = _digest(payer, body)
        places = self._unnamed.pop(digest, [])
        self._unnamed_places -= len(places)
        valid = [place for place in places if now - place.left_at <= _PLACE_SECONDS]
        valid.sort(key=lambda place: place.since)
        for place in valid[1:]:
            self._add_unnamed(place)
        return valid[0] if valid else None

    def _add_unnamed(self, place: QueuePlace) -> None:
        self._unnamed.setdefault(place.digest, []).append(place)
        self._unnamed.move_to_end(place.digest)
        self._unnamed_places += 1
        if self._unnamed_places > _MOST:
            _, oldest = self._unnamed.popitem(last=False)
            self._unnamed_places -= len(oldest)

    def doomed(
        self, who: Who, payer: bytes, body: bytes | bytearray, refusal: CallRefusal, now: float
    ) -> None:
        """A turn was refused when its status could no longer be sent."""
        messages = request_messages(body)
        theirs = refusal.rejection
        if theirs is not None and len(theirs.body) > _LONGEST_WORDS:
            refusal = replace(refusal, rejection=replace(theirs, body=b""))
        if messages is not None:
            self._fates[who] = PastRefusal(_digest(payer, messages), refusal, now)
            self._fates.move_to_end(who)
            if len(self._fates) > _MOST:
                self._fates.popitem(last=False)

    def fate(
        self, who: Who, payer: bytes, body: bytes | bytearray, now: float
    ) -> CallRefusal | None:
        """The refusal of the same turn a moment ago; it is returned once."""
        fate = self._fates.get(who)
        if fate is None:
            return None
        messages = request_messages(body)
        if now - fate.at > _FATE_SECONDS or messages is None:
            return None
        if fate.digest != _digest(payer, messages):
            return None
        del self._fates[who]
        return fate.refusal


def _digest(payer: bytes, body: bytes | bytearray) -> bytes:
    """A name for a body and a credential, from which neither can be found."""
    plain = hashlib.blake2b(body, digest_size=16).digest()
    return hashlib.blake2b(plain + payer, digest_size=16, key=_KEY).digest()
