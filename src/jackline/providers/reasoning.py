"""Earlier reasoning in a conversation: store it for its author, and retry without it where refused.

Rules: (1) reasoning of a Responses server is stored in memory only, bounded in number and size, for
one account and model: nobody else could read it; (2) a request whose earlier reasoning was refused
is retried once without it, never again; (3) a header of the answer and the event log report that;
(4) reasoning that an upstream has refused is not sent to it again, so that the next turns need no
retry; (5) any other answer and error is passed on as it came.
Not here: which reasoning belongs to which call (dialects/neutral/options.py), which is foreign at
first sight (dialects/mixed_conversation.py), what a refusal means (failures/).
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from jackline.clock import SystemClock
from jackline.dialects.mixed_conversation import fit_for_claude
from jackline.dialects.neutral.fields import TranslatedDocument
from jackline.dialects.neutral.options import StoredReasoning
from jackline.dialects.openai_responses.request import without_reasoning
from jackline.failures import Failure, Kind, Observation, classify
from jackline.providers.translated_answer import NOTES, note_value
from jackline.upstream.interface import Headers, ResponseHandler, UpstreamAttempt, UpstreamRequest

_MOST = 10_000
_MOST_BYTES = 64 * 1024 * 1024


class ReasoningStore:
    """The thoughts of one upstream, by whose they are and the call that followed."""

    def __init__(self, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[str, str], Sequence[StoredReasoning]] = OrderedDict()
        self._bytes = 0

    def remember(self, whose: str, call: str, thoughts: Sequence[StoredReasoning]) -> None:
        """This was thought before that call."""
        self._forget((whose, call))
        self._kept[whose, call] = tuple(thoughts)
        self._bytes += _size(thoughts)
        while len(self._kept) > self._most or self._bytes > self._most_bytes:
            self._forget(next(iter(self._kept)))

    def recall(self, whose: str, call: str) -> Sequence[StoredReasoning]:
        """What was thought before a call; nothing when it is not known."""
        found = self._kept.get((whose, call))
        if found is None:
            return ()
        self._kept.move_to_end((whose, call))
        return found

    def _forget(self, key: tuple[str, str]) -> None:
        self._bytes -= _size(self._kept.pop(key, ()))


def _size(thoughts: Sequence[StoredReasoning]) -> int:
    return sum(len(bytes(each.item)) for each in thoughts)


# How a mended message is sent.
SendAgain: TypeAlias = Callable[[UpstreamRequest, ResponseHandler], UpstreamAttempt]


class ReasoningFix(NamedTuple):
    """What can be done about a refusal.

    `helps` tells which refusals it is for, `fit` takes out every thought, `fit_known` those that
    are known to be refused.
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
# Others refuse such a request in many words; without thoughts of another house it is worth a try.
FOR_RESPONSES = ReasoningFix(
    lambda failure: failure.kind is Kind.INVALID_REQUEST, without_reasoning, without_reasoning
)

_SIGNED = re.compile(rb'"(?:signature|data|encrypted_content)"\s*:\s*"([^"\\]+)"')
_MOST_REFUSED = 20_000


class RefusedSignatures:
    """The signatures and seals that were refused somewhere, as far as they are remembered."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._known)

    def __contains__(self, signature: object) -> bool:
        return isinstance(signature, str) and _digest(signature.encode()) in self._known

    def remember(self, body: bytes | bytearray) -> None:
        """One of the signatures in this request was refused; which one is not told."""
        for found in _SIGNED.finditer(body):
            self._known[_digest(found[1])] = None
        while len(self._known) > _MOST_REFUSED:
            self._known.popitem(last=False)


class ReasoningRetry:
    """One attempt as its caller knows it, and the ear of one or two as upstreams do."""

    __slots__ = (
        "_again",
        "_body",
        "_ear",
        "_head",
        "_is_mended",
        "_keeps",
        "_means",
        "_message",
        "_notes",
        "_paused",
        "_refused",
        "handle",
    )

    def __init__(
        self,
        ear: ResponseHandler,
        message: UpstreamRequest,
        mend: ReasoningFix,
        again: SendAgain,
        refused: Callable[[UpstreamRequest], None],
        notes: tuple[str, ...] = (),
    ) -> None:
        self._ear: ResponseHandler | None = ear
        self._message = message
        self._means = mend
        self._again = again
        self._refused = refused
        self._notes = notes
        self._is_mended = False
        self._paused = False
        self._head: tuple[int, Headers] = (0, ())
        self._body = bytearray()
        self.handle: UpstreamAttempt | None = None
        # An error is being kept until all of it can be read.
        self._keeps = False

    # --- for upstreams ----------------------------------------------------------------------------

    def began(self, status: int, headers: Headers) -> None:
        """The head of the answer; an error is kept until all of it can be read."""
        if self._ear is None:
            return
        if self._is_mended or 200 <= status < 300:
            self._ear.began(status, self._noted(headers))
            return
        self._head = status, headers
        self._keeps = True

    def heard(self, data: bytes) -> None:
        """Bytes of it."""
        if self._keeps:
            self._body += data
        elif self._ear is not None:
            self._ear.heard(data)

    def ended(self) -> None:
        """The end of it, in order."""
        if self._keeps:
            self._keeps = False
            self._judge()
        elif self._ear is not None:
            self._ear.ended()

    def broke(self, error: OSError) -> None:
        """No answer came."""
        if self._ear is not None:
            self._ear.broke(error)

    def _judge(self) -> None:
        ear = self._ear
        if ear is None:
            return
        if self._mend():
            return
        ear.began(*self._head)
        if self._ear is not None:
            ear.heard(bytes(self._body))
        if self._ear is not None:
            ear.ended()

    def _mend(self) -> bool:
        status, headers = self._head
        told = {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in headers}
        seen = Observation.of_response(status, told, bytes(self._body))
        if not self._means.helps(classify(seen, now=SystemClock().now())):
            return False
        message = self._message
        fitted = self._means.fit(message.body)
        if not fitted.notes or fitted.body == message.body:
            return False
        self._is_mended = True
        self._notes = fitted.notes
        self._refused(message)
        self.handle = self._again(message._replace(body=fitted.body), self)
        if self._paused:
            self.handle.pause()
        return True

    def _noted(self, headers: Headers) -> Headers:
        return [*headers, (NOTES, note_value(self._notes))] if self._notes else headers

    # --- for the caller ---------------------------------------------------------------------------

    def hang_up(self) -> None:
        """Drop it."""
        self._ear = None
        if self.handle is not None:
            self.handle.hang_up()

    def pause(self) -> None:
        """Stop reading."""
        self._paused = True
        if self.handle is not None:
            self.handle.pause()

    def resume(self) -> None:
        """Go on reading."""
        self._paused = False
        if self.handle is not None:
            self.handle.resume()


def _digest(signature: bytes) -> bytes:
    return hashlib.blake2b(signature, digest_size=8).digest()
