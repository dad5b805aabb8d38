"""Decide what an HTTP answer that is no stream means: an answer, or which failure.

Rules: (1) a document with status 2xx that is an answer in its dialect, or any other result, is
delivered, whatever texts it quotes; only a top-level error, or a document that holds no result, is
judged by its words; (2) an error with another status than those of accounts and rates (402, 429),
and one inside a stream, says something about the account only in words and codes that are not the
caller's own: vendors repeat names, roles and values of a request in their errors, of its target and
headers, too, and a caller must not park the lanes of others; what the vendor's own headers say
counts; (3) work is bounded: what cannot be searched in full counts as the caller's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import unquote_to_bytes

import msgspec

from jackline.calls.request import Dialect
from jackline.dialects.answer_facts import is_openai_answer
from jackline.dialects.json_bounds import UNREADABLE
from jackline.failures import Failure, Observation, Where
from jackline.failures.wording import REDACTED, fold
from jackline.lanes.reactions import Reaction, reaction_to
from jackline.upstream.interface import UpstreamRequest

# What these say about the account or the rate is believed; in any other answer it may be repeated.
_ABOUT_THE_ACCOUNT = frozenset((402, 408, 429))
# In the fields of an error that no caller's words get into.
_OWN_CODES = frozenset(
    (
        "billing_error",
        "insufficient_quota",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "usage_limit_reached",
    )
)
# Keys of documents that are results: answers of any dialect, lists, counts, files.
_RESULTS = frozenset(
    ("candidates", "choices", "content", "data", "input_tokens", "output", "results")
)
_SAYS_STATUS = re.compile(r"status \d+")
_MATCHED = re.compile(r'text "(.*)"|(?:code|quotaId) (\S+)', re.DOTALL)
_MOST_SEARCHED = 1 << 20
_PIECE, _OVERLAP = 32_000, 200
_LONGEST_TARGET = 16_384
# Vendors and the proxies before them decode a target once or twice.
_MOST_DECODED = 4
# SDKs send these with each call: their names must not hide a vendor's own time-out.
_NAMES_OF_SDKS = frozenset((b"x-stainless-timeout", b"x-stainless-read-timeout"))
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
    except UNREADABLE:
        return Observation.of_response(status, headers, body)
    error = document.get("error")
    if error is not None and bytes(error) != b"null":
        return Observation.of_response(status, headers, msgspec.json.encode({"error": error}))
    return None if _RESULTS & document.keys() else Observation.of_response(status, headers, body)


def judge_rejection(
    judge: Callable[[Observation], Failure], seen: Observation, request: UpstreamRequest
) -> Failure:
    """What an error means, less what only repeats the request.

    Errors of servers and in streams count for their lane whatever they say; only a quota needs its
    words.
    """
    failure = judge(seen)
    reaction = reaction_to(failure)
    streams = seen.where is Where.SSE
    status = 0 if streams else seen.status or 0
    if reaction is Reaction.CALL or status in _ABOUT_THE_ACCOUNT:
        return failure
    if reaction is not Reaction.PARK and not 400 <= status < 500:
        return failure
    body = seen.body
    if isinstance(body, bytes):
        # The error's own type or code may be one of limits; texts in it are not searched.
        try:
            error = _document.decode(body.removeprefix(b"event: error\ndata: ")).get("error")
            fields = {} if error is None else _document.decode(error)
        except UNREADABLE:
            fields = {}
        codes = [bytes(fields[name]).strip(b'"') for name in ("type", "code") if name in fields]
        if any(code.decode("latin-1") in _OWN_CODES for code in codes):
            return failure
    if not _holds(request, failure.evidence, seen.headers):
        return failure
    if streams:
        return judge(Observation.of_exception(EOFError("the stream ended with an error")))
    return judge(Observation.of_response(max(status, 400), {}, b"{}"))


def _holds(request: UpstreamRequest, evidence: Sequence[str], seen: Mapping[str, str]) -> bool:
    """Whether the request holds any of the evidence, as text or as a code, or may hold it."""
    headers = {name.lower(): value.lower() for name, value in seen.items()}
    own = headers.get("x-amzn-errortype", "")
    found = []
    for each in evidence:
        match = _MATCHED.fullmatch(each)
        phrase = "" if match is None else _plain(match[1] or match[2] or "")
        if _SAYS_STATUS.fullmatch(each) or each.partition(":")[0].lower() in headers:
            continue  # the vendor's own status or header, which no caller writes
        if phrase and phrase in own:
            continue
        if not phrase or REDACTED in phrase:
            return True  # it cannot be searched for
        found.append(phrase)
    if not found:
        return False
    names = [name.lower() for name, _ in request.headers]
    if len(request.body) > _MOST_SEARCHED or b"content-encoding" in names:
        return True
    # Target (as sent, and decoded) and headers, as vendors may read them.
    head = [request.target]
    while (decoded := unquote_to_bytes(head[-1])) != head[-1]:
        if len(head) > _MOST_DECODED or len(request.target) > _LONGEST_TARGET:
            return True
        head.append(decoded)
    for name, value in request.headers:
        head.append(value if name.lower() in _NAMES_OF_SDKS else name + b": " + value)
    lines = b"\n".join(head)
    readings = [lines.decode("latin-1")]
    if not lines.isascii():
        readings.append(lines.decode(errors="replace"))
    try:
        document: object = msgspec.json.decode(request.body)
    except UNREADABLE:
        document = request.body.decode(errors="replace")
    # One text: folding many small ones would take long.
    text = "\n".join((*readings, *_texts(document)))
    return any(
        phrase in piece
        for at in range(0, max(len(text), 1), _PIECE)
        for piece in (_plain(text[at : at + _PIECE + _OVERLAP]),)
        for phrase in found
    )


def _plain(text: str) -> str:
    # In a query, a plus may be a space: they count as the same.
    return fold(text.replace("+", " ")).lower()


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
