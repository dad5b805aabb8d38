"""Call a model through a gateway, and return its whole answer.

Rules: (1) a call ends in exactly one of three ways: a whole answer, one classified
`ModelFailedError`, or its cancellation, which frees the connection at once; (2) waits, retries and
other upstreams are the gateway's; a call is repeated here only where the gateway left it open: it
was not there, it said to come back, or it cut a stream that it had begun; (3) no credential is
shown or stored except in the headers that are sent.
Not here: parsing the events (answer_stream.py), the reaction to a failure (messages/).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import TracebackType
from typing import Self

import msgspec

from jackline import __version__
from jackline.agents.answer_stream import AnswerStreamReader, answer_from_body
from jackline.agents.runner import (
    TOOLS_HEADER,
    JsonObject,
    ModelCaller,
    ModelFailedError,
    WholeAnswer,
)
from jackline.clock import Clock, SystemClock
from jackline.failures import Failure, Kind, Observation, classify
from jackline.failures.sentences import name_of
from jackline.failures.wording import redact
from jackline.lane_id import LaneId
from jackline.upstream import Headers, HttpUpstream, Origin, UpstreamRequest

_LANE = LaneId("gateway")
_PATH = "/v1/messages"
_VERSION = "2023-06-01"
# A gateway that is restarted is back within seconds; one that is upgraded within a minute or two.
_PATIENCE = 120.0
_GONE = "the gateway does not answer; it is asked again"
_COMES_BACK = "the gateway asks for patience"
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 5.0
# A stream that the gateway had begun and could not end, though it has tried to.
_MOST_BROKEN = 3
# A call that was under way for so long had a gateway all that time.
_ALIVE = 30.0
_LONGEST_WORDS = 200
_LARGEST_BODY = 64 << 20
# What a gateway takes as a tag; another word would be taken for a path that it does not have.
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9._~-]")
_LONGEST_TAG = 64


def credentials_from(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The headers by which Anthropic's clients pay, as far as the environment has them."""
    if key := environ.get("ANTHROPIC_API_KEY"):
        return (("x-api-key", key),)
    if token := environ.get("ANTHROPIC_AUTH_TOKEN"):
        return (("authorization", f"Bearer {token}"),)
    return ()


class GatewayModel:
    """A `Model` behind a gateway's base URL; `async with` closes its connections.

    `headers` are sent with every call: credentials, a gateway's token. `patience` is how many
    seconds a gateway may be gone before that is an outage.
    """

    def __init__(
        self,
        base_url: str,
        *,
        clock: Clock | None = None,
        headers: Sequence[tuple[str, str]] = (),
        patience: float = _PATIENCE,
    ) -> None:
        self._clock = clock or SystemClock()
        self._headers = tuple(headers)
        self._patience = patience
        self._upstream = HttpUpstream({_LANE.upstream: Origin(base_url)})

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
        """Break off whatever goes on; returns when no connection is left."""
        await self._upstream.close()

    async def ask(self, body: JsonObject, caller: ModelCaller) -> WholeAnswer:
        """The whole answer; ModelFailedError when there is none."""
        message = self._message(body, caller)
        patience = _Patience(self._patience)
        waited = False
        try:
            while True:
                began = self._clock.monotonic()
                told = await self._try(message)
                if told.answer is not None:
                    return told.answer
                wait = patience.wait(told, began, self._clock.monotonic())
                if wait is None:
                    raise self._failed(told)
                if wait and not waited:
                    waited = True
                    caller.waits(_GONE if told.gone else _COMES_BACK, None)
                await self._clock.sleep(wait)
        finally:
            if waited:
                caller.waits("", None)

    async def _try(self, message: UpstreamRequest) -> _Told:
        future: asyncio.Future[_Told] = asyncio.get_running_loop().create_future()
        attempt = self._upstream.start(message, _LANE, _Listener(future))
        answered = False
        try:
            told = await future
            answered = told.answer is not None
        finally:
            # After a whole answer the connection is about to be free for the next call.
            if not answered:
                attempt.hang_up()
        return told

    def _message(self, body: JsonObject, caller: ModelCaller) -> UpstreamRequest:
        tag = f"/t/{_NOT_IN_TAGS.sub('-', caller.tag)[:_LONGEST_TAG]}" if caller.tag else ""
        pairs = [
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
            ("anthropic-version", _VERSION),
            ("user-agent", f"jackline/{__version__}"),
            ("x-claude-code-session-id", caller.session_id),
            ("x-claude-code-agent-id", caller.task_id),
            ("x-jackline-task", caller.task_id),
            *([("x-jackline-class", caller.class_)] if caller.class_ else ()),
            *([(TOOLS_HEADER, ran)] if (ran := caller.tools.taken()) else ()),
            *self._headers,
            *caller.headers,
        ]
        return UpstreamRequest(
            b"POST",
            f"{tag}{_PATH}".encode("ascii"),
            [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in pairs],
            _encoded({**body, "stream": True}),
        )

    def _failed(self, told: _Told) -> ModelFailedError:
        failure = classify(told.seen, now=self._clock.now())
        if failure.resets_at is None and told.resets_at is not None:
            # The gateway knows it from an earlier answer; this one's words do not say it.
            failure = replace(failure, resets_at=told.resets_at)
        return ModelFailedError(
            failure,
            says=_in_words(failure, told),
            status=told.status,
            request_id=told.request_id,
            attempts=told.attempts,
            text=told.text,
        )


@dataclass(frozen=True, slots=True)
class _Told:
    """What came of one request to the gateway."""

    answer: WholeAnswer | None = None
    seen: Observation = field(default_factory=lambda: Observation.of_text(""))
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    gone: bool = False
    """The gateway was not there, or went before anything of an answer came."""
    cut: bool = False
    """The answer had begun, and did not end: the gateway expects to be asked again."""
    undecided: bool = False
    """The stream ended in an error before the model spoke: its proper status is still to be had."""

    @property
    def request_id(self) -> str | None:
        return self.headers.get("request-id")

    @property
    def attempts(self) -> int:
        told = self.headers.get("x-jackline-attempts", "")
        return max(1, int(told)) if told.isdigit() else 1

    @property
    def resets_at(self) -> datetime | None:
        try:
            told = datetime.fromisoformat(self.headers.get("x-jackline-resets-at", ""))
        except ValueError:
            return None
        return None if told.tzinfo is None else told

    @property
    def comes_back(self) -> float | None:
        """In how many seconds the gateway wants to be asked again, when it does."""
        if self.headers.get("x-should-retry") != "true":
            return None
        wait = self.headers.get("retry-after", "")
        return float(wait) if wait.isdigit() else _FIRST_WAIT


class _Patience:
    """How long this call goes on asking a gateway that gives no answer and no refusal."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._missed_since: float | None = None
        self._wait = _FIRST_WAIT
        self._broken = 0
        self._was_undecided = False

    def wait(self, told: _Told, began: float, now: float) -> float | None:
        """In how many seconds to ask again after a try; None when what was told is final."""
        if told.undecided and not self._was_undecided:
            self._was_undecided = True
            return 0.0
        if told.cut and self._broken < _MOST_BROKEN - 1:
            self._broken += 1
            return 0.0
        if not told.gone and told.comes_back is None:
            return None
        if self._missed_since is None or now - began > _ALIVE:
            self._missed_since, self._wait = now, _FIRST_WAIT
        wait = self._wait if told.comes_back is None else told.comes_back
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        return wait if now + wait - self._missed_since <= self._seconds else None


class _Listener:
    """Hears one attempt; an `Ear`."""

    def __init__(self, future: asyncio.Future[_Told]) -> None:
        self._future = future
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._reader: AnswerStreamReader | None = None
        self._body = bytearray()

    def began(self, status: int, headers: Headers) -> None:
        """The head of the answer."""
        self._status = status
        self._headers = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in headers}
        if self._headers.get("content-type", "").startswith("text/event-stream"):
            self._reader = AnswerStreamReader()

    def heard(self, data: bytes) -> None:
        """Bytes of the answer."""
        reader = self._reader
        if reader is None:
            self._body += data[: _LARGEST_BODY - len(self._body)]
            return
        reader.feed(data)
        if reader.whole or reader.broken:
            self._end_stream(reader)

    def ended(self) -> None:
        """The HTTP message is complete."""
        if self._reader is not None:
            self._end_stream(self._reader)
            return
        status, body = self._status or 0, bytes(self._body)
        answer = answer_from_body(body, request_id=self._request_id, lane=self._lane)
        seen = Observation.of_response(status, self._headers, body)
        self._tell(_Told(answer, seen, status, self._headers))

    def broke(self, error: OSError) -> None:
        """The connection failed."""
        self._unfinished(Observation.of_exception(error))

    def _end_stream(self, reader: AnswerStreamReader) -> None:
        error = reader.error_event
        if reader.whole:
            answer = reader.answer(request_id=self._request_id, lane=self._lane)
            self._tell(_Told(answer))
        elif error is None:
            early = EOFError("the stream ended before the response was complete")
            self._unfinished(Observation.of_exception(early))
        else:
            told = self._told(Observation.of_stream(error))
            self._tell(replace(told, undecided=not reader.began))

    def _unfinished(self, seen: Observation) -> None:
        begun = self._reader is not None and self._reader.began
        self._tell(replace(self._told(seen), gone=not begun, cut=begun))

    def _told(self, seen: Observation) -> _Told:
        text = "" if self._reader is None else self._reader.text
        return _Told(None, seen, self._status, self._headers, text)

    @property
    def _request_id(self) -> str | None:
        return self._headers.get("request-id")

    @property
    def _lane(self) -> str | None:
        return self._headers.get("x-jackline-lane")

    def _tell(self, told: _Told) -> None:
        if not self._future.done():
            self._future.set_result(told)


def _encoded(body: JsonObject) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        # Half of a surrogate pair, from a tool's output or a file's name: no API takes it.
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _in_words(failure: Failure, told: _Told) -> str:
    """One sentence for a person; the vendor's own words only where a person has to act on them."""
    if failure.kind is Kind.ACCOUNT_QUOTA:
        # It becomes the reason of a parked run, which is shown again and again.
        name = name_of(failure)
        return f"{name[0].upper()}{name[1:]} is reached."
    tries = f" after {told.attempts} attempts" if told.attempts > 1 else ""
    by_id = f" (request {told.request_id})" if told.request_id else ""
    sentence = f"The model call failed{tries}: {name_of(failure)}{by_id}."
    if failure.retry_same or failure.kind is Kind.CONTENT_POLICY:
        return sentence
    words = _vendors_words(told.seen.body)
    return f"{sentence} The API says: {words}" if words else sentence


def _vendors_words(body: object) -> str:
    if not isinstance(body, bytes):
        return ""
    try:
        error = msgspec.json.decode(body, type=_ErrorBody).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return redact(" ".join(error.message.split()))[:_LONGEST_WORDS]


class _Error(msgspec.Struct):
    message: str = ""


class _ErrorBody(msgspec.Struct):
    error: _Error
