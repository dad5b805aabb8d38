"""Earlier reasoning in a conversation: store it for its author, and retry without it where refused.

Rules: (1) reasoning of a Responses server is stored in memory only, bounded in number and size, for
one account and model: nobody else could read it; (2) a request whose earlier reasoning was refused
is retried once without it, never again; (3) a header of the answer and the event log report that;
(4) reasoning that an upstream has refused is not sent to it again, so that the next turns need no
retry; (5) any other answer and error is passed on as it came.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import NamedTuple

from jackline.clock import SystemClock
from jackline.dialects.mixed_conversation import fit_for_claude
from jackline.dialects.neutral.fields import TranslatedDocument
from jackline.dialects.neutral.options import StoredReasoning
from jackline.dialects.openai_responses import without_reasoning
from jackline.failures import Failure, Kind, Observation, classify
from jackline.http1.headers import Headers
from jackline.providers.translated_answer import NOTES, note_value
from jackline.upstream.interface import ResponseHandler, UpstreamAttempt, UpstreamRequest

_SIGNED = re.compile(rb'"(?:signature|data|encrypted_content)"\s*:\s*"([^"\\]+)"')
_MOST_REFUSED = 20_000


class ReasoningStore:
    """The reasoning of one upstream, by its owner and the call that followed."""

    def __init__(self, most: int = 10_000, most_bytes: int = 64 * 1024 * 1024) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._stored: OrderedDict[tuple[str, str], tuple[Sequence[StoredReasoning], int]]
        self._stored = OrderedDict()
        self._bytes = 0

    def remember(self, owner: str, call: str, thoughts: Sequence[StoredReasoning]) -> None:
        """Store the reasoning that came before that call."""
        self._forget((owner, call))
        size = sum(len(bytes(each.item)) for each in thoughts)
        self._stored[owner, call] = tuple(thoughts), size
        self._bytes += size
        while len(self._stored) > self._most or self._bytes > self._most_bytes:
            self._forget(next(iter(self._stored)))

    def recall(self, owner: str, call: str) -> Sequence[StoredReasoning]:
        """The reasoning that came before a call; nothing when it is not known."""
        found = self._stored.get((owner, call))
        if found is None:
            return ()
        self._stored.move_to_end((owner, call))
        return found[0]

    def _forget(self, key: tuple[str, str]) -> None:
        self._bytes -= self._stored.pop(key, ((), 0))[1]


class ReasoningFix(NamedTuple):
    """What can be done about a refusal.

    `helps` decides for which failures it is, `fit` removes all reasoning, `fit_known` the reasoning
    that is known to be refused.
    """

    helps: Callable[[Failure], bool]
    fit: Callable[[bytes | bytearray], TranslatedDocument]
    fit_known: Callable[[bytes | bytearray, Container[str]], TranslatedDocument]


# Claude names the cause.
FOR_CLAUDE = ReasoningFix(
    lambda failure: failure.sub == "thinking_signature",
    partial(fit_for_claude, distrust_thinking=True),
    lambda body, refused: fit_for_claude(body, refused=refused),
)
# Others refuse such a request with many texts; without foreign reasoning it is worth a try.
FOR_RESPONSES = ReasoningFix(
    lambda failure: failure.kind is Kind.INVALID_REQUEST, without_reasoning, without_reasoning
)


class RefusedSignatures:
    """The signatures that an upstream has refused; the oldest are forgotten."""

    def __init__(self) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._digests)

    def __contains__(self, signature: object) -> bool:
        return isinstance(signature, str) and self._digest(signature.encode()) in self._digests

    def remember(self, body: bytes | bytearray) -> None:
        """One of the signatures in this request was refused; it is not known which."""
        for found in _SIGNED.finditer(body):
            self._digests[self._digest(found[1])] = None
        while len(self._digests) > _MOST_REFUSED:
            self._digests.popitem(last=False)

    @staticmethod
    def _digest(signature: bytes) -> bytes:
        return hashlib.blake2b(signature, digest_size=8).digest()


class ReasoningRetry:
    """One attempt for its caller, and the handler of one or two attempts for upstreams.

    `send` sends a changed request, `refused` gets the request whose reasoning was refused.
    """

    __slots__ = (
        "_body",
        "_collects",
        "_fix",
        "_handler",
        "_head",
        "_is_retried",
        "_notes",
        "_paused",
        "_refused",
        "_request",
        "_send",
        "attempt",
    )

    def __init__(
        self,
        handler: ResponseHandler,
        request: UpstreamRequest,
        fix: ReasoningFix,
        send: Callable[[UpstreamRequest, ResponseHandler], UpstreamAttempt],
        refused: Callable[[UpstreamRequest], None],
        notes: tuple[str, ...] = (),
    ) -> None:
        self._handler: ResponseHandler | None = handler
        self._request = request
        self._fix = fix
        self._send = send
        self._refused = refused
        self._notes = notes
        self._is_retried = False
        self._paused = False
        self._head: tuple[int, Headers] = (0, ())
        self._body = bytearray()
        self.attempt: UpstreamAttempt | None = None
        # An error is collected until all of it can be classified.
        self._collects = False

    # --- for upstreams ----------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """What it and its handler keep for now."""
        return len(self._body) + (0 if self._handler is None else self._handler.held)

    def began(self, status: int, headers: Headers) -> None:
        """The head of the answer."""
        if self._handler is None:
            return
        if not self._is_retried and not 200 <= status < 300:
            self._head = status, headers
            self._collects = True
            return
        notes = [(NOTES, note_value(self._notes))] if self._notes else []
        self._handler.began(status, [*headers, *notes] if notes else headers)

    def received(self, data: bytes) -> None:
        """Bytes of the body."""
        if self._collects:
            self._body += data
        elif self._handler is not None:
            self._handler.received(data)

    def ended(self) -> None:
        """The answer is complete."""
        is_error, self._collects = self._collects, False
        if self._handler is None or (is_error and self._retry()):
            return
        # The handler may hang up in each of these calls.
        if is_error:
            self._handler.began(*self._head)
        if is_error and self._handler is not None:
            self._handler.received(bytes(self._body))
        if self._handler is not None:
            self._handler.ended()

    def broke(self, error: OSError) -> None:
        """The answer will not become complete."""
        if self._handler is not None:
            self._handler.broke(error)

    def _retry(self) -> bool:
        """Send the request without its reasoning, if that may help."""
        status, headers = self._head
        text = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in headers}
        seen = Observation.of_response(status, text, bytes(self._body))
        if not self._fix.helps(classify(seen, now=SystemClock().now())):
            return False
        request = self._request
        fitted = self._fix.fit(request.body)
        if not fitted.notes or fitted.body == request.body:
            return False
        self._is_retried = True
        self._notes = fitted.notes
        self._refused(request)
        self.attempt = self._send(request._replace(body=fitted.body), self)
        if self._paused:
            self.attempt.pause()
        return True

    # --- for the caller ---------------------------------------------------------------------------

    def hang_up(self) -> None:
        """Drop it."""
        self._handler = None
        if self.attempt is not None:
            self.attempt.hang_up()

    def pause(self) -> None:
        """Stop reading."""
        self._paused = True
        if self.attempt is not None:
            self.attempt.pause()

    def resume(self) -> None:
        """Go on reading."""
        self._paused = False
        if self.attempt is not None:
            self.attempt.resume()
