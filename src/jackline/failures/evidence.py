"""Collect from an observation the words, numbers and texts that rules look at.

Rules: (1) never raises; builds and visits a bounded number of nodes; (2) what a model said
(content, deltas, arguments) is not evidence, unless the payload itself is marked as an error; (3)
JSON inside strings, one-element arrays and event streams are unwrapped; (4) of an exception the
whole chain of causes is read, loops cut; nothing is imported to recognise a class, names are
enough; (5) everything is folded once, here; (6) the status is the innermost that is known,
because bridges wrap a 429 in a 400 or a 200; (7) nothing is decided here.
Not here: what the evidence means (rules/), folding (wording.py), exceptions of other programs,
which arrive as text.
"""

from __future__ import annotations

import errno
import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import msgspec

from jackline.failures.observation import Json, Observation, Where
from jackline.failures.wording import fold, is_html, shorten, strip_tags

MAX_NODES = 20_000
MAX_UNWRAPS = 8
MAX_VALUES = 1_000_000
"""Of a document, counted by its commas: one with more is not read, and tells nothing."""
MAX_INNER = 4_000_000
"""Letters of all the documents together that are found inside of strings."""

_WORD_KEYS = frozenset(
    {
        "type",
        "code",
        "status",
        "reason",
        "error_code",
        "errorcode",
        "error_type",
        "__type",
        "name",
        "subtype",
        "terminal_reason",
        "stop_reason",
        "finish_reason",
        "finishreason",
        "blockreason",
        "quotaid",
        "error_name",
        "error",
        "exception_type",
        "limit_source",
        "stopreason",
        ":exception-type",
        "category",
        "errortype",
        "apierrortype",
        "apierrorcode",
        "ratelimittype",
    }
)
_MESSAGE_KEYS = frozenset(
    {
        "message",
        "detail",
        "details",
        "raw",
        "title",
        "errormessage",
        "error_description",
        "result",
        "errors",
        "explanation",
        "error",
        "msg",
        "description",
        "reason",
        "error_message",
        "originalmessage",
        "quotametric",
        "text",
        "content",
    }
)
_NUMBER_KEYS = frozenset(
    {
        "retry_after",
        "retryafter",
        "retry_after_seconds",
        "retrydelay",
        "resets_at",
        "resetsat",
        "resets_in_seconds",
        "status",
        "code",
        "httpstatuscode",
        "statuscode",
        "status_code",
        "api_error_status",
        "apierrorstatus",
        "http_status",
        "originalstatuscode",
        "error_status",
        "quota_limit_value",
        "quotavalue",
    }
)
# Below these keys stands what a model or a tool said; quoting an error is not having one.
_SPEECH_KEYS = frozenset(
    {
        "content",
        "delta",
        "parts",
        "arguments",
        "input",
        "output_text",
        "partial_json",
    }
)
# How a turn ended is the API's word, wherever in the speech it stands.
_ENDING_KEYS = frozenset(
    {
        "stop_reason",
        "finish_reason",
        "finishreason",
        "stopreason",
    }
)
_EMBEDDED = re.compile(r"[\[{]")
_QUOTED_PAIR = re.compile(r"""["'](\w{2,30})["']\s{0,3}:\s{0,3}["']([^"']{1,400})["']""")
_QUOTED_NUMBER = re.compile(r"""["'](\w{2,30})["']\s{0,3}:\s{0,3}(\d{1,12}(?:\.\d{1,9})?)""")
_DECODER = json.JSONDecoder()


@dataclass(slots=True)
class Payload:
    """What was found: code words, messages, numbers by key, and marks of shape."""

    words: set[str] = field(default_factory=set)
    messages: list[str] = field(default_factory=list)
    numbers: dict[str, str] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    nulls: set[str] = field(default_factory=set)
    events: list[str] = field(default_factory=list)
    html: bool = False
    marked: bool = False
    is_json: bool = False
    empty: bool = True
    inner: int = 0
    """How many letters of strings were read as documents."""

    @property
    def marked_error(self) -> bool:
        """Whether the payload calls itself an error."""
        return (
            self.marked
            or "error" in self.words
            or bool(self.keys & {"error", "errors", "isapierrormessage", "errorcode", "__type"})
        )


def collect(*sources: bytes | Json) -> Payload:
    """Everything telling in the given bodies and texts, in their order."""
    found = Payload()
    for source in sources:
        _take(source, found)
    return found


def _take(source: bytes | Json, found: Payload) -> None:
    if source is None or source in ("", b""):
        return
    found.empty = False
    if isinstance(source, bytes):
        if _is_overfull(source):
            found.is_json = True
            return
        document = _decoded(source)
        if document is not None:
            found.is_json = True
            _walk(document, found, unwraps=0)
            return
        source = _ends(source).decode("utf-8", "replace")
    if isinstance(source, str):
        _take_text(source, found, unwraps=0)
    else:
        found.is_json = True
        _walk(source, found, unwraps=0)


def _is_overfull(raw: bytes) -> bool:
    """Whether it may be a document of so many values that only building them holds others up."""
    return (
        len(raw) > 2 * MAX_VALUES
        and raw.lstrip()[:1] in (b"{", b"[")
        and raw.count(b",") > MAX_VALUES
    )


def _inner_document(text: str, found: Payload) -> Json:
    """The JSON container in a string, or None; None as well once enough of them were read."""
    if found.inner + len(text) > MAX_INNER:
        return None
    document = _decoded(text)
    if document is not None:
        found.inner += len(text)
    return document


def _ends(raw: bytes) -> bytes:
    """The bytes, or of very many the first and the last: how a stream ends matters most."""
    half = 1 << 19
    return raw if len(raw) <= 2 * half else raw[:half] + b"\n" + raw[-half:]


def _decoded(raw: bytes | str) -> Json:
    """The JSON container in `raw`, or None when it is anything else."""
    stripped = raw.strip()
    head = stripped[:1]
    if head not in (b"{", b"[", "{", "["):
        return None
    try:
        document: Json = msgspec.json.decode(stripped)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return document


def _take_text(text: str, found: Payload, *, unwraps: int) -> None:
    document = _inner_document(text, found)
    if document is not None:
        found.is_json = found.is_json or unwraps == 0
        _walk(document, found, unwraps=unwraps)
        return
    if _looks_like_stream(text):
        _take_stream(text, found)
        return
    text = shorten(text)
    if is_html(text):
        found.html = True
        found.messages.append(strip_tags(text))
        return
    found.messages.append(text)
    _take_embedded(text, found, unwraps=unwraps)


def _take_embedded(text: str, found: Payload, *, unwraps: int) -> None:
    """JSON or a printed dict inside a sentence, whole or broken by a terminal."""
    opening = _EMBEDDED.search(text)
    if opening is None or unwraps >= MAX_UNWRAPS:
        return
    try:
        document, _ = _DECODER.raw_decode(text, opening.start())
    except (ValueError, RecursionError):
        for key, value in _QUOTED_PAIR.findall(text):
            _take_scalar(key.lower(), value, found)
        for key, number in _QUOTED_NUMBER.findall(text):
            _take_scalar(key.lower(), float(number), found)
        return
    _walk(document, found, unwraps=unwraps + 1)


def _looks_like_stream(text: str) -> bool:
    start = text.lstrip("\ufeff \t\r\n")[:12]
    return start.startswith(("event:", "data:", ": ", ":\n", "id:"))


def _take_stream(text: str, found: Payload) -> None:
    """The events of a server-sent stream: their names, and what their data tells."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        value = value.strip()
        if name == "event":
            found.events.append(value)
        elif name == "data" and value == "[DONE]":
            found.events.append("[DONE]")
        elif name == "data" and len(found.events) < MAX_NODES:
            document = _decoded(value)
            if isinstance(document, dict):
                kind = document.get("type")
                found.events.append(kind if isinstance(kind, str) else "data")
                _walk(document, found, unwraps=1)


def _walk(document: Json, found: Payload, *, unwraps: int) -> None:
    queue: deque[_Node] = deque([_Node("", document, speech=False, marked=False)])
    for _ in range(MAX_NODES):
        if not queue:
            return
        node = queue.popleft()
        value = node.value
        if isinstance(value, dict):
            marked = node.marked or _is_marked(value)
            found.marked = found.marked or marked
            children = _children(value, node, found, marked=marked)
            queue.extend(islice(children, MAX_NODES))
        elif isinstance(value, list):
            # No more than can be visited: lists of lists would fill the memory.
            room = MAX_NODES - len(queue)
            queue.extend(node._replace(value=child) for child in value[: max(0, room)])
        elif node.speech or value is None or isinstance(value, bool):
            continue
        elif isinstance(value, str) and node.key in _MESSAGE_KEYS | _WORD_KEYS:
            _take_string(node.key, value, found, unwraps=unwraps)
        else:
            _take_scalar(node.key, value, found)


class _Node(NamedTuple):
    key: str
    value: Json
    speech: bool
    marked: bool


def _children(
    parent: dict[str, Json], above: _Node, found: Payload, *, marked: bool
) -> Iterator[_Node]:
    for name, child in parent.items():
        key = name.lower()
        (found.nulls if child is None else found.keys).add(key)
        if key.endswith("exception"):  # Bedrock names the event after the exception
            found.words.add(key)
        hushed = not marked and (above.speech or key in _SPEECH_KEYS)
        yield _Node(key, child, speech=hushed and key not in _ENDING_KEYS, marked=marked)


def _is_marked(document: dict[str, Json]) -> bool:
    """Whether a transcript line or result calls itself an error: then its speech is the error."""
    if document.get("type") == "tool_result":
        return _quotes_client(document.get("content"))
    message = document.get("message")
    model = message.get("model") if isinstance(message, dict) else None
    return (
        document.get("isApiErrorMessage") is True
        or document.get("is_error") is True
        or document.get("isError") is True
        or model == "<synthetic>"
    )


def _quotes_client(content: Json) -> bool:
    """Whether a tool's result is the client's own error, handed on as if it were a result."""
    if isinstance(content, list) and content:
        first = content[0]
        content = first.get("text") if isinstance(first, dict) else None
    return isinstance(content, str) and content.startswith("API Error")


def _take_string(key: str, value: str, found: Payload, *, unwraps: int) -> None:
    if unwraps < MAX_UNWRAPS and value[:1] in ("{", "["):
        document = _inner_document(value, found)
        if document is not None:
            _walk(document, found, unwraps=unwraps + 1)
            return
    _take_scalar(key, value, found)
    if key in _MESSAGE_KEYS and unwraps < MAX_UNWRAPS and len(value) > 2:
        _take_embedded(shorten(value), found, unwraps=unwraps + 1)


def _take_scalar(key: str, value: str | float, found: Payload) -> None:
    if key in _NUMBER_KEYS:
        found.numbers.setdefault(key, str(value))
    if not isinstance(value, str):
        return
    if key == "code" and value.isupper() and value[:1] in "EU":
        found.messages.append(value)  # an errno such as EAI_AGAIN is a message in itself
    if key in _WORD_KEYS and len(value) <= 100:
        found.words.add(value.rsplit("#", 1)[-1].split(":", 1)[0].strip().lower())
    if key in _MESSAGE_KEYS and len(found.messages) < 200:
        found.messages.append(shorten(value))


MAX_CHAIN = 20


def describe(exception: BaseException) -> str:
    """One line a rule can match: class names, error numbers by name, and messages."""
    return " · ".join(_describe_one(link) for link in chain(exception))


def chain(exception: BaseException) -> Iterator[BaseException]:
    """The exception, then what caused it, then what caused that; groups are opened."""
    seen: set[int] = set()
    pending = [exception]
    while pending and len(seen) < MAX_CHAIN:
        link = pending.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            pending.extend(link.exceptions)
        cause = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if cause is not None:
            pending.append(cause)


def _describe_one(link: BaseException) -> str:
    names = [parent.__name__ for parent in type(link).__mro__[:-2] if parent is not Exception]
    number = getattr(link, "errno", None)
    symbol = errno.errorcode.get(number, "") if isinstance(number, int) else ""
    return f"{'/'.join(names[:4])}: {_message(link)} {f'({symbol})' if symbol else ''}".strip()


def _message(link: BaseException) -> str:
    try:
        return str(link)[:2000]
    except Exception:  # noqa: BLE001 -- a broken __str__ must not hide the failure it belongs to
        return "(no message)"


_STATUS_IN_TEXT = re.compile(
    r"api error:? \(?(?P<a>[45]\d\d)\b"
    r"|\brequest rejected \((?P<b>[45]\d\d)\)"
    r"|\b(?:http|https)(?:[ _/]?(?:error|status|code|1\.1|2|3))?:? ?\(?(?P<c>[45]\d\d)\b"
    r"|\bstatus(?:[ _]?code)?(?: of)?[:= ]{1,3}(?P<d>[45]\d\d)\b"
    r"|\b(?:error code|code|unexpected status|last status):? ?(?P<e>[45]\d\d)\b"
    r"|^[^a-z0-9]{0,4}(?P<f>[45]\d\d)(?=[ :,·({<-]|$)"
    r"|\berror:? \(?(?P<g>[45]\d\d)\b"
    r"|\b(?P<h>[45]\d\d) (?:too many requests|internal server error|bad gateway|bad request"
    r"|forbidden|service (?:temporarily )?unavailable|gateway time-?out|unauthorized|not found"
    r"|payment required|overloaded|status code|request entity too large|proxy authentication"
    r"|resource_exhausted)"
    r"|\((?P<i>[45]\d\d)\)"
)
_EXCEPTION_NAME = re.compile(r"\b[a-z]{4,50}exception\b")
_STATUS_KEYS = (
    "api_error_status",
    "apierrorstatus",
    "error_status",
    "httpstatuscode",
    "statuscode",
    "status_code",
    "http_status",
    "status",
    "code",
)
# Statuses that bridges use for "something inside failed": a more telling inner one wins.
_WRAPPERS = frozenset({None, 200, 400, 500, 502})
# Characters of a text that are read at its beginning and at its end.
_EITHER_END = 8192
# Any other number of digits names no status, and int() raises at thousands of them.
_STATUS_DIGITS = 3


@dataclass(frozen=True, slots=True)
class FailureSignals:
    """One observation, folded. `text` is lower case, `prose` keeps its case for zone names."""

    where: Where
    provider: str
    status: int | None
    outer_status: int | None
    headers: dict[str, str]
    payload: Payload
    words: frozenset[str]
    text: str
    prose: str
    body_seen: bool

    @property
    def failed_status(self) -> bool:
        """Whether the status itself says that the request failed."""
        return self.status is not None and self.status >= 400


def read(observation: Observation) -> FailureSignals:
    """The evidence in `observation`."""
    headers = {str(k).lower(): str(v).strip() for k, v in observation.headers.items()}
    thrown = describe(observation.exception) if observation.exception is not None else None
    payload = collect(observation.text, thrown, observation.body)
    prose = _text_ends(fold(" · ".join(_unrepeated(payload.messages))))
    text = prose.lower()
    words = {word for word in payload.words if word}
    words.update(_EXCEPTION_NAME.findall(text[:4000]))
    if "x-amzn-errortype" in headers:
        words.add(headers["x-amzn-errortype"].split(":", 1)[0].lower())
    outer = observation.status
    return FailureSignals(
        where=observation.where,
        provider=(observation.provider or "").lower(),
        status=_status(outer, payload, text),
        outer_status=outer,
        headers=headers,
        payload=payload,
        words=frozenset(words),
        text=text,
        prose=prose,
        body_seen=observation.body is not None,
    )


def _text_ends(text: str) -> str:
    return text if len(text) <= 2 * _EITHER_END else f"{text[:_EITHER_END]} {text[-_EITHER_END:]}"


def _unrepeated(messages: list[str]) -> list[str]:
    return list(dict.fromkeys(messages))


def _status(outer: int | None, payload: Payload, text: str) -> int | None:
    if outer not in _WRAPPERS:
        return outer
    for key in _STATUS_KEYS:
        value = payload.numbers.get(key, "").split(".", 1)[0]
        if len(value) != _STATUS_DIGITS or not value.isdecimal():
            continue
        status = int(value)
        if 400 <= status <= 599 and status not in (400, 500):
            return status
    if outer is not None:
        return outer
    match = _STATUS_IN_TEXT.search(text[:4000])
    return int(match[match.lastgroup]) if match is not None and match.lastgroup else None
