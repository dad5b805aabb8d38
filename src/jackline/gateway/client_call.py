"""One model call of a client: hold the client, deliver the answer or refuse honestly, count it.

Rules: (1) nothing is committed before the vendor has answered, or waiting has become long; (2) a
broken answer is never ended cleanly, except behind an error event; (3) a client's own retry joins
the call that waits; (4) a client that leaves frees everything at once; (5) a sign of life is
nothing that a model could have written, and an error inside a stream has the shape that its dialect
defines; (6) a client without a stream is answered a little before it leaves, by the time limit in
its headers; one that will not retry is urgent from the beginning, any other in the last part of its
time; (7) every ended call is counted once.
"""

from __future__ import annotations

import json
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from jackline.calls import (
    CallCompletion,
    CallManager,
    CallRefusal,
    CallRequest,
    Dialect,
    PendingCall,
)
from jackline.dialects import PING, TokenUsage, error_event, placeholder_start
from jackline.events import CallEnded
from jackline.gateway.caller import Client, Identity
from jackline.gateway.connection import Exchange
from jackline.gateway.own_answers import (
    ASK_AGAIN,
    RefusalAnswer,
    gateway_refusal,
    note_lines,
    request_id,
    vendor_refusal,
    without_note_headers,
)
from jackline.gateway.settings import GatewaySettings
from jackline.http1.headers import Headers
from jackline.lane_id import LaneId

# A call that waited for less has not been held, only passed through.
HELD_FROM = 1.0
# The outcomes of calls whose clients got an answer.
ANSWERED = frozenset(("answered", "shortened"))
# Those of calls that were passed on as failed.
FAILED = frozenset(("refused", "broken"))
_MOST_FAILED = 5000


@dataclass(slots=True)
class CallCounts:
    """Figures since the start."""

    outcomes: Counter[str] = field(default_factory=Counter)
    held_and_delivered: int = 0
    joined: int = 0
    attempts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    survived: int = 0
    """Calls that were passed on as failed, and whose agents were answered later."""
    failed: OrderedDict[tuple[str, str], int] = field(default_factory=OrderedDict)
    """How many were not survived so far, by session and agent; calls without names not."""

    def count(self, event: CallEnded) -> None:
        """One more call is over."""
        self.outcomes[event.outcome] += 1
        self.attempts += event.attempts
        self.input_tokens += event.input_tokens
        self.output_tokens += event.output_tokens
        if event.waited >= HELD_FROM and event.outcome in ANSWERED:
            self.held_and_delivered += 1
        who = (event.session or "", event.agent or "")
        if event.outcome in ANSWERED and who in self.failed:
            self.survived += self.failed.pop(who)
        elif event.outcome in FAILED and who != ("", ""):
            self.failed[who] = self.failed.get(who, 0) + 1
            self.failed.move_to_end(who)
            if len(self.failed) > _MOST_FAILED:
                self.failed.popitem(last=False)


# Claude Code's time limit of a call without a stream; the SDKs have 600.
_WHOLE_ANSWER_WITHIN = 280.0
# A client may write any number.
_LONGEST_PATIENCE = 366 * 86400.0
_RAISED = 600.0
# The SDKs for JavaScript limit the whole call, those for Python and Ruby each read; without a
# stream both are the same.
_LIMITS = (b"x-stainless-timeout", b"x-stainless-read-timeout")
_SECONDS = re.compile(rb"\d{1,12}(?:\.\d{1,12})?")
# The SDKs try three times unless they are configured otherwise, and count from 0. Claude Code tries
# more often and always sends 0.
_LAST_TRY = 2
_EARLIER, _EARLIER_SHARE = 5.0, 0.1
# For so long before it leaves, a client that will retry goes before those that can wait.
_HURRIES_FOR, _HURRIES_SHARE = 60.0, 0.25


class _Patience(NamedTuple):
    """Seconds after which a client without a stream leaves, and from when on it hurries."""

    leaves: float
    hurries: float


_MEMO = "patience"


def _patience_of(exchange: Exchange, client: Client) -> _Patience:
    """By its headers, which are mostly those of the last request: they are read once."""
    known = exchange.memo.get(_MEMO)
    if isinstance(known, _Patience):
        return known
    named = next(filter(None, (_number(exchange.header(name)) for name in _LIMITS)), 0.0)
    # Claude Code's sockets give up earlier than it says, unless its user has raised the limit.
    is_eager = not named or (client.claude_code and named <= _RAISED)
    most = _WHOLE_ANSWER_WITHIN if is_eager else _LONGEST_PATIENCE
    patience = min(named or most, most)
    leaves = patience - max(_EARLIER, _EARLIER_SHARE * patience)
    hurries = 0.0
    if _number(exchange.header(b"x-stainless-retry-count")) < _LAST_TRY:
        hurries = leaves - min(_HURRIES_FOR, _HURRIES_SHARE * patience)
    exchange.memo[_MEMO] = found = _Patience(leaves, hurries)
    return found


def _number(value: bytes | None) -> float:
    return float(value) if value is not None and _SECONDS.fullmatch(value) else 0.0


_COMMENT = b": jackline holds this call\n\n"
_KEEPALIVE = b'event: keepalive\ndata: {"type":"keepalive"}\n\n'


class ClientFormat(NamedTuple):
    """What clients of one dialect are sent beside answers.

    `ping` prevents a connection from looking dead, at any time between events; `sign_of_life`
    counts as progress, while nothing of the answer has been delivered; `error_event` is the
    vendor's error body inside a stream that has begun.
    """

    ping: bytes
    sign_of_life: Callable[[str, Client], bytes]
    error_event: Callable[[bytes], bytes]


def _chat_error_event(body: bytes) -> bytes:
    return b"data: " + json.dumps({"error": _error(body)}).encode() + b"\n\n"


def _responses_error_event(body: bytes) -> bytes:
    error = _error(body)
    shown_error = {"code": error.get("code") or error.get("type"), "message": error.get("message")}
    response = {"object": "response", "status": "failed", "error": shown_error}
    data = json.dumps({"type": "response.failed", "response": response})
    return b"event: response.failed\ndata: " + data.encode() + b"\n\n"


def _error(body: bytes) -> dict[str, object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, dict):
        return error
    return {"type": "server_error", "code": "server_error", "message": "the upstream has failed"}


CLIENT_FORMATS: Mapping[Dialect, ClientFormat] = {
    # Claude Code counts neither pings nor comments as life, but a repeated message_start, which the
    # real one replaces. Other clients count bytes, and may mind a second start.
    "anthropic": ClientFormat(
        PING,
        lambda model, client: placeholder_start(model) if client.claude_code else PING,
        error_event,
    ),
    "openai-chat": ClientFormat(_COMMENT, lambda _model, _client: _COMMENT, _chat_error_event),
    # Codex gives a stream up after 300 s without an event, and comments are none. Events that it
    # does not know it skips; other clients may mind them.
    "openai-responses": ClientFormat(
        _COMMENT,
        lambda _model, client: _KEEPALIVE if client.codex else _COMMENT,
        _responses_error_event,
    ),
}
_NOTHING_USED = TokenUsage()
_STREAM_HEAD = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
)
# A call whose outcome is open gets nothing for so long, though nothing is wrong that we know of.
_COMMIT_AT_LAST = 120.0
# A call that has one lane alone, because its conversation is there, waits for it so long at most.
_STAY_AT_MOST = 20.0


# Anthropic sends it with every answer.
_ORGANIZATION = b"anthropic-organization-id"
_PAYING = (b"x-api-key", b"authorization")


class _Intake(Protocol):
    """The intake that submitted the call; `now` is never set, `ticks` is `last_write`'s time."""

    settings: GatewaySettings
    carrier: CallManager

    def now(self) -> float: ...

    def wall(self) -> float: ...

    def ticks(self) -> float: ...

    def reconsider(self, call: ClientCall, now: float) -> None: ...

    def ended(self, call: ClientCall, event: CallEnded) -> None: ...

    def in_native_words(self, refusal: CallRefusal) -> CallRefusal: ...

    def keep_place(self, call: ClientCall, now: float) -> None: ...

    def remember_fate(self, call: ClientCall, refusal: CallRefusal) -> None: ...


class ClientCall:
    """One call and the clients that wait for it; a `Receiver` for the call manager."""

    __slots__ = (
        "_begun_status",
        "_exchanges",
        "_format",
        "_head",
        "_headers",
        "_intake",
        "_placeholder_at",
        "_request_id",
        "_stays",
        "arrived",
        "carried",
        "committed",
        "held_bytes",
        "identity",
        "lane",
        "model",
        "over",
        "request",
        "since",
        "spent",
    )

    def __init__(
        self,
        intake: _Intake,
        exchange: Exchange,
        identity: Identity,
        model: str,
        request: CallRequest,
        now: float,
    ) -> None:
        self._intake = intake
        self._exchanges = [exchange]
        self._attend(exchange)
        self.identity = identity
        self.model = model
        self.request = request
        request.is_metered = identity.task is not None
        self._format = CLIENT_FORMATS[request.dialect]
        self.lane = request.call.lanes[0]
        # The message may grow, when the rest of an answer is requested.
        self.held_bytes = len(request.message.body) + len(request.message.plain or b"")
        self.arrived = now
        self.since = now if request.call.since is None else request.call.since
        if not request.call.stream:
            patience = _patience_of(exchange, identity.client)
            request.call.leaves_at = now + patience.leaves
            request.call.hurries_at = now + patience.hurries
        self.carried: PendingCall | None = None
        self.committed = False
        self.over = False
        # What all its attempts used, by model, for calls of a task that are over.
        self.spent: Mapping[str, TokenUsage] | None = None
        self._stays = len(request.call.lanes) == 1
        self._head: tuple[int, Headers] | None = None
        self._headers: Headers = ()
        self._placeholder_at = now
        self._begun_status: int | None = None
        self._request_id: str | None = None

    @property
    def waiting(self) -> bool:
        """Whether nothing of it is in flight, and nothing has been delivered."""
        carried = self.carried
        return carried is not None and carried.attempt is None and not carried.delivered

    @property
    def organization(self) -> bytes | None:
        """The organization of the client's credential, by the vendor's answer."""
        found = (value for name, value in self._headers if name.lower() == _ORGANIZATION)
        return next(found, None)

    @property
    def asker(self) -> Exchange | None:
        """One of the clients' requests."""
        return self._exchanges[0] if self._exchanges else None

    def asks_the_same(self, exchange: Exchange) -> bool:
        """Whether this request has the call's body and the credential that pays for the call."""
        asker = self.asker
        return (
            asker is not None
            and all(asker.header(name) == exchange.header(name) for name in _PAYING)
            and self.request.message.body == exchange.body
        )

    def join(self, exchange: Exchange) -> None:
        """Another client, or the same again, waits for the same answer."""
        # The same bytes: they are held once, however many wait for their answer.
        exchange.body = self.request.message.body
        self._exchanges.append(exchange)
        self._attend(exchange)
        if self.committed:
            self._begin_holding(exchange)

    def _attend(self, exchange: Exchange) -> None:
        exchange.on_gone = self._client_gone
        exchange.on_pause = self._slow_client
        exchange.on_resume = self._client_catches_up

    # --- called by the call manager ---

    def answer_began(self, status: int, headers: Headers, lane: LaneId) -> None:
        """The vendor answers."""
        self.lane = lane
        self._begun_status = status
        self._headers = headers
        if not self.request.call.stream:
            self._head = (status, headers)
            return
        notes = self._notes(headers)
        for exchange in self._exchanges:
            exchange.begin(status, without_note_headers(headers), notes)

    def answer_received(self, data: bytes) -> None:
        """Bytes of the answer."""
        if self._head is None:
            for exchange in self._exchanges:
                exchange.send(data)
            return
        status, headers = self._head
        notes = self._notes(headers)
        for exchange in self._exchanges:
            exchange.respond(status, without_note_headers(headers), data, notes)

    def answer_ended(self, ending: CallCompletion) -> None:
        """That was all."""
        if ending.lane != self.lane:
            self._headers = ()  # they came with its beginning, from another lane
        self.lane = ending.lane
        for exchange in self._exchanges:
            exchange.finish()
        outcome = "shortened" if ending.shortened else "answered"
        self._end(outcome, self._begun_status, ending.tries, ending.usage)

    def refused(self, refusal: CallRefusal) -> None:
        """There will be no answer: refuse in the vendor's words."""
        # Clients of other dialects are answered by upstreams of their own dialect alone.
        is_native = self.request.dialect == "anthropic"
        words = self._intake.in_native_words(refusal) if is_native else refusal
        no = vendor_refusal(words, self._intake.wall())
        if self.committed:
            self._intake.remember_fate(self, refusal)
        self._refuse_all(no)
        self._end("refused", no.status, len(refusal.attempts))

    def broken_off(self, refusal: CallRefusal) -> None:
        """A part was delivered: cut the connection, so that the client tries again."""
        for exchange in self._exchanges:
            exchange.reset()
        self._end("broken", self._begun_status, len(refusal.attempts))

    # --- holding ---

    def keep_alive(self, now: float) -> None:
        """Do what keeps the clients of a slow call from giving up."""
        if self.over:
            return
        if self._stays and now - self.arrived >= _STAY_AT_MOST:
            self._stays = False
            if self.waiting:
                self._intake.reconsider(self, now)
        hold = self._intake.settings.hold
        if not self.request.call.stream:
            self._send_back_in_time(now)
            return
        if self._begun_status is None and not self.committed:
            age, attempt = now - self.arrived, None
            if self.carried is not None:
                attempt = self.carried.attempt
            # In flight: its status may still be sent properly, unless it is known to be good.
            is_open = attempt is None or age >= _COMMIT_AT_LAST or attempt.status == 200
            if age >= hold.commit_after and is_open:
                self.committed = True
                for exchange in self._exchanges:
                    self._begin_holding(exchange)
                self._placeholder_at = now
            return
        quiet = min((each.last_write for each in self._exchanges), default=now)
        if self._intake.ticks() - quiet < hold.ping_every:
            return
        real = self.carried is not None and self.carried.delivered
        alive = self._format.ping
        if not real and now - self._placeholder_at >= hold.placeholder_every - 1.0:
            alive = self._format.sign_of_life(self.model, self.identity.client)
            self._placeholder_at = now
        for exchange in self._exchanges:
            exchange.send(alive)

    def _begin_holding(self, exchange: Exchange) -> None:
        exchange.begin(200, _STREAM_HEAD, self._notes(_STREAM_HEAD))
        exchange.send(self._format.sign_of_life(self.model, self.identity.client))

    def _send_back_in_time(self, now: float) -> None:
        """Answer a call without a stream before its client's own patience ends."""
        if not self.waiting or now < self.request.call.leaves_at:
            return
        waiting = None if self.carried is None else self._intake.carrier.waiting(self.carried)
        why = "the upstream is not ready" if waiting is None else waiting.why
        retry_later = [(b"retry-after", b"1"), (b"x-should-retry", b"true"), ASK_AGAIN]
        no = gateway_refusal(503, f"Jackline holds this call: {why}. Ask again.", retry_later)
        self._refuse_all(no)
        self._intake.keep_place(self, now)
        self._leave("retry_later", 503)

    def _leave(self, outcome: str, status: int | None) -> None:
        attempts = 0
        if self.carried is not None:
            attempts = self.carried.tries
            self._meter()  # while the attempts are there
            self._intake.carrier.leave(self.carried)
        self._end(outcome, status, attempts)

    def send_home(self) -> None:
        """The gateway stops: the clients of a waiting call shall try again."""
        if self.over or not self.waiting:
            return
        words = "Jackline is being stopped while this call waits. Ask again."
        retry_later = [(b"retry-after", b"5"), (b"x-should-retry", b"true"), ASK_AGAIN]
        no = gateway_refusal(503, words, retry_later)
        self._refuse_all(no)
        self._leave("retry_later", no.status)

    def _refuse_all(self, no: RefusalAnswer) -> None:
        for exchange in self._exchanges:
            if exchange.begun:
                # Behind an error event a clean end does not look like success, and unlike a reset
                # it lets the client read the event first.
                exchange.send(self._format.error_event(no.body))
                exchange.finish()
            else:
                exchange.respond(no.status, no.headers, no.body, self._notes(no.headers))

    # --- clients ---

    def _client_gone(self) -> None:
        if self.over:
            return
        self._exchanges = [each for each in self._exchanges if not each.gone]
        if self._exchanges:
            return
        if self.waiting:
            self._intake.keep_place(self, self._intake.now())
        self._leave("client_left", None)

    def _slow_client(self) -> None:
        if self.carried is not None:
            self._intake.carrier.pause(self.carried)

    def _client_catches_up(self) -> None:
        if self.carried is not None:
            self._intake.carrier.resume(self.carried)

    # --- reporting ---

    def _meter(self) -> None:
        if self.identity.task is not None and self.carried is not None:
            self.spent = self.carried.spent()

    def _notes(self, headers: Headers) -> bytes:
        """The lines to put behind these headers."""
        carried = self.carried
        attempts, waited = 0, 0.0
        if carried is not None:
            attempts = carried.tries
            waited = carried.waited if carried.sent else self._intake.now() - self.since
        call = self.request.id
        vendors_id = request_id(headers)
        self._request_id = vendors_id or call
        return note_lines(call, self.lane.label, attempts, waited, names_it=vendors_id is None)

    def _end(
        self, outcome: str, status: int | None, attempts: int, usage: TokenUsage = _NOTHING_USED
    ) -> None:
        if self.over:
            return
        self.over = True
        identity = self.identity
        if self.spent is None:
            self._meter()
        took = self._intake.now() - self.since
        carried = self.carried
        waited = carried.waited if carried is not None and carried.sent else took
        wasted = carried.wasted if carried is not None and carried.story else _NOTHING_USED
        self._intake.ended(
            self,
            # In the order of the event's fields. Every call ends here, and `CallEnded(…)` itself
            # takes twice as long for so many.
            tuple.__new__(
                CallEnded,
                (
                    self._intake.wall(),
                    self.request.id,
                    outcome,
                    self.lane,
                    self.model,
                    identity.session,
                    identity.agent,
                    identity.parent,
                    identity.tag,
                    self.request.call.stream,
                    status,
                    attempts,
                    waited,
                    took,
                    self._request_id,
                    usage.input_tokens,
                    usage.output_tokens,
                    usage.cache_read_tokens,
                    usage.cache_write_tokens,
                    wasted.input_tokens + wasted.cache_read_tokens + wasted.cache_write_tokens,
                    wasted.output_tokens,
                    usage.cache_write_1h_tokens,
                ),
            ),
        )
