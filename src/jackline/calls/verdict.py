"""Decide what an HTTP answer that is no stream means: an answer, or which failure.

Rules: (1) a document with status 2xx that is an answer in its dialect, or any other result, is
delivered, whatever texts it quotes; only a top-level error, or a document that holds no result, is
judged by its words; (2) what an error means for this call, all of its words may say; what it means
for the lane, which others use, only the vendor may say, because vendors repeat names and values of
a request in their errors: the status, the vendor's headers, and the error's own type or code, where
no caller's words get; (3) other words count for the lane where status, type or code are those of
accounts and rates, unless the answer repeats an odd name of the request; elsewhere only as a whole
sentence that vendors are known to say and the request does not hold; (4) work is bounded: what
cannot be searched in full counts as repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from jackline.calls.own_words import OwnWords, repeats_a_name
from jackline.calls.request import Dialect
from jackline.dialects.answer_facts import is_openai_answer
from jackline.dialects.json_bounds import UNREADABLE
from jackline.failures import Failure, Kind, Observation, Where
from jackline.lanes.reactions import Reaction, reaction_to
from jackline.upstream.interface import UpstreamRequest

# Their words are about the account or the rate, and seldom repeat a request.
_ABOUT_THE_ACCOUNT = frozenset((402, 408, 429))
# With these a router may pass on an error whose own status is in its document.
_WRAPPERS = frozenset((200, 400, 500, 502))
# Keys of documents that are results: answers of any dialect, lists, counts, files.
_RESULTS = frozenset(
    ("candidates", "choices", "content", "data", "input_tokens", "output", "results")
)
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


def concerns_lane(failure: Failure) -> bool:
    """Whether it changes what others may do on the lane."""
    return reaction_to(failure) is not Reaction.CALL


def judge_rejection(
    judge: Callable[[Observation], Failure],
    seen: Observation,
    request: UpstreamRequest,
    *,
    concerns: Callable[[Failure], bool] = concerns_lane,
) -> Failure:
    """What an error means, less what may only repeat the request.

    One that concerns nobody else is taken at its word. Errors of servers and in streams count for
    their lane whatever they say; a quota, and how long to wait, need the vendor's own words.
    """
    failure = judge(seen)
    if not concerns(failure) or not isinstance(seen.body, bytes):
        return failure
    own = OwnWords.of(seen.body, request)
    streams = seen.where is Where.SSE
    status = 0 if streams else seen.status or 0
    if status in _WRAPPERS and own.status is not None:
        status = own.status
    if (status in _ABOUT_THE_ACCOUNT or own.codes) and not repeats_a_name(request, seen.body):
        return failure
    if own.sentences:
        return judge(replace(seen, body=own.document(own.sentences[0])))
    bare = judge(_bare(seen, own, max(status, 400)))
    if failure.kind in (Kind.ACCOUNT_QUOTA, Kind.BILLING) or 400 <= status < 500:
        return bare
    if not (streams or status >= 500 or own.faults):
        return bare
    return replace(failure, retry_after=bare.retry_after)


def _bare(seen: Observation, own: OwnWords, status: int) -> Observation:
    """What was seen, without any text."""
    if seen.where is not Where.SSE:
        return replace(seen, status=status, body=own.document())
    if own.codes:
        return Observation.of_stream(b"event: error\ndata: " + own.document() + b"\n\n")
    return Observation.of_exception(EOFError("the stream ended with an error"))
