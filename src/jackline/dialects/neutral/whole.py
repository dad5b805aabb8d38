"""Read a whole foreign answer, whatever its dialect, and tell what is none as an error.

Laws: (1) nothing in an answer raises: what is no answer becomes an error document; (2) an answer
that says an error is told as that error; (3) a document of more values than an answer has is none,
and is not decoded.
Not here: what the fields of one dialect mean (openai_chat/answer.py, openai_responses/answer.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from jackline.dialects.json_bounds import MOST_VALUES, has_too_many_values
from jackline.dialects.neutral.account import CannotSayError, Fields, Notes, Translated, document
from jackline.dialects.neutral.foreign_error import to_anthropic_error
from jackline.dialects.neutral.options import AnswerAs

Reading: TypeAlias = Callable[[Fields, bytes, AnswerAs], Translated]


def read_whole(body: bytes, face: AnswerAs, read: Reading, sort: str) -> Translated:
    """The message; with `is_error` when the body says an error, or is no answer of this sort."""
    notes = Notes()
    if has_too_many_values(body):
        return _no_answer(sort, f"more than {MOST_VALUES:,} values", notes)
    try:
        top = document(body, notes)
        if "error" in top.names():
            return Translated(to_anthropic_error(500, body), is_error=True)
        return read(top, body, face)
    except CannotSayError as error:
        return _no_answer(sort, error.at, notes)


def _no_answer(sort: str, why: str, notes: Notes) -> Translated:
    told = f'{{"error": {{"message": "The answer is no {sort} ({why})."}}}}'
    return Translated(to_anthropic_error(502, told.encode()), notes.told(), is_error=True)
