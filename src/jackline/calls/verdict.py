"""Decide what an HTTP answer that is no stream means: an answer, or which failure.

Rules: (1) a document with status 2xx that is an answer in its dialect, or any other result, is
delivered, whatever texts it quotes; only a top-level error, or a document that holds no result, is
judged by its words; (2) a status that is about the call itself (400, 404, 422 and the like) says
something about the account only in words that are not the caller's own: vendors repeat names,
roles and values of a request in their errors, and a caller must not park the lanes of others;
(3) work is bounded: what cannot be searched in full counts as the caller's words.
Not here: classification (failures/), what a failure does to a lane (lanes/reactions.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from jackline.calls.request import Dialect
from jackline.dialects.answer_facts import is_openai_answer
from jackline.failures import Failure, Observation
from jackline.failures.wording import fold
from jackline.lanes.reactions import Reaction, reaction_to
from jackline.upstream.interface import UpstreamRequest

# Every other one below 500 is about the account, the login or the rate.
_ABOUT_THE_CALL = frozenset((400, 404, 405, 406, 409, 410, 411, 412, 413, 414, 415, 416, 417, 422))
# Keys of documents that are results: answers of any dialect, lists, counts, files.
_RESULTS = frozenset(
    ("candidates", "choices", "content", "data", "input_tokens", "output", "results")
)
_QUOTED = re.compile(r'text "(.*)"', re.DOTALL)
_MOST_SEARCHED = 1 << 20
_PIECE, _OVERLAP = 32_000, 200
_document = msgspec.json.Decoder(dict[str, msgspec.Raw])


def failed_success(
    status: int, headers: Mapping[str, str], body: bytes, dialect: Dialect
) -> Observation | None:
    """What to judge of a document with status 2xx; None if it is a result."""
    if dialect != "anthropic" and is_openai_answer(body, responses=dialect == "openai-responses"):
        return None
    if headers.get("content-type", "").startswith(("application/x-jsonl", "application/octet")):
        return None
    try:
        document = _document.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Observation.of_response(status, headers, body)
    error = document.get("error")
    if error is not None and bytes(error) != b"null":
        return Observation.of_response(status, headers, msgspec.json.encode({"error": error}))
    return None if _RESULTS & document.keys() else Observation.of_response(status, headers, body)


def judge_rejection(
    judge: Callable[[Observation], Failure], seen: Observation, request: UpstreamRequest
) -> Failure:
    """What an answer with an error status means, less what only repeats the request."""
    failure = judge(seen)
    if seen.status not in _ABOUT_THE_CALL or reaction_to(failure) is Reaction.CALL:
        return failure
    found = next((match for e in failure.evidence if (match := _QUOTED.fullmatch(e))), None)
    if found is None or not _holds(request, found[1].lower()):
        return failure
    return judge(Observation.of_response(seen.status, {}, b"{}"))


def _holds(request: UpstreamRequest, phrase: str) -> bool:
    """Whether the request holds a folded phrase in any of its texts."""
    body = request.body
    if len(body) > _MOST_SEARCHED:
        return True
    try:
        document: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        document = body.decode(errors="replace")
    texts = [value.decode("latin-1") for _, value in request.headers]
    return any(
        phrase in fold(text[at : at + _PIECE + _OVERLAP]).lower()
        for text in (*texts, *_texts(document))
        for at in range(0, max(len(text), 1), _PIECE)
    )


def _texts(document: object) -> Iterator[str]:
    left = [document]
    while left:
        match left.pop():
            case str(text):
                yield text
            case dict(pairs):
                left += [*pairs, *pairs.values()]
            case list(items):
                left += items
