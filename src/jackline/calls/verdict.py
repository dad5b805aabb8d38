"""Decide what an HTTP answer that is no stream means: an answer, or which failure.

Rules: (1) a document with status 2xx that is an answer in its dialect, or any other result, is
delivered, whatever texts it quotes; only a top-level error, or a document that holds no result, is
judged by its words; (2) an error with another status than those of accounts and rates (402, 429),
and one inside a stream, says something about the account only in words and codes that are not the
caller's own: vendors repeat names, roles and values of a request in their errors, and a caller must
not park the lanes of others; what the vendor's own headers say counts; (3) work is bounded: what
cannot be searched in full counts as the caller's words.
Not here: classification (failures/), what a failure does to a lane (lanes/reactions.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from jackline.calls.request import Dialect
from jackline.dialects.answer_facts import is_openai_answer
from jackline.failures import Failure, Observation
from jackline.failures.wording import REDACTED, fold
from jackline.lanes.reactions import Reaction, reaction_to
from jackline.upstream.interface import UpstreamRequest

# What these say about the account or the rate is believed; in any other answer it may be repeated.
_ABOUT_THE_ACCOUNT = frozenset((401, 402, 407, 408, 429))
# Keys of documents that are results: answers of any dialect, lists, counts, files.
_RESULTS = frozenset(
    ("candidates", "choices", "content", "data", "input_tokens", "output", "results")
)
_SAYS_STATUS = re.compile(r"status \d+")
_QUOTED = re.compile(r'\w+ "?(.*?)"?', re.DOTALL)
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
    """What an answer with an error means, less what only repeats the request.

    An error of a server counts for its lane whatever it says; only a quota needs its words.
    """
    failure = judge(seen)
    status, reaction = seen.status, reaction_to(failure)
    if reaction is Reaction.CALL or status in _ABOUT_THE_ACCOUNT:
        return failure
    if (status is None or status >= 500) and reaction is not Reaction.PARK:
        return failure
    if not _holds(request, [e for e in failure.evidence if not _SAYS_STATUS.fullmatch(e)], seen):
        return failure
    if status is None:
        # An error in a stream: the answer broke off.
        return judge(Observation.of_exception(EOFError("the stream ended with an error")))
    return judge(Observation.of_response(status, {}, b"{}"))


def _holds(request: UpstreamRequest, evidence: Sequence[str], seen: Observation) -> bool:
    """Whether the request holds any of the evidence, as text or as a code."""
    headers = {str(name).lower(): str(value).lower() for name, value in seen.headers.items()}
    own = headers.get("x-amzn-errortype", "")
    found = []
    for each in evidence:
        match = _QUOTED.fullmatch(each)
        phrase = (each if match is None else match[1]).lower()
        if each.partition(":")[0].lower() in headers or (own and phrase in own):
            continue  # the vendor's own header, which no caller writes
        if REDACTED in phrase:
            return True  # it cannot be searched for
        found.append(phrase)
    if not found:
        return False
    names = [name.lower() for name, _ in request.headers]
    if len(request.body) > _MOST_SEARCHED or b"content-encoding" in names:
        return True
    try:
        document: object = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        document = request.body.decode(errors="replace")
    texts = (value.decode("latin-1") for _, value in request.headers)
    # One text: folding many small ones would take long.
    text = "\n".join((*texts, *_texts(document)))
    return any(
        phrase in piece
        for at in range(0, max(len(text), 1), _PIECE)
        for piece in (fold(text[at : at + _PIECE + _OVERLAP]).lower(),)
        for phrase in found
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
