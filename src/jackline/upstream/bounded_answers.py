"""Read answers within limits: decompress them, bound their size and time, fetch small documents.

Rules: (1) one slice is decompressed per turn of the event loop, so that others go on meanwhile; (2)
an answer that is larger, once decompressed, or takes longer than its limits allow is cut with an
error that names the setting; those that are only relayed have none; (3) of an error only a
beginning is passed on, and no credential that its caller did not send itself: a part of 16 bytes is
as good as the whole, shorter ones count whole, from 8 bytes on; what is blanked keeps its length,
an error that repeats parts over and over is blanked as a whole, and only 15 bytes wait for the next
packet; credentials in another encoding (base64, escaped) are not found; (4) when the handler of an
answer raises, its call gets a broken answer; (5) `fetch` never raises: errors are in its result,
redirects are answers like any other, and nothing beyond the size limit is stored; (6) beyond a
limit for all answers under way together, the largest ones are broken off until the others fit, but
never the only one: it has a limit of its own.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import inf

from jackline.http1.compression import (
    SLICE_BYTES,
    DecompressionError,
    Decompressor,
    decompressors_for,
)
from jackline.http1.headers import Headers
from jackline.http1.responses import GarbledError
from jackline.lane_id import LaneId
from jackline.upstream.interface import (
    SILENT_HANDLER,
    AnswersTooLargeError,
    AnswerTooLargeError,
    AnswerTooLongError,
    ResponseHandler,
    Upstream,
    UpstreamAttempt,
    UpstreamRequest,
)

PART = 16
"""So much of a credential is too much."""
SHORTEST = 8
_BLANK = b"*"
# Every part of a text contains one whole block of half its size, if blocks are laid end to end.
_BLOCK = PART // 2
_MOST_HITS = 2000
# Anthropic's, OpenAI's, Azure's, AWS's, Google's, and those of proxies.
ID_HEADERS = frozenset(
    (
        b"apim-request-id",
        b"cf-ray",
        b"request-id",
        b"x-amz-request-id",
        b"x-amzn-request-id",
        b"x-amzn-requestid",
        b"x-correlation-id",
        b"x-goog-request-id",
        b"x-ms-request-id",
        b"x-request-id",
        b"x-trace-id",
    )
)
_ID = re.compile(rb"[A-Za-z0-9_.:/+=-]{1,128}")
# Of names, because every vendor and proxy has its own; a key for idempotency opens nothing.
_SAYS_CREDENTIAL = re.compile(rb"auth|key|token|cookie|secret|credential|password|signature")
_NO_CREDENTIALS = frozenset((b"idempotency-key", b"x-idempotency-key"))
# A scheme, a name or a value; what is shorter is no secret.
_WORD = re.compile(rb"[^\s,;=]{6,}")
# Logins and cookies are a few kilobytes. Beyond that nothing is compared, and no id passes.
_MOST_CREDENTIAL_BYTES = 4 * 1024
# In the place of words that are not compared: every id may hold one.
_IN_EVERYTHING = b""
# An answer names its id once, and its proxies theirs; further ones are dropped.
_MOST_IDS = 4


class SentCredentials:
    """The credentials that a request was sent with, for comparison with ids in its answer.

    Their words are found once, when the first id comes: the work is linear in what was sent, and
    both what was sent and the ids are bounded.
    """

    __slots__ = ("_sent", "_words")

    def __init__(self, sent: Headers) -> None:
        self._sent = sent
        self._words: tuple[list[bytes], list[bytes]] | None = None

    def are_repeated_in(self, value: bytes) -> bool:
        """Whether this holds a large part of one of them, or may do so."""
        if self._words is None:
            self._words = self._find_words()
        short, long = self._words
        if any(word in value for word in short):
            return True
        blocks = [value[at : at + _BLOCK] for at in range(0, len(value) - _BLOCK + 1, _BLOCK)]
        # A word without a block of the id has no larger part of it: that is nearly always so.
        near = [word for word in long if any(block in word for block in blocks)]
        return bool(near) and not _pieces(near, PART).isdisjoint(_pieces((value,), PART))

    def _find_words(self) -> tuple[list[bytes], list[bytes]]:
        """The words that count whole, and those of which a part does."""
        values = [value for name, value in self._sent if _may_be_credential(name)]
        if sum(map(len, values)) > _MOST_CREDENTIAL_BYTES:
            return [_IN_EVERYTHING], []
        words = [word for value in values for word in _WORD.findall(value)]
        short = [word for word in words if len(word) < PART]
        return short, [word for word in words if len(word) >= PART]

    def words_not_in(self, others: Headers) -> list[bytes]:
        """The secret words of credentials that are not among these headers."""
        known = {word for _, value in others for word in _WORD.findall(value)}
        found: list[bytes] = []
        for name, value in self._sent:
            # Behind the scheme: its name is no secret, and neither are names of parameters.
            last = value.rpartition(b" ")[2] if _may_be_credential(name) else b""
            least = SHORTEST if _WORD.fullmatch(last) else PART
            found += [each for each in _WORD.findall(last) if len(each) >= least]
        room = _MOST_CREDENTIAL_BYTES
        return [each for each in found if each not in known and (room := room - len(each)) >= 0]


def is_request_id(value: bytes, sent: SentCredentials) -> bool:
    """Whether this may pass as the id of the answer to a request with these credentials."""
    return _ID.fullmatch(value) is not None and not sent.are_repeated_in(value)


@lru_cache(maxsize=1024)
def _may_be_credential(name: bytes) -> bool:
    plain = name.lower()
    return plain not in _NO_CREDENTIALS and _SAYS_CREDENTIAL.search(plain) is not None


def _pieces(words: Sequence[bytes], size: int) -> set[bytes]:
    return {word[at : at + size] for word in words for at in range(len(word) - size + 1)}


class Blanker:
    """Blanks the gateway's own credentials, and parts of them, in bytes."""

    __slots__ = ("_blocks", "_parts", "_short", "hits_left")

    def __init__(self, credentials: Sequence[bytes]) -> None:
        long = [each for each in credentials if len(each) >= PART]
        self._short = [each for each in credentials if SHORTEST <= len(each) < PART]
        self._parts = _pieces(long, PART)
        self._blocks = _pieces(long, _BLOCK)
        self.hits_left = _MOST_HITS

    def found_in(self, data: bytes) -> list[tuple[int, int]]:
        """Where parts are, from each start to its end; they may overlap."""
        found = []
        for word in self._short:
            at = data.find(word)
            while at >= 0 and self.hits_left > 0:
                self.hits_left -= 1
                found.append((at, at + len(word)))
                at = data.find(word, at + len(word))
        blocks, parts = self._blocks, self._parts
        for at in range(0, len(data) - _BLOCK + 1 if blocks else 0, _BLOCK):
            if data[at : at + _BLOCK] not in blocks:
                continue
            self.hits_left -= 1
            if self.hits_left <= 0:
                break
            first = max(0, at - PART + _BLOCK)
            starts = [each for each in range(first, at + 1) if data[each : each + PART] in parts]
            if starts:
                found.append((starts[0], starts[-1] + PART))
        return [(0, len(data))] if self.hits_left <= 0 else found

    def blanked(self, data: bytes) -> bytes:
        """The whole of these bytes without credentials."""
        return _blank(data, self.found_in(data))


def _blank(data: bytes, found: Sequence[tuple[int, int]]) -> bytes:
    if not found:
        return data
    changed = bytearray(data)
    for start, end in found:
        changed[start:end] = _BLANK * (min(end, len(data)) - start)
    return bytes(changed)


class _BlankedError:
    """Between the body of an error and its handler."""

    __slots__ = ("_blanker", "_handler", "_known", "_rest")

    def __init__(self, handler: ResponseHandler, blanker: Blanker) -> None:
        self._handler = handler
        self._blanker = blanker
        # The last bytes, in which a part may begin, and how many of them belong to one already.
        self._rest = b""
        self._known = 0

    @property
    def held(self) -> int:
        return self._handler.held

    def began(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        # The values of headers may repeat a credential as well.
        blanked = self._blanker.blanked
        self._handler.began(status, [(name, blanked(value)) for name, value in headers])

    def received(self, data: bytes) -> None:
        data = self._rest + data
        found = [(0, self._known), *self._blanker.found_in(data)]
        final = max(0, len(data) - PART + 1)
        self._rest = data[final:]
        self._known = max(0, max(end for _, end in found) - final)
        # Also an empty piece shows that the upstream is alive.
        self._handler.received(_blank(data, found)[:final])

    def ended(self) -> None:
        self._pass_rest()
        self._handler.ended()

    def broke(self, error: OSError) -> None:
        self._pass_rest()
        self._handler.broke(error)

    def _pass_rest(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self._handler.received(_blank(rest, [(0, self._known), *self._blanker.found_in(rest)]))


class DecompressionTurns:
    """Bodies that are being decompressed: one slice of one of them in each turn of the loop."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], bool]] = deque()

    def wait(self, go_on: Callable[[], bool]) -> None:
        """Call this in turn until it returns that its body is done."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        go_on = self._waiting[0]
        is_done = True
        try:
            is_done = go_on()
        finally:
            # The next one's turn comes even if this one has failed.
            self._waiting.popleft()
            if not is_done:
                self._waiting.append(go_on)
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._turn)


FIRST_BYTES = 16 * 1024
"""Decompressed of each packet at once, without waiting for a turn: more than text events have."""
_log = logging.getLogger(__name__)
# A vendor's error is a few kilobytes; a page from a proxy may be more, and nobody needs all of it.
LARGEST_ERROR = 256 * 1024
_SIZES_OF_ID_HEADERS = frozenset(map(len, ID_HEADERS))
_OF_THE_PACKING = (b"content-encoding", b"content-length")


STEP = 16 * 1024
"""Changes of less than this are not counted, so that small answers cost nothing."""
_MOST_HELD = 512 * 1024 * 1024


class HeldAnswers:
    """What all answers under way hold; `most` may be changed at any time."""

    __slots__ = ("_sizes", "most", "total")

    def __init__(self, most: int = _MOST_HELD) -> None:
        self.most = most
        self.total = 0
        self._sizes: dict[BoundedAnswer, int] = {}

    def count(self, answer: BoundedAnswer, size: int) -> None:
        """An answer holds so much now, 0 once it is over; it may be broken off meanwhile."""
        sizes = self._sizes
        before = sizes.pop(answer, 0)
        self.total += size - before
        if size:
            sizes[answer] = size
        # Whoever lets go breaks nobody off: so no answer is broken off while another one ends.
        while size > before and self.total > self.most and len(sizes) > 1:
            largest = max(sizes, key=sizes.__getitem__)
            self.total -= sizes.pop(largest)
            largest.break_off(self.most)


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """How many bytes an answer may have, decompressed, and how many seconds it may take."""

    size: int
    seconds: float


class BoundedAnswer:
    """Between an attempt and the handler of its answer; the handler's side hangs up on this."""

    __slots__ = (
        "_all_held",
        "_counted",
        "_decompressor",
        "_from_client",
        "_handler",
        "_is_busy",
        "_is_error",
        "_is_left",
        "_is_paused",
        "_last_call",
        "_limits",
        "_most",
        "_now",
        "_plain",
        "_sent",
        "_size",
        "_turns",
        "_until",
        "attempt",
    )

    def __init__(
        self,
        handler: ResponseHandler,
        limits: AnswerLimits,
        turns: DecompressionTurns,
        sent: Headers = (),
        from_client: Headers | None = None,
        all_held: HeldAnswers | None = None,
    ) -> None:
        """`sent` are the headers of the request, of which the answer's id may hold no secret.

        Of them `from_client` are the caller's; None: all. An error repeats no other credential.
        """
        self._handler = handler
        self._from_client = from_client
        self._limits = limits
        self._turns = turns
        self._all_held = HeldAnswers() if all_held is None else all_held
        # What of this answer is in that count.
        self._counted = 0
        self._sent = SentCredentials(sent)
        self._now = asyncio.get_running_loop().time
        self.attempt: UpstreamAttempt | None = None
        self._is_error = False
        self._most: float = limits.size
        self._until = inf
        # Bytes that came, and how many they are decompressed.
        self._size = 0
        self._plain = 0
        self._decompressor: Decompressor | None = None
        self._is_busy = False
        self._is_paused = False
        # It is paused with a rest that has no turn.
        self._is_left = False
        # How the attempt ended, to be reported when all that came before is decompressed.
        self._last_call: Callable[[], None] | None = None

    # --- called by the upstream ---

    def began(self, status: int, headers: Headers) -> None:
        """The head of the answer."""
        self._is_error = not 200 <= status < 300
        if self._is_error:
            self._most = LARGEST_ERROR
            client = self._from_client
            own = [] if client is None else self._sent.words_not_in(client)
            if own:
                self._handler = _BlankedError(self._handler, Blanker(own))
        self._until = self._now() + self._limits.seconds
        length = 0
        ids = 0
        no_ids: set[bytes] = set()
        for name, value in headers:
            # By their lengths first: this is done for every answer.
            size = len(name)
            if size == 16 and name.lower() == b"content-encoding":
                found = decompressors_for(value.decode("latin-1"))
                self._decompressor = found[0] if found else None
            elif size == 14 and value.isdigit() and name.lower() == b"content-length":
                length = int(value) if len(value) <= 18 else 1 << 60
            elif size in _SIZES_OF_ID_HEADERS and name.lower() in ID_HEADERS:
                ids += 1
                if ids > _MOST_IDS or not is_request_id(value, self._sent):
                    no_ids.add(name.lower())
        if length > self._most and not self._is_error:
            self._leave().broke(AnswerTooLargeError(self._limits.size))
            return
        if self._decompressor is not None:
            headers = [(n, v) for n, v in headers if n.lower() not in _OF_THE_PACKING]
        if no_ids:
            headers = [(n, v) for n, v in headers if n.lower() not in no_ids]
        try:
            self._handler.began(status, headers)
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._handler_failed(error)

    def received(self, data: bytes) -> None:
        """Bytes of the answer."""
        size = self._size = self._size + len(data)
        if size > self._most or self._now() > self._until:
            self._beyond_limits(data if self._decompressor is None else b"", size)
        elif self._decompressor is None:
            self._pass_on(data)
        else:
            self._decompressor.feed(data)
            if not self._is_busy:
                self._is_busy = True
                if not self._decompress(FIRST_BYTES):
                    self._turns.wait(self._decompress)
            self._count()

    def ended(self) -> None:
        """The HTTP message is complete."""
        if self._is_busy:
            self._last_call = self._end
        else:
            self._end()

    def broke(self, error: OSError) -> None:
        """It will not become complete."""
        if self._is_busy:
            self._last_call = partial(self._break, error)
        else:
            self._break(error)

    # --- called by the handler ---

    def hang_up(self) -> None:
        """Drop it at once."""
        self._leave()

    def pause(self) -> None:
        """Stop reading, and decompressing what was read."""
        self._is_paused = True
        if self.attempt is not None:
            self.attempt.pause()

    def resume(self) -> None:
        """Go on reading."""
        if self.attempt is not None:
            self.attempt.resume()
        self._is_paused = False
        if self._is_left:
            self._is_left = False
            self._turns.wait(self._decompress)

    # --- counting what is held ---

    @property
    def held(self) -> int:
        """How many bytes of it are kept, also such as are not decompressed yet."""
        decompressor = self._decompressor
        return self._handler.held + (0 if decompressor is None else decompressor.held)

    def _count(self) -> None:
        held = self.held
        if not -STEP < held - self._counted < STEP:
            self._counted = held if held >= STEP else 0
            self._all_held.count(self, self._counted)

    def break_off(self, most: int) -> None:
        """All answers together hold more than this, and this one most of them."""
        self._leave().broke(AnswersTooLargeError(most))

    # --- decompressing ---

    def _decompress(self, most: int = SLICE_BYTES) -> bool:
        """Pass on one slice; whether it needs no further turn now."""
        decompressor = self._decompressor
        if decompressor is not None:
            try:
                plain = decompressor.next_slice(most)
            except DecompressionError as error:
                self._damaged(error)
            else:
                self._plain += len(plain)
                if self._plain > self._most:
                    self._beyond_limits(plain, self._plain)
                elif plain:
                    self._pass_on(plain)
        # The handler may have hung up.
        decompressor = self._decompressor
        if decompressor is not None and decompressor.may_have_more:
            # The reader may have become slow: `resume` takes the rest up again.
            self._is_left = self._is_paused
            return self._is_left
        self._is_busy = False
        last_call, self._last_call = self._last_call, None
        if last_call is not None:
            last_call()
        return True

    def _pass_on(self, data: bytes) -> None:
        try:
            self._handler.received(data)
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._handler_failed(error)
        self._count()

    def _end(self) -> None:
        try:
            if self._decompressor is not None:
                self._decompressor.end()
        except DecompressionError as error:
            self._damaged(error)
            return
        try:
            self._handler.ended()
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._handler_failed(error)
        self._let_go()

    def _break(self, error: OSError) -> None:
        self._let_go().broke(error)

    def _handler_failed(self, error: Exception) -> None:
        _log.error("a bug in Jackline while reading an answer", exc_info=error)
        self._leave().broke(GarbledError(f"Jackline cannot read it: {type(error).__name__}"))

    def _damaged(self, error: DecompressionError) -> None:
        if self._is_error:
            self._leave().ended()  # its status says enough, whatever its text was
        else:
            self._leave().broke(error)

    # --- the end ---

    def _beyond_limits(self, data: bytes, size: int) -> None:
        limits = self._limits
        if self._is_error:
            handler, begin = self._leave(), data[: max(0, len(data) - (size - LARGEST_ERROR))]
            if begin:
                handler.received(begin)
            handler.ended()
        elif size > self._most:
            self._leave().broke(AnswerTooLargeError(limits.size))
        else:
            self._leave().broke(AnswerTooLongError(limits.seconds))

    def _leave(self) -> ResponseHandler:
        """Pass on no more, and hang up; returns the handler, for its last call."""
        attempt, handler = self.attempt, self._let_go()
        if attempt is not None:
            attempt.hang_up()
        return handler

    def _let_go(self) -> ResponseHandler:
        """It is over: hold nothing more; returns the handler."""
        handler, self._handler = self._handler, SILENT_HANDLER
        self._decompressor = self._last_call = self.attempt = None
        self._most = inf
        if self._counted:
            self._counted = 0
            self._all_held.count(self, 0)
        return handler


@dataclass(slots=True)
class FetchedDocument:
    """What came: the head and the body as far as it fits, or the error that it broke with.

    `cut`: there was more of it. Names of headers are in lower case.
    """

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: bool = False
    error: OSError | None = None

    @property
    def document(self) -> bytes | None:
        """The whole body of a good answer; None for everything else."""
        whole = self.status == 200 and not self.cut and self.error is None
        return self.body if whole else None


async def fetch(
    upstream: Upstream,
    message: UpstreamRequest,
    lane: LaneId,
    *,
    most_bytes: int,
    seconds: float,
    heads_only: Container[int] = (),
) -> FetchedDocument:
    """What the origin of this lane answers to a message within so many seconds.

    Of an answer with a status of `heads_only` the body is not read.
    """
    collector = _Collector(most_bytes, heads_only)
    attempt = upstream.start(message, lane, collector)
    try:
        async with asyncio.timeout(seconds):
            await collector.over.wait()
    except TimeoutError:
        collector.fetched.error = TimeoutError(f"no whole answer within {seconds:g} s")
    finally:
        attempt.hang_up()
    collector.fetched.body = bytes(collector.body)
    return collector.fetched


class _Collector:
    """Collects an answer up to a size; `over` is set at its end."""

    def __init__(self, most_bytes: int, heads_only: Container[int]) -> None:
        self._most = most_bytes
        self._heads_only = heads_only
        self.fetched = FetchedDocument()
        self.body = bytearray()
        self.over = asyncio.Event()

    @property
    def held(self) -> int:
        return len(self.body)

    def began(self, status: int, headers: Headers) -> None:
        self.fetched.status = status
        self.fetched.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers
        }
        if status in self._heads_only:
            self._most, self.fetched.cut = 0, True
            self.over.set()

    def received(self, data: bytes) -> None:
        room = self._most - len(self.body)
        self.body += data[:room]
        if len(data) > room:
            self.fetched.cut = True
            self.over.set()

    def ended(self) -> None:
        self.over.set()

    def broke(self, error: OSError) -> None:
        self.fetched.error = error
        self.over.set()
