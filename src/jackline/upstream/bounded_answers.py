"""Read answers within limits: decompress them, bound their size and time, fetch small documents.

Rules: (1) no call decompresses more than a slice, however small the input was, and one slice per
turn of the event loop, so that other calls go on meanwhile; (2) data that cannot be decompressed,
or ends too early, raises DecompressionError; how it was cut into packets changes nothing; (3) an
answer that is larger, once decompressed, or takes longer than its limits allow is cut with an error
that names the setting; (4) of an error only a beginning is passed on: its status says enough; (5)
when the reader of an answer raises, its call gets a broken answer, instead of nothing; (6) `fetch`
never raises: errors are in its result, redirects are answers like any other, and nothing beyond the
size limit is stored.
Not here: answers that are only relayed, which have no limit.
"""

from __future__ import annotations

import asyncio
import logging
import re
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import inf

from jackline.lane_id import LaneId
from jackline.upstream.connection import SILENT_HANDLER
from jackline.upstream.interface import (
    AnswerTooLargeError,
    AnswerTooLongError,
    DecompressionError,
    GarbledError,
    Headers,
    ResponseHandler,
    Upstream,
    UpstreamAttempt,
    UpstreamRequest,
)

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
# So much of a credential is too much.
_LONG_PART = 16
# Logins and cookies are a few kilobytes. Beyond that nothing is compared, and no id is kept.
_MOST_CREDENTIAL_BYTES = 4 * 1024
# Stands for parts that are not known: every id may hold one.
_ANYTHING = 0
# An answer names its id once, and its proxies theirs; those behind are not kept.
_MOST_IDS = 4


class SentCredentials:
    """The credentials that a request was sent with, for comparison with ids in its answer.

    Their parts are found once, when the first id comes: the work is linear in what was sent, and
    both what was sent and the ids are bounded.
    """

    __slots__ = ("_parts", "_sent")

    def __init__(self, sent: Headers) -> None:
        self._sent = sent
        # By their size: short words whole, and of longer ones all that is `_LONG_PART` long.
        self._parts: dict[int, set[bytes]] | None = None

    def are_repeated_in(self, value: bytes) -> bool:
        """Whether this holds a large part of one of them, or may do so."""
        if self._parts is None:
            self._parts = self._find_parts()
        for size, parts in self._parts.items():
            if not parts.isdisjoint([value[at : at + size] for at in range(len(value) - size + 1)]):
                return True
        return _ANYTHING in self._parts

    def _find_parts(self) -> dict[int, set[bytes]]:
        values = [value for name, value in self._sent if _may_be_credential(name)]
        if sum(map(len, values)) > _MOST_CREDENTIAL_BYTES:
            return {_ANYTHING: set()}
        found: dict[int, set[bytes]] = {}
        for value in values:
            for word in _WORD.findall(value):
                size = min(_LONG_PART, len(word))
                parts = found.setdefault(size, set())
                parts.update([word[at : at + size] for at in range(len(word) - size + 1)])
        return found


def is_request_id(value: bytes, sent: SentCredentials) -> bool:
    """Whether this can be kept as the id of the answer to a request with these credentials."""
    return _ID.fullmatch(value) is not None and not sent.are_repeated_in(value)


@lru_cache(maxsize=1024)
def _may_be_credential(name: bytes) -> bool:
    plain = name.lower()
    return plain not in _NO_CREDENTIALS and _SAYS_CREDENTIAL.search(plain) is not None


SLICE_BYTES = 256 * 1024
FIRST_BYTES = 16 * 1024
"""Unpacked of each packet at once, without waiting for a turn: more than words of a stream take."""
MOST_RATIO = 100
"""Of what a client sends. Text packs to a fifth, logs to a fiftieth, a bomb to a thousandth."""
# A body is one member, rarely a few; each further one costs a copy of all that is behind it.
_MOST_MEMBERS = 1000
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": zlib.MAX_WBITS}


class Decompressor:
    """One compressed body."""

    __slots__ = ("_behind", "_is_full", "_member", "_members", "_packed", "_window")

    def __init__(self, window: int) -> None:
        self._window = window
        self._member = zlib.decompressobj(window)
        self._members = 1
        self._packed = b""
        self._behind: deque[bytes] = deque()
        # The last slice was cut off by its size: there may be more without any further input.
        self._is_full = False

    def feed(self, data: bytes) -> None:
        """Take packed bytes; what they hold is then given by `next_slice`."""
        self._behind.append(data)

    @property
    def may_have_more(self) -> bool:
        """Whether something that was fed may not be unpacked yet."""
        return bool(self._packed or self._behind or self._is_full)

    def next_slice(self, most: int = SLICE_BYTES) -> bytes:
        """Some of the plain bytes; nothing when all that was fed is unpacked."""
        try:
            while self._packed or self._behind or self._is_full:
                if not self._packed and not self._is_full:
                    self._packed = self._behind.popleft()
                if self._member.eof:
                    self._begin_member()
                plain = self._member.decompress(self._packed, most)
                has_ended = self._member.eof
                self._packed = (
                    self._member.unused_data if has_ended else self._member.unconsumed_tail
                )
                self._is_full = len(plain) >= most and not has_ended
                if plain:
                    return plain
        except zlib.error as error:
            raise DecompressionError(str(error)) from error
        return b""

    def end(self) -> None:
        """No more comes."""
        if not self._member.eof:
            raise DecompressionError("it ends too early")

    def _begin_member(self) -> None:
        self._members += 1
        if self._members > _MOST_MEMBERS:
            raise DecompressionError(f"it has more than {_MOST_MEMBERS} parts")
        self._member = zlib.decompressobj(self._window)


class UnpackingTurns:
    """The bodies that are being unpacked: one slice of one of them in each turn of the loop."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], bool]] = deque()

    def wait(self, go_on: Callable[[], bool]) -> None:
        """Have this called in turn until it says that its body is done with."""
        self._waiting.append(go_on)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        go_on = self._waiting[0]
        is_done = True
        try:
            is_done = go_on()
        finally:
            # The next one's turn comes even if whoever was told has failed.
            self._waiting.popleft()
            if not is_done:
                self._waiting.append(go_on)
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._turn)


def decompressor_for(content_encoding: str | None) -> Decompressor | None:
    """What unpacks such a body; None when it comes plain, or in a way that is not read here."""
    if content_encoding is None:
        return None
    window = _WINDOWS.get(content_encoding.strip().lower())
    return None if window is None else Decompressor(window)


_log = logging.getLogger(__name__)
# A vendor's error is a few kilobytes; a page from a proxy may be more, and nobody needs all of it.
LARGEST_ERROR = 256 * 1024
_SIZES_OF_ID_HEADERS = frozenset(map(len, ID_HEADERS))
_OF_THE_PACKING = (b"content-encoding", b"content-length")


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """How many bytes an answer may have, unpacked, and how many seconds it may take."""

    size: int
    seconds: float


class BoundedAnswer:
    """An `Ear` between an attempt and whoever reads its answer."""

    __slots__ = (
        "_ear",
        "_is_error",
        "_is_unpacking",
        "_last_word",
        "_limits",
        "_most",
        "_now",
        "_plain",
        "_sent",
        "_size",
        "_turns",
        "_unpacking",
        "_until",
        "attempt",
    )

    def __init__(
        self, ear: ResponseHandler, limits: AnswerLimits, turns: UnpackingTurns, sent: Headers = ()
    ) -> None:
        """`sent` are the headers of the request, of which the answer's id may hold no secret."""
        self._ear = ear
        self._limits = limits
        self._turns = turns
        self._sent = SentCredentials(sent)
        self._now = asyncio.get_running_loop().time
        self.attempt: UpstreamAttempt | None = None
        self._is_error = False
        self._most: float = limits.size
        self._until = inf
        # Bytes that came, and what became of them when they were unpacked.
        self._size = 0
        self._plain = 0
        self._unpacking: Decompressor | None = None
        self._is_unpacking = False
        # How the attempt ended, to be told when all that came before is unpacked.
        self._last_word: Callable[[], None] | None = None

    # --- what the upstream tells --------------------------------------------------------------

    def began(self, status: int, headers: Headers) -> None:
        """The head of the answer."""
        self._is_error = not 200 <= status < 300
        if self._is_error:
            self._most = LARGEST_ERROR
        self._until = self._now() + self._limits.seconds
        length = 0
        ids, no_ids = 0, set[bytes]()
        for name, value in headers:
            # By their lengths first: this is done for every answer.
            size = len(name)
            if size == 16 and name.lower() == b"content-encoding":
                self._unpacking = decompressor_for(value.decode("latin-1"))
            elif size == 14 and value.isdigit() and name.lower() == b"content-length":
                length = int(value) if len(value) <= 18 else 1 << 60
            elif size in _SIZES_OF_ID_HEADERS and name.lower() in ID_HEADERS:
                ids += 1
                if ids > _MOST_IDS or not is_request_id(value, self._sent):
                    no_ids.add(name.lower())
        if length > self._most and not self._is_error:
            self._break_off(AnswerTooLargeError(self._limits.size))
            return
        if self._unpacking is not None:
            headers = [(n, v) for n, v in headers if n.lower() not in _OF_THE_PACKING]
        if no_ids:
            headers = [(n, v) for n, v in headers if n.lower() not in no_ids]
        try:
            self._ear.began(status, headers)
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._ear_failed(error)

    def heard(self, data: bytes) -> None:
        """Bytes of the answer."""
        size = self._size = self._size + len(data)
        if size > self._most or self._now() > self._until:
            self._beyond_limits(data if self._unpacking is None else b"", size)
        elif self._unpacking is None:
            self._tell(data)
        else:
            self._unpacking.feed(data)
            if not self._is_unpacking:
                self._is_unpacking = True
                if not self._unpack(FIRST_BYTES):
                    self._turns.wait(self._unpack)

    def ended(self) -> None:
        """The HTTP message is complete."""
        if self._unpacking is None:
            self._end()
        else:
            self._end_with(self._end_unpacked)

    def broke(self, error: OSError) -> None:
        """It will not become complete."""
        if self._unpacking is None:
            self._ear.broke(error)
        else:
            self._end_with(partial(self._ear.broke, error))

    # --- unpacking ----------------------------------------------------------------------------

    def _end_with(self, last_word: Callable[[], None]) -> None:
        if self._is_unpacking:
            self._last_word = last_word
        else:
            last_word()

    def _unpack(self, most: int = SLICE_BYTES) -> bool:
        """Tell one slice; whether all that has come is told."""
        self._unpack_slice(most)
        # Whoever was told may have hung up.
        unpacking = self._unpacking
        if unpacking is not None and unpacking.may_have_more:
            return False
        self._is_unpacking = False
        last_word, self._last_word = self._last_word, None
        if last_word is not None:
            last_word()
        return True

    def _unpack_slice(self, most: int) -> None:
        if self._unpacking is None:
            return
        try:
            plain = self._unpacking.next_slice(most)
        except DecompressionError as error:
            self._damaged(error)
            return
        self._plain += len(plain)
        if self._plain > self._most:
            self._beyond_limits(plain, self._plain)
        elif plain:
            self._tell(plain)

    def _end_unpacked(self) -> None:
        try:
            if self._unpacking is not None:
                self._unpacking.end()
        except DecompressionError as error:
            self._damaged(error)
            return
        self._end()

    def _tell(self, data: bytes) -> None:
        try:
            self._ear.heard(data)
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._ear_failed(error)

    def _end(self) -> None:
        try:
            self._ear.ended()
        except Exception as error:  # noqa: BLE001 -- the border of one call: siblings go on
            self._ear_failed(error)

    def _ear_failed(self, error: Exception) -> None:
        """Whoever reads the answer has failed: for its call that is a broken answer."""
        _log.error("a bug in Jackline while reading an answer", exc_info=error)
        self._break_off(GarbledError(f"Jackline cannot read it: {type(error).__name__}"))

    def _damaged(self, error: DecompressionError) -> None:
        if self._is_error:
            self._leave().ended()  # its status says enough, whatever its words were
        else:
            self._break_off(error)

    # --- the end ------------------------------------------------------------------------------

    def _beyond_limits(self, data: bytes, size: int) -> None:
        limits = self._limits
        if self._is_error:
            ear, begin = self._leave(), data[: max(0, len(data) - (size - LARGEST_ERROR))]
            if begin:
                ear.heard(begin)
            ear.ended()
        elif size > self._most:
            self._break_off(AnswerTooLargeError(limits.size))
        else:
            self._break_off(AnswerTooLongError(limits.seconds))

    def _break_off(self, error: OSError) -> None:
        self._leave().broke(error)

    def _leave(self) -> ResponseHandler:
        """Hear no more; the ear, for its last word."""
        ear, self._ear = self._ear, SILENT_HANDLER
        self._unpacking = self._last_word = None
        self._most = inf
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.hang_up()
        return ear


@dataclass(slots=True)
class FetchedDocument:
    """What came: the head and the body as far as it fits, or the error that it broke with.

    `cut` tells that there was more of it. Names of headers are in lower case.
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
    upstream: Upstream, message: UpstreamRequest, lane: LaneId, *, most_bytes: int, seconds: float
) -> FetchedDocument:
    """What the origin of this lane answers to a message within so many seconds."""
    ear = _Gathering(most_bytes)
    attempt = upstream.start(message, lane, ear)
    try:
        async with asyncio.timeout(seconds):
            await ear.over.wait()
    except TimeoutError:
        ear.fetched.error = TimeoutError(f"no whole answer within {seconds:g} s")
    finally:
        attempt.hang_up()
    ear.fetched.body = bytes(ear.body)
    return ear.fetched


class _Gathering:
    """Gathers an answer up to a size; `over` is set by its last word."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self.fetched = FetchedDocument()
        self.body = bytearray()
        self.over = asyncio.Event()

    def began(self, status: int, headers: Headers) -> None:
        """Keep the head."""
        self.fetched.status = status
        self.fetched.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers
        }

    def heard(self, data: bytes) -> None:
        """Keep what there is room for."""
        room = self._most - len(self.body)
        self.body += data[:room]
        if len(data) > room:
            self.fetched.cut = True
            self.over.set()

    def ended(self) -> None:
        """All is there."""
        self.over.set()

    def broke(self, error: OSError) -> None:
        """It will not come."""
        self.fetched.error = error
        self.over.set()
