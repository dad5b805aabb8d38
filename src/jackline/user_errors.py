"""The brief of an exception that code of users raised, and its words, which may quote an answer.

Rules: (1) the brief names type, file and line and may be shown anywhere; the words are shown only
where the run itself is asked for (`jackline show ID`, `jackline logs ID`, its own page), or to a
person at the terminal where the code was started; (2) an error of ours that our code raised is its
own brief; one that a user's code raised is foreign, whatever its type; (3) nothing of an exception
is called unguarded: even to print it may fail.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import NamedTuple

from jackline.errors import JacklineError
from jackline.outside_names import printable

_OURS = "jackline."
_OUR_FOLDER = f"{Path(__file__).parent}{os.sep}"
_LONGEST_NAME = 100
_LONGEST_WORDS = 300


class ErrorTexts(NamedTuple):
    """What is said of an error: to everybody, and only where its run is asked for."""

    brief: str
    private: str = ""

    def __bool__(self) -> bool:
        return bool(self.brief)


def error_texts(error: BaseException) -> ErrorTexts:
    """What may be said of what code of users raised."""
    cause = error.__cause__
    if cause is not None and not isinstance(cause, Exception):
        error = cause  # it wanted to end the program: the exception around it is ours
    if isinstance(error, JacklineError) and is_ours(error):
        return ErrorTexts(" ".join(filter(None, (error.message, error.hint))), error.private)
    return ErrorTexts(_brief(error), _words(error))


def is_ours(error: BaseException) -> bool:
    """Whether our own code raised it: then it is written for everybody."""
    if not type(error).__module__.startswith(_OURS):
        return False
    place = _place(error)
    return place is None or place[0].startswith(_OUR_FOLDER)


def _brief(error: BaseException) -> str:
    kind, place = type(error).__name__[:_LONGEST_NAME], _place(error)
    if place is not None:
        kind += f" ({PurePath(place[0]).name[:_LONGEST_NAME]}, line {place[1]})"
    return printable(kind)


def _place(error: BaseException) -> tuple[str, int] | None:
    """The file and line that raised it; None for one that was never raised."""
    place = error.__traceback__
    if place is None:
        return None
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_frame.f_code.co_filename, place.tb_lineno


def _words(error: BaseException) -> str:
    try:
        return str(error)[:_LONGEST_WORDS]
    except Exception:  # noqa: BLE001 -- a broken __str__ must not hide the failure
        return ""
