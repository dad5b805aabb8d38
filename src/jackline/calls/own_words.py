"""Find in an error what only its vendor can have said, and whether it repeats its request.

Rules: (1) a vendor's own are the fields for a type, code or status of the error itself, in the
document or in one that is the whole of its message, where routers pass on an upstream's error; a
text has them not, whatever stands in it; (2) of texts only a whole known sentence is the vendor's;
(3) a name is odd unless it is one word that means nothing to `classify`; an odd one is repeated if
any ten of its letters and digits in a row are, so that neither quoting nor cutting hides it; (4)
pure, and linear: a request's conversation is only searched as bytes, and never decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import unquote_to_bytes

import msgspec

from jackline.dialects.json_bounds import UNREADABLE
from jackline.failures import Json, Kind, Observation, classify
from jackline.failures.known_sentences import is_vendor_sentence
from jackline.failures.resets import find_reset, find_wait
from jackline.upstream.interface import UpstreamRequest

# The error's own types and codes that are about limits, money and load.
_LIMITS = frozenset(
    """
    access_terminated_error billing_error billing_hard_limit_reached billing_not_active
    budget_exceeded budgetexceedederror credit_balance_exhausted credit_limit credits_required
    creditserror enforced_spend_limit_reached exceeded_current_quota_error exceededbudget
    insufficient_balance insufficient_credits insufficient_quota insufficient_user_quota
    modelerrorexception modelstreamerrorexception overloaded_error payment_required
    pre_consume_token_quota_failed quota_exceeded quota_not_enough rate_limit_error
    rate_limit_exceeded rate_limited resource_exhausted server_is_overloaded
    servicequotaexceededexception serviceunavailableexception throttlingexception too_many_requests
    too_many_requests_error usage_limit_exceeded usage_limit_reached usage_not_included
    user_weekly_rate_limited
    """.split()  # noqa: SIM905 -- a table to be read
)
# Those of a server that has failed.
_FAULTS = frozenset(
    ["api_error", "internal_error", "internal_server_error", "server_error", "service_unavailable"]
)
_CODES = ("type", "code", "status", "__type", "error_code", "error_type")
_STATUSES = ("code", "status", "status_code", "error_code")
_MESSAGES = ("message", "detail", "error")
_PARTS = ("error", "response")
_DEEPEST = 4
# What a router writes before an upstream's document: `litellm.RateLimitError: OpenAIException - `.
_BEFORE_NESTED = re.compile(
    r"(?:(?:litellm\.)?[A-Z]\w{2,40}(?:Error|Exception)(?:: | - )){1,4}(?=[{\[])"
)
# Of Bedrock, with status 403, for minutes after a subscription was made.
_RECOVERS = (
    "Model access is denied due to IAM user or service role is not authorized to perform the"
    " required AWS Marketplace actions (aws-marketplace:ViewSubscriptions,"
    " aws-marketplace:Subscribe) to enable access to this model. Refer to the Amazon Bedrock"
    " documentation for further details. Your AWS Marketplace subscription for this model cannot be"
    " completed at this time. If you recently fixed this issue, try again after 2 minutes."
)
_LARGEST_ERROR = 2 << 20
# Of which all texts are searched for names.
_LONGEST_ERROR = 1 << 16
_Fields = dict[str, msgspec.Raw]
_fields = msgspec.json.Decoder(_Fields)
_scalar: msgspec.json.Decoder[int | str] = msgspec.json.Decoder(int | str)


@dataclass(slots=True)
class OwnWords:
    """What only the vendor can have said in an error's document."""

    codes: set[str] = field(default_factory=set)
    """Of limits, money and load."""
    faults: bool = False
    """It says that the server has failed."""
    status: int | None = None
    """Another status than the answer's, in a field of the error."""
    sentences: list[str] = field(default_factory=list)
    """Messages that are, as a whole, what vendors are known to say of an account."""

    request: UpstreamRequest | None = field(default=None, repr=False)

    @classmethod
    def of(cls, body: bytes, request: UpstreamRequest) -> OwnWords:
        """The vendor's own words in an error's body, or in its event of a stream."""
        found = cls(request=request)
        if len(body) <= _LARGEST_ERROR:
            found._add(body.removeprefix(b"event: error\ndata: ").strip(), 0)
        return found

    def document(self, sentence: str | None = None) -> bytes:
        """An error that has these words and no others."""
        error: dict[str, object] = dict(zip(("type", "code"), sorted(self.codes), strict=False))
        if sentence is not None:
            error["message"] = sentence
        return msgspec.json.encode({"error": error} if error else {})

    def _add(self, raw: bytes | str, depth: int) -> None:
        if depth > _DEEPEST:
            return
        try:
            document = _fields.decode(raw)
        except UNREADABLE:
            return
        fields = {name.lower(): value for name, value in document.items()}
        for name in _CODES:
            said = _read(fields.get(name))
            if isinstance(said, str):
                code = said.rsplit("#", 1)[-1].partition(":")[0].strip().lower()
                self.codes |= {code} & _LIMITS
                self.faults = self.faults or code in _FAULTS
        for name in _STATUSES:
            said = _read(fields.get(name))
            number = int(said) if isinstance(said, str) and _NUMBER.fullmatch(said) else said
            if self.status is None and isinstance(number, int) and 400 < number < 600:
                self.status = number
        for name in _MESSAGES:
            said = _read(fields.get(name))
            if isinstance(said, str):
                self._add_message(said.strip(), depth)
        for name in _PARTS:
            part = fields.get(name)
            if part is not None:
                self._add(bytes(part), depth + 1)

    def _add_message(self, text: str, depth: int) -> None:
        is_known = is_vendor_sentence(text) or text == _RECOVERS
        before = _BEFORE_NESTED.match(text)
        nested = text if before is None else text[before.end() :]
        # Searched for only where it would count: such a message is rare.
        if not (is_known or nested[:1] == "{"):
            return
        if self.request is None or holds(self.request, nested):
            return
        if is_known:
            self.sentences.append(text)
        else:
            self._add(nested, depth + 1)


_NUMBER = re.compile(r"[45]\d\d")


def _read(raw: msgspec.Raw | None) -> int | str | None:
    if raw is None:
        return None
    try:
        return _scalar.decode(raw)
    except UNREADABLE:
        return None


# --- whether an answer repeats its request --------------------------------------------------------

_MOST_SEARCHED = 1 << 20
_MOST_ESCAPES = 20_000
_ESCAPE = re.compile(rb"\\u00([2-7][0-9a-fA-F])")
_FOREIGN_ESCAPE = re.compile(rb"\\u[0-9a-fA-F]{4}")
_LONGEST_TARGET = 16_384
# Vendors and the proxies before them decode a target once or twice.
_MOST_DECODED = 4
_SIGNS = bytes(byte for byte in range(256) if not (byte < 128 and chr(byte).isalnum()))


def holds(request: UpstreamRequest, text: str) -> bool:
    """Whether the request has this text in it, however it is quoted, or may have it."""
    body = request.body if request.plain is None else request.plain
    is_packed = any(name.lower() == b"content-encoding" for name, _ in request.headers)
    if len(body) > _MOST_SEARCHED or (is_packed and request.plain is None):
        return True
    if len(request.target) > _LONGEST_TARGET or body.count(b"\\u00") > _MOST_ESCAPES:
        return True
    said = text.encode(errors="replace")
    if _row(said) in _row(body) or _row(_unescaped(said)) in _row(_unescaped(body)):
        return True
    targets = [request.target]
    while (decoded := unquote_to_bytes(targets[-1].replace(b"+", b" "))) != targets[-1]:
        if len(targets) > _MOST_DECODED:
            return True
        targets.append(decoded)
    head = (*targets, *(each for pair in request.headers for each in pair))
    return any(_row(said) in _row(each) for each in head)


def _row(text: bytes | bytearray) -> bytes:
    """Its letters and digits alone: each copy may change quotes, spaces and backslashes."""
    return bytes(text.translate(None, _SIGNS).lower())


def _unescaped(text: bytes | bytearray) -> bytes:
    if b"\\u" not in text:
        return bytes(text)
    return _FOREIGN_ESCAPE.sub(
        b"", _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), bytes(text))
    )


# The parts of a request that hold the conversation: nothing in them is a name that an answer about
# limits repeats.
_CONVERSATION = frozenset(
    ("contents", "input", "instructions", "messages", "prompt", "system", "tools")
)
_CREDENTIALS = frozenset((b"authorization", b"x-api-key", b"api-key", b"cookie"))
_MOST_TEXTS = 500
_MOST_CHARACTERS = 1 << 16
_LONGEST_BODY = 4 << 20
_ROW = 10
_ONE_WORD = re.compile(r"[\w.,:;/@+=()\[\]~*-]{1,256}")
_NO_SIGNS = re.compile(r"[\W_]+")
_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


class _TooMuchError(Exception):
    """More than is searched."""


def repeats_a_name(request: UpstreamRequest, answer: bytes) -> bool:
    """Whether an error has an odd name of its request in it, or may have one.

    Names are all keys and texts outside of the conversation, and those of target and headers.
    """
    if len(answer) > _LONGEST_ERROR:
        return True
    try:
        names = list(_names(request))
    except _TooMuchError:
        return True
    return says_any(_decoded(answer), names)


def says_any(text: str, names: Iterable[str]) -> bool:
    """Whether a text has any of these names in it that is odd."""
    said = _letters(text)
    rows: set[str] | None = None
    for name in names:
        letters = _letters(name)
        if not letters or letters.isdecimal():
            continue
        if len(letters) < _ROW:
            is_in = letters in said
        else:
            if rows is None:
                rows = {said[at : at + _ROW] for at in range(len(said) - _ROW + 1)}
            is_in = any(letters[at : at + _ROW] in rows for at in range(len(letters) - _ROW + 1))
        if is_in and _is_odd(name):
            return True
    return False


def _names(request: UpstreamRequest) -> Iterator[str]:
    body = request.body if request.plain is None else request.plain
    if len(body) > _LONGEST_BODY:
        raise _TooMuchError
    left, size = _MOST_TEXTS, 0
    for text in (*_head_names(request), *_body_names(body)):
        left, size = left - 1, size + len(text)
        if left < 0 or size > _MOST_CHARACTERS:
            raise _TooMuchError
        yield text


def _head_names(request: UpstreamRequest) -> Iterator[str]:
    if len(request.target) > _LONGEST_TARGET:
        raise _TooMuchError
    target = request.target
    for _ in range(_MOST_DECODED):
        target = unquote_to_bytes(target.replace(b"+", b" "))
    yield target.decode(errors="replace")
    for name, value in request.headers:
        if name.lower() not in _CREDENTIALS:
            yield name.decode("latin-1")
            yield value.decode("latin-1")


def _body_names(body: bytes | bytearray) -> Iterator[str]:
    if not body:
        return
    try:
        fields = _fields.decode(body)
    except UNREADABLE:
        raise _TooMuchError from None
    for name, raw in fields.items():
        yield name
        if name in _CONVERSATION:
            continue
        if len(bytes(raw)) > _MOST_CHARACTERS:
            raise _TooMuchError
        yield from _texts(msgspec.json.decode(raw))


def _texts(document: Json) -> Iterator[str]:
    left = [document]
    while left:
        match left.pop():
            case str(text):
                yield text
            case dict(pairs):
                left += [*pairs, *pairs.values()]
            case list(items):
                left += items


def _decoded(answer: bytes) -> str:
    try:
        return "\n".join(_texts(msgspec.json.decode(answer)))
    except UNREADABLE:
        return answer.decode(errors="replace")


def _letters(text: str) -> str:
    return _NO_SIGNS.sub("", text.casefold())


@lru_cache(maxsize=4096)
def _is_odd(name: str) -> bool:
    """Whether it is more than one word, or a word that errors use."""
    if _ONE_WORD.fullmatch(name) is None:
        return True
    if find_reset(name, _ANY_TIME) is not None or find_wait(name) is not None:
        return True
    error = {"type": "error", "error": {"type": "odd", "message": f"for {name} now"}}
    seen = Observation.of_response(429, {}, msgspec.json.encode(error))
    failure = classify(seen, now=_ANY_TIME)
    return (failure.kind, failure.sub, failure.retry_after) != (Kind.SERVER_THROTTLE, None, None)
