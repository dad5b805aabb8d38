"""Take in the telemetry that clients send of themselves, and tell it beside what the gateway saw.

Laws: (1) only what was asked for in the configuration is taken in; (2) what is too large, packed
otherwise or not understood is refused with words, as OTLP has it; (3) a client is answered at
once: sending on happens later; (4) no words of anybody are kept.
Not here: the door (gateway/doors.py), reading (client_words.py), sending on (otlp_forwarding.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

import msgspec

from jackline.control.face import Asked
from jackline.control.fleet import Member
from jackline.telemetry.client_book import ClientBook, ClientTold, succeeded
from jackline.telemetry.client_words import (
    TOOL_RESULT,
    ClientEvent,
    Place,
    decoded,
    events_of,
    fit_to_pass_on,
)
from jackline.telemetry.settings import OtlpSettings
from jackline.telemetry.spans import ToolRan
from jackline.upstream.unpacking import MOST_RATIO

PREFIX = b"/_jackline/otlp/"
TOLD = b"/_jackline/clients"
SCHEMA = "jackline.clients/1"
_SIGNALS = {
    b"/_jackline/otlp/v1/traces": "/v1/traces",
    b"/_jackline/otlp/v1/logs": "/v1/logs",
    b"/_jackline/otlp/v1/metrics": "/v1/metrics",
}
_LARGEST = 16 << 20
_OFF = (
    "Jackline takes in no telemetry of clients here. Switch it on in your own jackline.toml:"
    " [otlp] receive = true"
)
_ONLY_JSON = "Jackline reads OTLP as JSON only: set OTEL_EXPORTER_OTLP_PROTOCOL=http/json."
# Google's codes, which OTLP's errors have.
_INVALID, _NOT_ALLOWED = 3, 7


@dataclass(frozen=True, slots=True)
class Heard:
    """Who is told of what comes in; without an endpoint nobody but the book."""

    settings: Callable[[], OtlpSettings]
    member: Callable[[str, str], Member | None]
    """What the gateway itself has seen of an agent."""
    tool_ran: Callable[[ToolRan], object] | None
    place: Place
    pass_on: Callable[[str, bytes], None] | None


class ReceivingFace:
    """Where clients send their telemetry, and where it is read again."""

    def __init__(self, book: ClientBook, heard: Heard) -> None:
        self._book = book
        self._heard = heard

    def knows(self, asked: Asked) -> bool:
        """Whether this is sent by a client's exporter, or asks what they told."""
        return asked.path == TOLD or asked.path.startswith(PREFIX)

    def answer(self, asked: Asked) -> None:
        """Take it in, or tell it."""
        if asked.path == TOLD:
            self._tell(asked)
            return
        signal = _SIGNALS.get(asked.path)
        if signal is None or asked.method != b"POST":
            _refuse(
                asked, 404, _INVALID, "Jackline takes POST at /v1/logs, /v1/metrics, /v1/traces."
            )
        elif not self._heard.settings().receive:
            _refuse(asked, 403, _NOT_ALLOWED, _OFF)
        elif not (asked.header(b"content-type") or b"").startswith(b"application/json"):
            _refuse(asked, 415, _INVALID, _ONLY_JSON)
        else:
            self._take(asked, signal)

    def _take(self, asked: Asked, signal: str) -> None:
        try:
            told = decoded(_unpacked(asked))
        except ValueError as error:
            _refuse(asked, 400, _INVALID, f"Jackline cannot read this: {error}.")
            return
        heard = self._heard
        # Read before it is made fit: that takes words away.
        events = list(events_of(told)) if signal == "/v1/logs" else []
        if heard.pass_on is not None:
            fit = fit_to_pass_on(told, heard.place, with_words=heard.settings().prompts)
            try:
                passed = msgspec.json.encode(fit)
            except (OverflowError, ValueError):
                words = "Jackline cannot pass this on: a number in it has more than 64 bits."
                _refuse(asked, 400, _INVALID, words)
                return
            heard.pass_on(signal, passed)
        for event in events:
            self._book.heard(event)
            if event.what == TOOL_RESULT and not event.traced and heard.tool_ran is not None:
                heard.tool_ran(_tool(event))
        asked.respond(200, [(b"content-type", b"application/json")], b"{}")

    def _tell(self, asked: Asked) -> None:
        session = parse_qs(asked.query.decode("latin-1")).get("session", [""])[0]
        agents = [
            _row(key, told, self._heard.member(*key))
            for key, told in self._book.of_session(session).items()
        ]
        body = msgspec.json.encode({"schema": SCHEMA, "agents": agents})
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        asked.respond(200, headers, body)


def _row(key: tuple[str, str], told: ClientTold, seen: Member | None) -> Mapping[str, object]:
    """What the client told, and what the gateway saw of the same agent."""
    return {
        "session": key[0],
        "agent": key[1],
        "told": told.to_json(),
        "seen": None
        if seen is None
        else {
            "calls": seen.calls,
            "failed": seen.failed,
            "tokens": seen.tokens,
            "waited": round(seen.waited, 1),
        },
    }


def _tool(event: ClientEvent) -> ToolRan:
    took = event.number("duration_ms") / 1000
    return ToolRan(
        event.session,
        event.agent,
        event.word("tool_name") or "unknown",
        event.at - took,
        event.at,
        ok=succeeded(event),
        told_by="client",
        call_id=event.word("tool_use_id"),
        error=event.word("error_type"),
    )


def _unpacked(asked: Asked) -> bytes:
    body = bytes(asked.body)
    packed = (asked.header(b"content-encoding") or b"identity").lower()
    if packed == b"gzip":
        unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
        most = min(_LARGEST, MOST_RATIO * len(body))
        try:
            body = unpacking.decompress(body, most + 1)
        except zlib.error as error:
            raise ValueError("it is not packed as it says") from error
        if len(body) > most:
            raise ValueError("it is too large")
    elif packed != b"identity":
        raise ValueError("it is packed in a way that is not known here")
    if len(body) > _LARGEST:
        raise ValueError("it is too large")
    return body


def _refuse(asked: Asked, status: int, code: int, words: str) -> None:
    body = msgspec.json.encode({"code": code, "message": words})
    asked.respond(status, [(b"content-type", b"application/json")], body)
