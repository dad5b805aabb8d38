"""Call a model through a gateway, and return its whole answer.

Rules: (1) a call ends in exactly one of three ways: a whole answer, one classified
`ModelFailedError`, or its cancellation, which frees the connection at once; (2) waits, retries and
other upstreams are the gateway's; a call is repeated here only where the gateway left it open: it
was not there, it wants the call later, or it cut a stream that it had begun; (3) no credential is
shown or stored except in the headers that are sent, even where a vendor repeats it; (4) a streamed
answer is whole only when `AnthropicStreamReader` says so, its blocks have the form that the API
returns in one piece, so that they can be sent again in the next turn, and no input raises; (5) a
tool call whose input was cut off is never returned, because it must not run.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self

import msgspec

from jackline import __version__
from jackline.agents.runner import (
    CUT_CALL,
    TOOLS_HEADER,
    JsonObject,
    ModelCaller,
    ModelFailedError,
    WholeAnswer,
    evidence_of,
    is_run_wall,
)
from jackline.calls.verdict import judge_rejection
from jackline.clock import Clock, SystemClock
from jackline.dialects import HOLD_ID, AnthropicStreamReader, EventSplitter, TokenUsage
from jackline.dialects.sse import name_and_data
from jackline.failures import Failure, Kind, Observation, classify
from jackline.failures.sentences import name_of
from jackline.failures.wording import redact
from jackline.gateway_proof import UnprovenError
from jackline.lane_id import LaneId
from jackline.task_proof import named_task
from jackline.upstream import Headers, HttpUpstream, Origin, UpstreamRequest
from jackline.upstream.bounded_answers import Blanker, SentCredentials

_LANE = LaneId("gateway")
_PATH = "/v1/messages"
_VERSION = "2023-06-01"
# A gateway that is restarted is back within seconds; one that is upgraded within a minute or two.
_PATIENCE = 120.0
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 5.0
# A stream that the gateway had begun and could not end, though it has tried to.
_MOST_BROKEN = 3
# A call that was in progress for so long had a gateway all that time.
_ALIVE = 30.0
# Why a call waits here.
_GONE = "the gateway does not answer; the call is repeated"
_UNPROVEN = "who has the gateway's port did not prove to be your gateway; nothing is sent there"
_WANTED_LATER = "the gateway wants the call later"
_LONGEST_WORDS = 200
_LARGEST_BODY = 64 << 20
# What a gateway takes as a tag; another word would be taken for a path that it does not have.
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9._~-]")
_LONGEST_TAG = 64
# By the type of a delta: the field of its block that it extends, and the delta's own field.
_DELTA_FIELDS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("input", "partial_json"),
}
# Everything that an answer of an unexpected form raises.
_INVALID = (ValueError, TypeError, KeyError, RecursionError)


def credentials_from(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The headers by which Anthropic's clients pay, as far as the environment has them."""
    if key := environ.get("ANTHROPIC_API_KEY"):
        return (("x-api-key", key),)
    if token := environ.get("ANTHROPIC_AUTH_TOKEN"):
        return (("authorization", f"Bearer {token}"),)
    return ()


class GatewayModel:
    """A `Model` behind a gateway; `async with` closes its connections.

    `gateway` is an address, or an origin such as that of `own_gateway`, which proves itself.
    `headers` are sent with every call: credentials, a gateway's token. `patience` is how many
    seconds a gateway may be gone before that is an outage.
    """

    def __init__(
        self,
        gateway: str | Origin,
        *,
        clock: Clock | None = None,
        headers: Sequence[tuple[str, str]] = (),
        patience: float = _PATIENCE,
    ) -> None:
        self._clock = clock or SystemClock()
        self._headers = tuple(headers)
        self._patience = patience
        origin = Origin(gateway) if isinstance(gateway, str) else gateway
        self._upstream = HttpUpstream({_LANE.upstream: origin})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Break off all calls; returns when no connection is left."""
        await self._upstream.close()

    async def ask(self, body: JsonObject, caller: ModelCaller) -> WholeAnswer:
        """The whole answer; ModelFailedError when there is none."""
        request = self._request(body, caller)
        retries = _Retries(self._patience)
        told: set[str] = set()
        try:
            while True:
                began = self._clock.monotonic()
                reply = await self._send(request)
                if reply.answer is not None:
                    return reply.answer
                wait = retries.wait(reply, began, self._clock.monotonic())
                if wait is None:
                    raise reply.error(self._clock.now(), request)
                why = _WANTED_LATER
                if reply.gone:
                    why = _UNPROVEN if reply.unproven else _GONE
                if wait and why not in told:
                    told.add(why)
                    caller.waits(why, None)
                await self._clock.sleep(wait)
        finally:
            if told:
                caller.waits("", None)

    async def _send(self, request: UpstreamRequest) -> _Reply:
        future: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        attempt = self._upstream.start(request, _LANE, _ReplyReader(future))
        answered = False
        try:
            reply = await future
            answered = reply.answer is not None
        finally:
            # After a whole answer the connection is about to be free for the next call.
            if not answered:
                attempt.hang_up()
        return reply

    def _request(self, body: JsonObject, caller: ModelCaller) -> UpstreamRequest:
        tag = f"/t/{_NOT_IN_TAGS.sub('-', caller.tag)[:_LONGEST_TAG]}" if caller.tag else ""
        pairs = [
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
            ("anthropic-version", _VERSION),
            ("user-agent", f"jackline/{__version__}"),
            ("x-claude-code-session-id", caller.session_id),
            ("x-claude-code-agent-id", caller.task_id),
            *named_task(caller.task_id),
            *([("x-jackline-class", caller.class_)] if caller.class_ else ()),
            *([(TOOLS_HEADER, ran)] if (ran := caller.tools.take_header()) else ()),
            *self._headers,
            *caller.headers,
        ]
        streamed = {**body, "stream": True}
        try:
            encoded = msgspec.json.encode(streamed)
        except UnicodeEncodeError:
            # Half of a surrogate pair, from a tool's output or a file's name: no API takes it.
            encoded = json.dumps(streamed, ensure_ascii=False).encode("utf-8", "replace")
        return UpstreamRequest(
            b"POST",
            f"{tag}{_PATH}".encode("ascii"),
            [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in pairs],
            encoded,
        )


@dataclass(frozen=True, slots=True)
class _Reply:
    """The gateway's reply to one request."""

    answer: WholeAnswer | None = None
    seen: Observation = field(default_factory=lambda: Observation.of_text(""))
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    gone: bool = False
    """The gateway was not there, or went before anything of an answer came."""
    unproven: str = ""
    """Who listens there did not prove to be the user's gateway, and got nothing of the call."""
    cut: bool = False
    """The answer had begun, and did not end: the gateway expects the call again."""
    undecided: bool = False
    """The stream ended in an error before the model spoke: a repeated call gets its status."""

    @property
    def comes_back(self) -> float | None:
        """In how many seconds the gateway wants the call again, when it does.

        `x-should-retry` is not followed: an upstream can write it, and each repeat may be paid for.
        """
        if self.headers.get("x-jackline-again") != "true":
            return None
        wait = self.headers.get("retry-after", "")
        return float(wait) if wait.isdigit() else _FIRST_WAIT

    def error(self, now: datetime, sent: UpstreamRequest) -> ModelFailedError:
        """The classified failure of what was `sent`, with one sentence for a person."""
        # A quota parks the whole run: what an API only repeats of a call is none.
        failure = judge_rejection(partial(classify, now=now), self.seen, sent, concerns=is_run_wall)
        if failure.resets_at is None:
            # The gateway may know it from an earlier answer.
            with suppress(ValueError):
                at = datetime.fromisoformat(self.headers.get("x-jackline-resets-at", ""))
                failure = replace(failure, resets_at=None if at.tzinfo is None else at)
        number = self.headers.get("x-jackline-attempts", "")
        attempts = max(1, int(number)) if number.isdigit() else 1
        request_id = self.headers.get("request-id")
        name = name_of(failure)
        if self.unproven:
            says = f"The model call was not sent: {self.unproven}."
        elif failure.kind is Kind.ACCOUNT_QUOTA:
            # It becomes the reason of a parked run, which is shown again and again.
            says = f"{name[0].upper()}{name[1:]} is reached."
        else:
            tries = f" after {attempts} attempts" if attempts > 1 else ""
            by_id = f" (request {request_id})" if request_id else ""
            says = f"The model call failed{tries}: {name}{by_id}."
            says += self._vendor_message(failure, sent.headers)
        evidence = evidence_of(
            failure, says=says, status=self.status, attempts=attempts, request_id=request_id
        )
        return ModelFailedError(failure, evidence, self.text)

    def _vendor_message(self, failure: Failure, sent: Headers) -> str:
        """The vendor's own words, only where a person has to act on them, without credentials."""
        body = self.seen.body
        if failure.retry_same or failure.kind is Kind.CONTENT_POLICY or not isinstance(body, bytes):
            return ""
        try:
            blanker = Blanker(SentCredentials(sent).words_not_in(()))
            message = str(_object(_object(_decoded(blanker.blanked(body)))["error"])["message"])
        except _INVALID:
            return ""
        words = redact(" ".join(message.split()), _LONGEST_WORDS)
        return f" The API says: {words}" if words else ""


class _Retries:
    """How long one call is repeated to a gateway that sends no answer and no refusal."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._missed_since: float | None = None
        self._wait = _FIRST_WAIT
        self._broken = 0
        self._was_undecided = False

    def wait(self, reply: _Reply, began: float, now: float) -> float | None:
        """In how many seconds to repeat the call after this reply; None when it is final."""
        if reply.undecided and not self._was_undecided:
            self._was_undecided = True
            return 0.0
        if reply.cut and self._broken < _MOST_BROKEN - 1:
            self._broken += 1
            return 0.0
        if not reply.gone and reply.comes_back is None:
            return None
        if self._missed_since is None or now - began > _ALIVE:
            self._missed_since, self._wait = now, _FIRST_WAIT
        wait = self._wait if reply.comes_back is None else reply.comes_back
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        return wait if now + wait - self._missed_since <= self._seconds else None


class _ReplyReader:
    """Reads the response to one attempt; a `ResponseHandler`."""

    def __init__(self, future: asyncio.Future[_Reply]) -> None:
        self._future = future
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._stream: AnswerStreamReader | None = None
        self._body = bytearray()

    @property
    def held(self) -> int:
        return len(self._body)

    def began(self, status: int, headers: Headers) -> None:
        self._status = status
        self._headers = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in headers}
        if self._headers.get("content-type", "").startswith("text/event-stream"):
            self._stream = AnswerStreamReader()

    def received(self, data: bytes) -> None:
        stream = self._stream
        if stream is None:
            self._body += data[: _LARGEST_BODY - len(self._body)]
            return
        stream.feed(data)
        if stream.whole or stream.broken:
            self._end_stream(stream)

    def ended(self) -> None:
        if self._stream is not None:
            self._end_stream(self._stream)
            return
        status, body = self._status or 0, bytes(self._body)
        seen = Observation.of_response(status, self._headers, body)
        self._finish(_Reply(self._identified(answer_from_body(body)), seen, status, self._headers))

    def broke(self, error: OSError) -> None:
        self._finish_early(error)

    def _end_stream(self, stream: AnswerStreamReader) -> None:
        error = stream.error_event
        if stream.whole:
            self._finish(_Reply(self._identified(stream.answer())))
        elif error is None:
            self._finish_early(EOFError("the stream ended before the response was complete"))
        else:
            reply = self._reply(Observation.of_stream(error))
            self._finish(replace(reply, undecided=not stream.began))

    def _finish_early(self, error: Exception) -> None:
        begun = self._stream is not None and self._stream.began
        reply = self._reply(Observation.of_exception(error))
        unproven = str(error) if isinstance(error, UnprovenError) else ""
        self._finish(replace(reply, gone=not begun, cut=begun, unproven=unproven))

    def _reply(self, seen: Observation) -> _Reply:
        text = "" if self._stream is None else self._stream.text
        return _Reply(None, seen, self._status, self._headers, text)

    def _identified(self, answer: WholeAnswer | None) -> WholeAnswer | None:
        if answer is None:
            return None
        request_id, lane = self._headers.get("request-id"), self._headers.get("x-jackline-lane")
        return replace(answer, request_id=request_id, lane=lane)

    def _finish(self, reply: _Reply) -> None:
        if not self._future.done():
            self._future.set_result(reply)


@dataclass(slots=True)
class _Block:
    """One content block as it began, and the pieces that came for one of its fields."""

    start: JsonObject
    grows: str = ""
    pieces: list[str] = field(default_factory=list)

    def add(self, delta: JsonObject) -> None:
        kind = str(delta.get("type"))
        if kind in _DELTA_FIELDS:
            self.grows, piece = _DELTA_FIELDS[kind]
            self.pieces.append(str(delta[piece]))
        elif kind == "signature_delta":
            self.start["signature"] = delta["signature"]
        elif kind == "citations_delta":
            known = self.start.get("citations")
            cited = known if isinstance(known, list) else []
            self.start["citations"] = [*cited, delta["citation"]]

    def finished(self) -> JsonObject:
        """The block as it would be in an answer of one piece."""
        if not self.grows or (self.grows == "input" and not any(self.pieces)):
            return self.start
        if self.grows != "input":
            return {**self.start, self.grows: self.text}
        try:
            return {**self.start, "input": _object(_decoded("".join(self.pieces)))}
        except _INVALID:
            return {"type": CUT_CALL, "name": self.start.get("name", "")}

    @property
    def text(self) -> str:
        return str(self.start.get(self.grows or "text", "")) + "".join(self.pieces)


class AnswerStreamReader:
    """Builds an answer from the bytes of its event stream; it ends whole, broken, or cut short."""

    def __init__(self) -> None:
        self._splitter = EventSplitter()
        self._reader = AnthropicStreamReader()
        self._model = ""
        self._blocks: list[_Block] = []
        # What began like a gateway's sign of life, until it is known whether it is one.
        self._sign_of_life: bytes | None = None

    @property
    def whole(self) -> bool:
        """Whether all of it is here."""
        return self._reader.whole

    @property
    def broken(self) -> bool:
        """Whether it cannot become whole any more."""
        return self._reader.broken

    @property
    def began(self) -> bool:
        """Whether the model has begun to speak."""
        return self._reader.started

    @property
    def error_event(self) -> bytes | None:
        """The vendor's error inside of the stream."""
        error = self._reader.error_event
        return None if error is None else b"event: error\ndata: " + error + b"\n\n"

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(each.text for each in self._blocks if each.start.get("type") == "text")

    def feed(self, data: bytes) -> None:
        """Read the next bytes."""
        try:
            for event in self._splitter.feed(data):
                self._read(event)
        except _INVALID:
            # What cannot be followed is no answer, whatever it is.
            self._reader.give_up()

    def answer(self) -> WholeAnswer:
        """The whole answer; only when `whole`."""
        return WholeAnswer(
            content=[block.finished() for block in self._blocks],
            stop_reason=self._reader.stop_reason or "",
            usage=self._reader.usage,
            model=self._model,
        )

    def _read(self, event: bytes) -> None:
        name, data = name_and_data(event)
        if name == b"message_start":
            message = _object(_object(_decoded(data))["message"])
            if message.get("id") == HOLD_ID and not self._reader.started:
                self._sign_of_life = event  # the real one comes after it
                return
            self._sign_of_life = None
            self._model = str(message.get("model", ""))
        elif self._sign_of_life and name == b"content_block_start":
            # It is an upstream's answer under that name, and counts like any other.
            begun, self._sign_of_life = self._sign_of_life, None
            self._model = str(
                _object(_object(_decoded(name_and_data(begun)[1]))["message"])["model"]
            )
            self._reader.feed(begun)
        self._reader.feed(event)
        if self._reader.broken:
            return
        if name == b"content_block_start":
            self._blocks.append(_Block(dict(_object(_object(_decoded(data))["content_block"]))))
        elif name == b"content_block_delta":
            self._blocks[-1].add(_object(_object(_decoded(data))["delta"]))


def answer_from_body(body: bytes) -> WholeAnswer | None:
    """An answer that came in one piece; None when the body is none."""
    try:
        message = _object(_decoded(body))
        content = message["content"]
        if message.get("type") != "message" or not isinstance(content, list):
            return None
        usage = msgspec.Raw(msgspec.json.encode(_object(message.get("usage") or {})))
        return WholeAnswer(
            content=[_object(block) for block in content],
            stop_reason=str(message.get("stop_reason") or ""),
            usage=TokenUsage().updated(usage),
            model=str(message.get("model", "")),
        )
    except _INVALID:
        return None


def _decoded(data: bytes | str) -> object:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        # Models now and then write half of a surrogate pair, which only the lenient reader takes.
        return json.loads(data)


def _object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError("an object was expected")
    return value
