"""Listen to one attempt: read what comes, and tell the carrier what it amounts to.

Laws: (1) every attempt ends in exactly one of three ways: a whole answer, a rejection with the
vendor's words, or a break; (2) nothing is passed on before it is known to be an answer; (3) what
the vendor wrote is passed on byte for byte, as it was unpacked.
Not here: what happens next (carrier.py), how broken streams are mended (stitching.py), unpacking
and how large an answer may be (upstream/bounded_answer.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from jackline.calls.carried import Carried
from jackline.calls.request import Rejection
from jackline.dialects import read_answer
from jackline.dialects.openai_answered import is_openai_answer
from jackline.failures import Failure, Kind, Observation
from jackline.outside_names import cut_name
from jackline.upstream.port import Attempt, Headers

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


class Judge(Protocol):
    """Who is told what an attempt amounts to; the carrier."""

    def accepted(self, hearing: Hearing) -> None:
        """The vendor has taken the call, and more will come."""
        ...

    def alive(self, hearing: Hearing) -> None:
        """Bytes came."""
        ...

    def answered(self, hearing: Hearing) -> None:
        """The answer is whole and passed on."""
        ...

    def judge(self, seen: Observation) -> Failure:
        """What went wrong."""
        ...

    def failed(
        self, hearing: Hearing, failure: Failure, rejection: Rejection | None = None
    ) -> None:
        """The attempt has failed."""
        ...

    def crashed(self, hearing: Hearing, error: Exception) -> None:
        """Our own code has failed while listening."""
        ...


class Hearing:
    """One attempt of one call; an `Ear` for the upstream."""

    __slots__ = (
        "_body",
        "_headers",
        "_is_accepted",
        "_judge",
        "_status",
        "_streams",
        "began_at",
        "begun",
        "carried",
        "handle",
        "lane",
        "lowered",
        "over",
        "permit",
        "stitch",
    )

    def __init__(
        self, judge: Judge, carried: Carried, permit: int, lane: str, began_at: float
    ) -> None:
        self._judge = judge
        self.carried = carried
        self.permit = permit
        self.lane = lane
        self.began_at = began_at
        # A second attempt, beside one that is silent, makes an answer of its own.
        self.stitch = carried.stitch if carried.hearing is None else carried.stitch_beside()
        self.handle: Attempt | None = None
        self.over = False
        self._status = 0
        self._headers: Headers = ()
        # The answer's headers by lower-case name.
        self.lowered: Mapping[str, str] = _NO_HEADERS
        self._streams = False
        self._is_accepted = False
        # The model has begun to speak.
        self.begun = False
        # The very bytes that came, as long as they came in one piece.
        self._body: bytes | bytearray = b""

    @property
    def request_id(self) -> str | None:
        """The vendor's own name for this attempt, once it has spoken."""
        given = self.lowered.get("request-id")
        return None if given is None else cut_name(given)

    @property
    def status(self) -> int | None:
        """The status of the answer, once it is there."""
        return self._status or None

    def drop(self) -> None:
        """Stop listening and hang up."""
        self.over = True
        if self.handle is not None:
            self.handle.hang_up()

    def pass_on(self, data: bytes) -> None:
        """Deliver bytes as part of this attempt's answer."""
        self.carried.deliver(self._status, self._headers, self.lane, data)

    # --- what the upstream tells --------------------------------------------------------------

    def began(self, status: int, headers: Headers) -> None:
        """The head of the answer."""
        if self.over:
            return
        try:
            self._begin(status, headers)
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._judge.crashed(self, error)

    def heard(self, data: bytes) -> None:
        """Bytes of the answer."""
        if self.over:
            return
        try:
            if self._streams:
                self._follow(data)
            else:
                self._judge.alive(self)
                self._keep(data)
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._judge.crashed(self, error)

    def ended(self) -> None:
        """The HTTP message is complete."""
        self.handle = None
        if self.over:
            return
        try:
            self._end()
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._judge.crashed(self, error)

    def broke(self, error: OSError) -> None:
        """The connection failed."""
        self.handle = None
        if self.over:
            return
        try:
            if self.stitch.complete:
                self._judge.answered(self)
            else:
                self._fail(Observation.of_exception(error))
        except Exception as fault:  # noqa: BLE001 -- the border of one call: siblings go on
            self._judge.crashed(self, fault)

    # --- reading ------------------------------------------------------------------------------

    def _begin(self, status: int, headers: Headers) -> None:
        self._status = status
        self._headers = headers
        self.lowered = lowered = {_plain[n]: v.decode("latin-1") for n, v in headers}
        carried = self.carried
        if carried.request.stream and 200 <= status < 300:
            kind = lowered.get("content-type")
            if kind is not None and kind.startswith("text/event-stream"):
                self._streams = True
                self.stitch.attempt_began()

    def _follow(self, data: bytes) -> None:
        carried = self.carried
        stitch = self.stitch
        out = stitch.feed(data)
        if carried.beside is not None and stitch.begun:
            # The first of the two to speak: the other one must not be heard any more, and nothing
            # is passed on before that.
            self.begun = True
            if self._is_accepted:
                self._judge.alive(self)
            else:
                self._is_accepted = True
                self._judge.accepted(self)
        if stitch.complete:
            # One that came whole at once is told by its end alone.
            if out:
                carried.deliver(self._status, self._headers, self.lane, out)
            return
        self.begun = self.begun or stitch.begun
        if not self._is_accepted:
            self._is_accepted = True
            self._judge.accepted(self)
        if out:
            carried.deliver(self._status, self._headers, self.lane, out)
        self._judge.alive(self)
        if stitch.broken:
            if stitch.error_event is None:
                self._fail(Observation.of_exception(EOFError(_UNFINISHED)))
            else:
                told = b"event: error\ndata: " + stitch.error_event + b"\n\n"
                self._fail(Observation.of_stream(told))

    def _keep(self, data: bytes) -> None:
        body = self._body
        if not body:
            self._body = data
        elif isinstance(body, bytearray):
            body += data
        else:
            self._body = bytearray(body) + data

    def _end(self) -> None:
        if self._streams:
            if self.stitch.complete:
                self._judge.answered(self)
            else:
                self._fail(Observation.of_exception(EOFError(_UNFINISHED)))
            return
        body = self._body if isinstance(self._body, bytes) else bytes(self._body)
        if 200 <= self._status < 300:
            self._end_whole(body)
            return
        self._fail(self._seen(body), Rejection(self._status, self._headers, body, self.lane))

    def _end_whole(self, body: bytes) -> None:
        facts = read_answer(body)
        if facts is not None:
            self.carried.usage = facts.usage
            self.carried.has_read_answer = True
        else:
            # Not a message: a count of tokens, a list of models, or a hotel's log-in page.
            failure = self._judge.judge(self._seen(body))
            if failure.kind is not Kind.NOT_A_FAILURE:
                self._judge.failed(
                    self, failure, Rejection(self._status, self._headers, body, self.lane)
                )
                return
            dialect = self.carried.request.dialect
            self.carried.has_read_answer = dialect != "anthropic" and is_openai_answer(
                body, responses=dialect == "openai-responses"
            )
        self.carried.deliver(self._status, self._headers, self.lane, body)
        self._judge.answered(self)

    def _seen(self, body: bytes) -> Observation:
        return Observation.of_response(self._status, self.lowered, body)

    def _fail(self, seen: Observation, rejection: Rejection | None = None) -> None:
        self._judge.failed(self, self._judge.judge(seen), rejection)
