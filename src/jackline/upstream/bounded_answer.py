"""Listen to an attempt on behalf of whoever reads its answer: unpack it, and bound it.

Rules: (1) an answer that is larger, once it is unpacked, or takes longer than its limits allow is
broken off with an error that names the setting, and the connection is dropped; (2) of an error only
a beginning is told: its status says enough; (3) of a packet of a packed answer a little is unpacked
at once and the rest in slices, for which all answers take turns, so that other calls go on
meanwhile; (4) when whoever reads an answer fails, its call hears of a broken answer, instead of
nothing; (5) a `request-id`, under whatever name, that is no id is left out. Answers that are only
relayed are not bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf

from jackline.upstream.attempt import NOBODY
from jackline.upstream.breaks import (
    AnswerTooLargeError,
    AnswerTooLongError,
    BadPackingError,
    GarbledError,
)
from jackline.upstream.port import Attempt, Ear, Headers
from jackline.upstream.request_ids import ID_HEADERS, is_request_id
from jackline.upstream.unpacking import (
    FIRST_BYTES,
    SLICE_BYTES,
    Unpacking,
    UnpackingTurns,
    unpacking_for,
)

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
        self, ear: Ear, limits: AnswerLimits, turns: UnpackingTurns, sent: Headers = ()
    ) -> None:
        """`sent` are the headers of the request, of which the answer's id may hold no secret."""
        self._ear = ear
        self._limits = limits
        self._turns = turns
        self._sent = sent
        self._now = asyncio.get_running_loop().time
        self.attempt: Attempt | None = None
        self._is_error = False
        self._most: float = limits.size
        self._until = inf
        # Bytes that came, and what became of them when they were unpacked.
        self._size = 0
        self._plain = 0
        self._unpacking: Unpacking | None = None
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
        no_ids: list[bytes] = []
        for name, value in headers:
            # By their lengths first: this is done for every answer.
            size = len(name)
            if size == 16 and name.lower() == b"content-encoding":
                self._unpacking = unpacking_for(value.decode("latin-1"))
            elif size == 14 and value.isdigit() and name.lower() == b"content-length":
                length = int(value) if len(value) <= 18 else 1 << 60
            elif (
                size in _SIZES_OF_ID_HEADERS
                and name.lower() in ID_HEADERS
                and not is_request_id(value, self._sent)
            ):
                no_ids.append(name.lower())
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
        except BadPackingError as error:
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
        except BadPackingError as error:
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

    def _damaged(self, error: BadPackingError) -> None:
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

    def _leave(self) -> Ear:
        """Hear no more; the ear, for its last word."""
        ear, self._ear = self._ear, NOBODY
        self._unpacking = self._last_word = None
        self._most = inf
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.hang_up()
        return ear
