"""Recognise clients that ask again for what they asked before.

Laws: (1) recognised by session, sub-agent, credential and the bytes asked; whoever tells no session
by the credential and the bytes alone, and gets a place by that, never an answer or a fate; (2)
whoever comes back keeps its place in line; (3) a turn that was found hopeless after its headers
were out is answered with its proper status when it is asked for again; (4) everything is forgotten
after a while, and the memory is bounded.
Not here: calls that still wait (open_turns.py finds those).
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass, replace

from jackline.calls import Refusal
from jackline.dialects import asked_messages
from jackline.gateway.identity import Who

# A client waits 40 s at most between two of its tries, and its own time limit may lie before that.
_PLACE_KEPT = 600.0
_FATE_KEPT = 120.0
_MOST = 4096
_KEY = secrets.token_bytes(32)
# An error with more words than that is remembered by its status alone.
_LONGEST_WORDS = 16 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """A call whose client left while it waited."""

    digest: bytes
    call: str
    since: float
    left_at: float


@dataclass(frozen=True, slots=True)
class Fate:
    """A turn that could not be answered."""

    digest: bytes
    refusal: Refusal
    at: float


class Returning:
    """What is remembered of clients that may come back."""

    def __init__(self) -> None:
        self._places: OrderedDict[Who, Place] = OrderedDict()
        # Of clients without a session, by digest; several may have asked the same.
        self._unnamed: OrderedDict[bytes, list[Place]] = OrderedDict()
        self._unnamed_places = 0
        self._fates: OrderedDict[Who, Fate] = OrderedDict()

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
        """A client has gone, or was told to come back, while its call waited."""
        place = Place(_digest(payer, body), call, since, now)
        if who is None:
            self._keep_unnamed(place)
            return
        self._places[who] = place
        self._places.move_to_end(who)
        if len(self._places) > _MOST:
            self._places.popitem(last=False)

    def place(self, who: Who, payer: bytes, body: bytes | bytearray, now: float) -> Place | None:
        """The place of the same call when it was asked before; it is taken up by this."""
        place = self._places.get(who)
        if place is None or now - place.left_at > _PLACE_KEPT:
            return None
        if place.digest != _digest(payer, body):
            return None
        del self._places[who]
        return place

    @property
    def knows_unnamed(self) -> bool:
        """Whether a place of anyone without a session is kept."""
        return bool(self._unnamed)

    def unnamed_place(self, payer: bytes, body: bytes | bytearray, now: float) -> Place | None:
        """The earliest place of somebody without a session who has asked this with this credential.

        It is taken up by this.
        """
        digest = _digest(payer, body)
        places = self._unnamed.pop(digest, [])
        self._unnamed_places -= len(places)
        kept = [place for place in places if now - place.left_at <= _PLACE_KEPT]
        if not kept:
            return None
        first = min(kept, key=lambda place: place.since)
        for place in kept:
            if place is not first:
                self._keep_unnamed(place)
        return first

    def _keep_unnamed(self, place: Place) -> None:
        self._unnamed.setdefault(place.digest, []).append(place)
        self._unnamed.move_to_end(place.digest)
        self._unnamed_places += 1
        if self._unnamed_places > _MOST:
            _, oldest = self._unnamed.popitem(last=False)
            self._unnamed_places -= len(oldest)

    def doomed(
        self, who: Who, payer: bytes, body: bytes | bytearray, refusal: Refusal, now: float
    ) -> None:
        """A turn was refused when its status could no longer be told."""
        asked = asked_messages(body)
        said = refusal.rejection
        if said is not None and len(said.body) > _LONGEST_WORDS:
            refusal = replace(refusal, rejection=replace(said, body=b""))
        if asked is not None:
            self._fates[who] = Fate(_digest(payer, asked), refusal, now)
            self._fates.move_to_end(who)
            if len(self._fates) > _MOST:
                self._fates.popitem(last=False)

    def fate(self, who: Who, payer: bytes, body: bytes | bytearray, now: float) -> Refusal | None:
        """Why the same turn was refused a moment ago; it is told once."""
        fate = self._fates.get(who)
        if fate is None:
            return None
        asked = asked_messages(body)
        if now - fate.at > _FATE_KEPT or asked is None or fate.digest != _digest(payer, asked):
            return None
        del self._fates[who]
        return fate.refusal


def _digest(payer: bytes, body: bytes | bytearray) -> bytes:
    """A name for what is asked by whoever shows this credential, which is not kept."""
    asked = hashlib.blake2b(body, digest_size=16).digest()
    return hashlib.blake2b(asked + payer, digest_size=16, key=_KEY).digest()
