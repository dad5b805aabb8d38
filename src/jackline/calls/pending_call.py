"""One call until it is completed, and its attempts in flight: parse answers and deliver them.

Rules: (1) a call ends once; what comes later is not passed on; (2) a call is in exactly one place:
waiting for a cap, waiting for a lane, in flight, or over; (3) every attempt ends in exactly one of
three ways: a whole answer, a rejection with the vendor's words, or a break; (4) nothing is
delivered before it is known to be an answer; (5) the vendor's bytes are delivered unchanged, after
decompression.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from jackline.calls.request import (
    CallCompletion,
    CallRefusal,
    CallRequest,
    FailedAttempt,
    Receiver,
    VendorRejection,
)
from jackline.calls.stitch import AnthropicStitch, OpenAiStitch
from jackline.calls.verdict import failed_success, judge_rejection
from jackline.dialects import TokenUsage, read_answer
from jackline.dialects.answer_facts import is_openai_answer, reported_usage
from jackline.dialects.token_usage import least_of_document, least_of_stream
from jackline.failures import Failure, Kind, Observation
from jackline.http1.headers import Headers
from jackline.lane_id import LaneId
from jackline.outside_names import cut_name
from jackline.upstream.bounded_answers import LARGEST_ERROR
from jackline.upstream.interface import UpstreamAttempt

_NOTHING_USED = TokenUsage()
# Never fed: a call without a stream has nothing to stitch.
_NO_STREAM: AnthropicStitch | OpenAiStitch = AnthropicStitch("block")


def _stitch(request: CallRequest) -> AnthropicStitch | OpenAiStitch:
    if request.dialect == "anthropic":
        return AnthropicStitch(request.mode, keeps_text=request.continues)
    return OpenAiStitch(request.mode, responses=request.dialect == "openai-responses")


class PendingCall:
    """One call under way."""

    __slots__ = (
        "accepted_on",
        "attempt",
        "beside",
        "delivered",
        "doubted_on",
        "has_read_answer",
        "held_for",
        "lanes",
        "last_resorts",
        "number",
        "original",
        "over",
        "own_key",
        "paused",
        "receiver",
        "rejected_on",
        "rejection",
        "request",
        "sent",
        "stitch",
        "story",
        "submitted",
        "tries",
        "unproven",
        "usage",
        "used",
        "waited",
        "withheld",
    )

    def __init__(self, number: int, request: CallRequest, receiver: Receiver, now: float) -> None:
        self.number = number
        self.request = request
        # What the client asked, before any continuation of a broken answer was put behind it.
        self.original = request.message
        # None once the call is over: the two hold each other, and a body of many megabytes must
        # not wait for the collector.
        self.receiver: Receiver | None = receiver
        # What it is submitted with; from then on the controller has its lanes.
        self.lanes = request.call.lanes
        self.last_resorts = request.last_resorts
        self.own_key = request.own_key
        self.unproven = request.unproven
        since = request.call.since
        self.submitted = now if since is None else min(now, since)
        self.stitch = _stitch(request) if request.call.stream else _NO_STREAM
        self.story: list[FailedAttempt] = []
        # How many attempts were begun.
        self.tries = 0
        self.attempt: InFlightAttempt | None = None
        # A second attempt, while the first is silent; whichever answers first goes on alone.
        self.beside: InFlightAttempt | None = None
        self.rejection: VendorRejection | None = None
        # The lane that has refused its client's own credential.
        self.rejected_on: LaneId | None = None
        # The lane that knows its client's account, and the one that works and did not accept it.
        self.accepted_on: LaneId | None = None
        self.doubted_on: LaneId | None = None
        # The lanes and last resorts that it has once its client may use those with a key of ours.
        self.withheld: tuple[tuple[LaneId, ...], tuple[LaneId, ...]] | None = None
        self.usage: TokenUsage = _NOTHING_USED
        # What the attempts that are over have used, by the model that each was sent for, if that is
        # counted.
        self.used: dict[str, TokenUsage] = {}
        # Whether what came whole was an answer of a model, and no other document.
        self.has_read_answer = False
        # Whether the receiver holds a part of an answer already.
        self.delivered = False
        self.over = False
        self.paused = False
        self.sent = False
        # The date of a reset that it is held for, and when that was to come on the time line.
        self.held_for: tuple[float, float] | None = None
        # How long it waited before its latest attempt.
        self.waited = 0.0

    def attempt_ended(self, attempt: InFlightAttempt) -> None:
        """An attempt is over; a second one takes the place of a first."""
        if attempt is not self.beside and attempt is not self.attempt:
            return
        if self.request.is_metered:
            self._count(attempt, self.used)
        if attempt is self.beside:
            self.beside = None
        else:
            self.attempt, self.beside = self.beside, None
            if self.attempt is not None and self.request.call.stream:
                self.attempt.stitch.waste(self.stitch.cost)
                self.stitch = self.attempt.stitch

    def withhold_own_key_lanes(self) -> None:
        """Close the lanes with a key of ours until it is known that the client may use them."""
        self.withheld = self.lanes, self.last_resorts
        self.close_own_key_lanes()

    def close_own_key_lanes(self) -> None:
        """The client may not use lanes with a key of ours."""
        closed = self.own_key
        self.lanes = tuple(name for name in self.lanes if name not in closed)
        self.last_resorts = tuple(name for name in self.last_resorts if name not in closed)

    @property
    def in_flight(self) -> bool:
        """Whether an attempt is under way."""
        return self.attempt is not None

    @property
    def wasted(self) -> TokenUsage:
        """What its broken attempts have cost."""
        return self.stitch.wasted_usage

    def spent(self) -> dict[str, TokenUsage]:
        """What all attempts used so far, by the model that each was sent for."""
        spent = dict(self.used)
        for attempt in (self.attempt, self.beside):
            if attempt is not None:
                self._count(attempt, spent)
        return spent

    @staticmethod
    def _count(attempt: InFlightAttempt, used: dict[str, TokenUsage]) -> None:
        if attempt.has_begun:
            model = attempt.lane.model
            used[model] = used.get(model, _NOTHING_USED) + attempt.used

    @property
    def is_model_answer(self) -> bool:
        """Whether what its client got was parsed as an answer of a model."""
        return self.has_read_answer or (self.request.call.stream and self.stitch.delivered)

    def deliver(self, status: int, headers: Headers, lane: LaneId, data: bytes) -> None:
        """Pass bytes of the answer on."""
        receiver = self.receiver
        if receiver is None:
            return
        if not self.delivered:
            self.delivered = True
            receiver.answer_began(status, headers, lane)
        receiver.answer_received(data)

    def end(self, lane: LaneId, *, shortened: bool) -> TokenUsage:
        """The answer is delivered; what it cost."""
        stitch = self.stitch
        usage = stitch.usage if stitch.delivered else self.usage
        receiver = self.leave()
        if receiver is not None:
            ending = CallCompletion(lane, usage, shortened, self.story, self.tries)
            receiver.answer_ended(ending)
        return usage

    def refuse(self, refusal: CallRefusal) -> None:
        """There will be no answer, or no more of it."""
        receiver = self.leave()
        if receiver is not None:
            (receiver.broken_off if self.delivered else receiver.refused)(refusal)

    def leave(self) -> Receiver | None:
        """The call is over: nothing more is passed on; whoever has received until now."""
        self.over = True
        receiver, self.receiver = self.receiver, None
        return receiver


_UNFINISHED = "the stream ended before the response was complete"
_NO_HEADERS: Mapping[str, str] = {}


class _Plain(dict[bytes, str]):
    """A header's name in lower case, remembered for each spelling that was seen."""

    def __missing__(self, name: bytes) -> str:
        plain = name.decode("latin-1").lower()
        if len(self) < 1024:
            self[name] = plain
        return plain


_plain = _Plain()


class _Observer(Protocol):
    """Receives the results of attempts; the call manager, which explains each."""

    def accepted(self, attempt: InFlightAttempt) -> None: ...

    def alive(self, attempt: InFlightAttempt) -> None: ...

    def answered(self, attempt: InFlightAttempt) -> None: ...

    def judge(self, seen: Observation) -> Failure: ...

    def failed(
        self, attempt: InFlightAttempt, failure: Failure, rejection: VendorRejection | None = None
    ) -> None: ...

    def crashed(self, call: PendingCall, error: Exception) -> None: ...


class InFlightAttempt:
    """One attempt of one call; the upstream's `ResponseHandler`."""

    __slots__ = (
        "_body",
        "_headers",
        "_is_accepted",
        "_observer",
        "_status",
        "_streams",
        "began_at",
        "begun",
        "call",
        "handle",
        "lane",
        "lowered",
        "over",
        "permit",
        "refused",
        "stitch",
        "usage",
    )

    def __init__(
        self,
        observer: _Observer,
        call: PendingCall,
        permit: int,
        lane: LaneId,
        began_at: float,
    ) -> None:
        self._observer = observer
        self.call = call
        self.permit = permit
        self.lane = lane
        self.began_at = began_at
        # A second attempt, beside one that is silent, makes an answer of its own.
        is_first = call.attempt is None or not call.request.call.stream
        self.stitch = call.stitch if is_first else _stitch(call.request)
        self.handle: UpstreamAttempt | None = None
        self.over = False
        self._status = 0
        self._headers: Headers = ()
        # The answer's headers by lower-case name.
        self.lowered: Mapping[str, str] = _NO_HEADERS
        self._streams = False
        self._is_accepted = False
        # The model has begun to speak.
        self.begun = False
        # The vendor has answered with an error, and nothing else.
        self.refused = False
        # What an answer that is no stream says of itself; None until it is whole.
        self.usage: TokenUsage | None = None
        # The very bytes that came, as long as they came in one piece.
        self._body: bytes | bytearray = b""

    @property
    def request_id(self) -> str | None:
        """The vendor's own name for this attempt, once it has spoken."""
        name = self.lowered.get("request-id")
        return None if name is None else cut_name(name)

    @property
    def status(self) -> int | None:
        """The status of the answer, once it is there."""
        return self._status or None

    @property
    def has_begun(self) -> bool:
        """Whether the vendor has begun an answer, and no error."""
        return 200 <= self._status < 300

    @property
    def reported(self) -> TokenUsage:
        """What the vendor says that this attempt has used so far."""
        return self.stitch.usage if self._streams else self.usage or _NOTHING_USED

    @property
    def used(self) -> TokenUsage:
        """What an attempt that has begun used so far; an estimate where less is said than possible.

        An error before the model has spoken costs what the vendor says that it costs.
        """
        reported, request = self.reported, self.call.request
        if self.refused and reported == _NOTHING_USED:
            return reported
        sent = request.message.plain or request.message.body
        if self._streams:
            stitch = self.stitch
            output, whole = least_of_stream(stitch.events, stitch.size), stitch.complete
        else:
            # A response repeats the instructions and tools of its request.
            repeated = len(sent) if request.dialect == "openai-responses" else 0
            output, whole = least_of_document(self._body, repeated), self.usage is not None
        return reported.at_least_possible(sent, request.call.input_tokens, output, whole=whole)

    def pass_on(self, data: bytes) -> None:
        """Deliver bytes as part of this attempt's answer."""
        self.call.deliver(self._status, self._headers, self.lane, data)

    # --- called by the upstream ---------------------------------------------------------------

    @property
    def held(self) -> int:
        """How many bytes it keeps: of a whole answer, of events, and what may be sent anew."""
        return len(self._body) + self.stitch.held

    def began(self, status: int, headers: Headers) -> None:
        """The head of the answer."""
        if self.over:
            return
        try:
            self._status = status
            self._headers = headers
            self.lowered = lowered = {_plain[n]: v.decode("latin-1") for n, v in headers}
            if self.call.request.call.stream and 200 <= status < 300:
                kind = lowered.get("content-type")
                if kind is not None and kind.startswith("text/event-stream"):
                    self._streams = True
                    self.stitch.attempt_began()
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._observer.crashed(self.call, error)

    def received(self, data: bytes) -> None:
        """Bytes of the answer."""
        if self.over:
            return
        try:
            if self._streams:
                self._follow(data)
            else:
                self._observer.alive(self)
                body = self._body
                if not body:
                    self._body = data
                elif isinstance(body, bytearray):
                    body += data
                else:
                    self._body = bytearray(body) + data
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._observer.crashed(self.call, error)

    def ended(self) -> None:
        """The HTTP message is complete."""
        self.handle = None
        if self.over:
            return
        try:
            self._end()
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._observer.crashed(self.call, error)

    def broke(self, error: OSError) -> None:
        """The connection failed."""
        self.handle = None
        if self.over:
            return
        try:
            if self.stitch.complete:
                self._observer.answered(self)
            else:
                self._break_off(error)
        except Exception as fault:  # noqa: BLE001 -- the border of one call: siblings go on
            self._observer.crashed(self.call, fault)

    # --- reading ------------------------------------------------------------------------------

    def _follow(self, data: bytes) -> None:
        call = self.call
        stitch = self.stitch
        out = stitch.feed(data)
        if call.beside is not None and stitch.begun:
            # The first of the two to answer: nothing of the other one is used any more, and nothing
            # is passed on before that.
            self.begun = True
            if self._is_accepted:
                self._observer.alive(self)
            else:
                self._is_accepted = True
                self._observer.accepted(self)
        if stitch.complete:
            # One that came whole at once is reported by its end alone.
            if out:
                call.deliver(self._status, self._headers, self.lane, out)
            return
        self.begun = self.begun or stitch.begun
        if not self._is_accepted:
            self._is_accepted = True
            self._observer.accepted(self)
        if out:
            call.deliver(self._status, self._headers, self.lane, out)
        self._observer.alive(self)
        if stitch.broken:
            if stitch.error_event is None:
                self._break_off(EOFError(_UNFINISHED))
            else:
                self._reject(
                    Observation.of_stream(b"event: error\ndata: " + stitch.error_event + b"\n\n")
                )

    def _end(self) -> None:
        if self._streams:
            if self.stitch.complete:
                self._observer.answered(self)
            else:
                self._break_off(EOFError(_UNFINISHED))
            return
        body = self._body if isinstance(self._body, bytes) else bytes(self._body)
        status, call = self._status, self.call
        if not 200 <= status < 300:
            self._reject(Observation.of_response(status, self.lowered, body), body)
            return
        facts = read_answer(body)
        if facts is not None:
            self.usage = facts.usage
            call.has_read_answer = True
        else:
            # Not a message: a count of tokens, a list of models, or a hotel's log-in page.
            dialect = call.request.dialect
            self.usage = reported_usage(body, openai=dialect != "anthropic")
            seen = failed_success(status, self.lowered, body, dialect)
            if seen is not None and self._reject(seen, body):
                return
            call.has_read_answer = dialect != "anthropic" and is_openai_answer(
                body, responses=dialect == "openai-responses"
            )
        call.usage = self.usage
        call.deliver(status, self._headers, self.lane, body)
        self._observer.answered(self)

    def _reject(self, seen: Observation, body: bytes | None = None) -> bool:
        """Report the error, with the body if it was the whole answer; False if it is a success."""
        failure = judge_rejection(self._observer.judge, seen, self.call.request.message)
        is_answer = body is not None and 200 <= self._status < 300
        if is_answer and failure.kind is Kind.NOT_A_FAILURE:
            return False
        # A whole answer without content may be paid for.
        self.refused = not self.begun if body is None else failure.kind is not Kind.NETWORK_EDGE
        rejection = None
        if body is not None:
            # A call may wait for long with it; its client gets no more of an error.
            kept = body[:LARGEST_ERROR]
            rejection = VendorRejection(self._status, self._headers, kept, self.lane)
        self._observer.failed(self, failure, rejection)
        return True

    def _break_off(self, error: Exception) -> None:
        self._observer.failed(self, self._observer.judge(Observation.of_exception(error)))
