"""Collect from an observation the codes, numbers and texts that rules match.

Rules: (1) never raises; builds and visits a bounded number of nodes; (2) the output of a model
(content, deltas, arguments) is not evidence, unless the payload itself is marked as an error; (3)
JSON inside strings, one-element arrays and event streams are unwrapped; (4) of an exception the
whole chain of causes is used, loops cut; nothing is imported to recognise a class, names are
enough; (5) everything is folded once, here; (6) the status is the innermost that is known, because
bridges wrap a 429 in a 400 or a 200; (7) nothing is decided here.
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

_MAX_NODES = 20_000
_MAX_UNWRAPS = 8
# Of a document, counted by its commas: one with more is not parsed, and gives no evidence.
_MAX_VALUES = 1_000_000
# Characters of all documents together that are found inside strings.
_MAX_INNER = 4_000_000
_MAX_CAUSES = 20
# Of a stream that is no JSON the beginning and the end are used: how it ends matters most.
_HALF_STREAM = 1 << 19


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CODE_KEYS = _words(
    "type code status reason error_code errorcode error_type __type name subtype"
    " terminal_reason stop_reason finish_reason finishreason blockreason quotaid error_name"
    " error exception_type limit_source stopreason :exception-type category errortype"
    " apierrortype apierrorcode ratelimittype"
)
_MESSAGE_KEYS = _words(
    "message detail details raw title errormessage error_description result errors"
    " explanation error msg description reason error_message originalmessage quotametric text"
    " content"
)
_NUMBER_KEYS = _words(
    "retry_after retryafter retry_after_seconds retrydelay resets_at resetsat"
    " resets_in_seconds status code httpstatuscode statuscode status_code api_error_status"
    " apierrorstatus http_status originalstatuscode error_status quota_limit_value quotavalue"
)
# Below these keys is the output of a model or a tool; quoting an error is not having one.
_OUTPUT_KEYS = frozenset(
    {"content", "delta", "parts", "arguments", "input", "output_text", "partial_json"}
)
# How a turn ended comes from the API, wherever in the output it is.
_ENDING_KEYS = frozenset({"stop_reason", "finish_reason", "finishreason", "stopreason"})
_EMBEDDED = re.compile(r"[\[{]")
_QUOTED_PAIR = re.compile(r"""["'](\w{2,30})["']\s{0,3}:\s{0,3}["']([^"']{1,400})["']""")
_QUOTED_NUMBER = re.compile(r"""["'](\w{2,30})["']\s{0,3}:\s{0,3}(\d{1,12}(?:\.\d{1,9})?)""")
_DECODER = json.JSONDecoder()
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
# Statuses that bridges use for "something inside failed": a more specific inner one wins.
_WRAPPERS = frozenset({None, 200, 400, 500, 502})
# Characters of a text that are used at its beginning and at its end.
_EITHER_END = 8192
# No limit, date or wait needs more; a longer value is searched by no pattern.
_LONGEST_HEADER = 256
# Any other number of digits names no status, and int() raises at thousands of them.
_STATUS_DIGITS = 3


class _Node(NamedTuple):
    """A value in a document; `is_output` is set below the output of a model or tool."""

    key: str
    value: Json
    is_output: bool
    marked: bool


@dataclass(slots=True)
class Payload:
    """What was found: codes, messages, numbers by key, and marks of the form.

    `inner` counts the characters of strings that were parsed as documents.
    """

    codes: set[str] = field(default_factory=set)
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

    @property
    def marked_error(self) -> bool:
        """Whether the payload calls itself an error."""
        return (
            self.marked
            or "error" in self.codes
            or bool(self.keys & {"error", "errors", "isapierrormessage", "errorcode", "__type"})
        )

    def add(self, source: bytes | Json) -> None:
        """Collect from one body or text."""
        if source is None or source in ("", b""):
            return
        self.empty = False
        if isinstance(source, bytes):
            # Only building so many values would already delay others.
            if (
                len(source) > 2 * _MAX_VALUES
                and source.lstrip()[:1] in (b"{", b"[")
                and source.count(b",") > _MAX_VALUES
            ):
                self.is_json = True
                return
            document = _decoded(source)
            if document is not None:
                self.is_json = True
                self._walk(document, unwraps=0)
                return
            if len(source) > 2 * _HALF_STREAM:
                source = source[:_HALF_STREAM] + b"\n" + source[-_HALF_STREAM:]
            source = source.decode("utf-8", "replace")
        if isinstance(source, str):
            self._add_text(source)
        else:
            self.is_json = True
            self._walk(source, unwraps=0)

    def _add_text(self, text: str) -> None:
        document = self._inner_document(text)
        if document is not None:
            self.is_json = True
            self._walk(document, unwraps=0)
            return
        start = text.lstrip("\ufeff \t\r\n")[:12]
        if start.startswith(("event:", "data:", ": ", ":\n", "id:")):
            self._add_stream(text)
            return
        text = shorten(text)
        if is_html(text):
            self.html = True
            self.messages.append(strip_tags(text))
            return
        self.messages.append(text)
        self._add_embedded(text, unwraps=0)

    def _add_stream(self, text: str) -> None:
        """Collect from server-sent events: their names and their data."""
        for line in text.splitlines():
            name, _, value = line.partition(":")
            value = value.strip()
            if name == "event":
                self.events.append(value)
            elif name == "data" and value == "[DONE]":
                self.events.append("[DONE]")
            elif name == "data" and len(self.events) < _MAX_NODES:
                document = _decoded(value)
                if isinstance(document, dict):
                    kind = document.get("type")
                    self.events.append(kind if isinstance(kind, str) else "data")
                    self._walk(document, unwraps=1)

    def _add_embedded(self, text: str, *, unwraps: int) -> None:
        """Collect from JSON or a printed dict inside a sentence, whole or broken by a terminal."""
        opening = _EMBEDDED.search(text)
        if opening is None or unwraps >= _MAX_UNWRAPS:
            return
        try:
            document, _ = _DECODER.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            for key, value in _QUOTED_PAIR.findall(text):
                self._add_scalar(key.lower(), value)
            for key, number in _QUOTED_NUMBER.findall(text):
                self._add_scalar(key.lower(), float(number))
            return
        self._walk(document, unwraps=unwraps + 1)

    def _walk(self, document: Json, *, unwraps: int) -> None:
        queue: deque[_Node] = deque([_Node("", document, is_output=False, marked=False)])
        for _ in range(_MAX_NODES):
            if not queue:
                return
            node = queue.popleft()
            value = node.value
            if isinstance(value, dict):
                marked = node.marked or _is_marked(value)
                self.marked = self.marked or marked
                queue.extend(islice(self._children(value, node, marked=marked), _MAX_NODES))
            elif isinstance(value, list):
                # No more than can be visited: lists of lists would fill the memory.
                left = _MAX_NODES - len(queue)
                queue.extend(node._replace(value=child) for child in value[: max(0, left)])
            elif node.is_output or value is None or isinstance(value, bool):
                continue
            elif isinstance(value, str) and node.key in _MESSAGE_KEYS | _CODE_KEYS:
                self._add_string(node.key, value, unwraps=unwraps)
            else:
                self._add_scalar(node.key, value)

    def _children(self, parent: dict[str, Json], above: _Node, *, marked: bool) -> Iterator[_Node]:
        for name, child in parent.items():
            key = name.lower()
            (self.nulls if child is None else self.keys).add(key)
            if key.endswith("exception"):  # Bedrock names the event after the exception
                self.codes.add(key)
            is_output = not marked and (above.is_output or key in _OUTPUT_KEYS)
            yield _Node(key, child, is_output=is_output and key not in _ENDING_KEYS, marked=marked)

    def _add_string(self, key: str, value: str, *, unwraps: int) -> None:
        if unwraps < _MAX_UNWRAPS and value[:1] in ("{", "["):
            document = self._inner_document(value)
            if document is not None:
                self._walk(document, unwraps=unwraps + 1)
                return
        self._add_scalar(key, value)
        if key in _MESSAGE_KEYS and unwraps < _MAX_UNWRAPS and len(value) > 2:
            self._add_embedded(shorten(value), unwraps=unwraps + 1)

    def _inner_document(self, text: str) -> Json:
        """The JSON container in a string, or None; also None once enough of them were parsed."""
        if self.inner + len(text) > _MAX_INNER:
            return None
        document = _decoded(text)
        if document is not None:
            self.inner += len(text)
        return document

    def _add_scalar(self, key: str, value: str | float) -> None:
        if key in _NUMBER_KEYS:
            self.numbers.setdefault(key, str(value))
        if not isinstance(value, str):
            return
        if key == "code" and value.isupper() and value[:1] in "EU":
            self.messages.append(value)  # an errno such as EAI_AGAIN is a message in itself
        if key in _CODE_KEYS and len(value) <= 100:
            self.codes.add(value.rsplit("#", 1)[-1].split(":", 1)[0].strip().lower())
        if key in _MESSAGE_KEYS and len(self.messages) < 200:
            self.messages.append(shorten(value))


def _decoded(raw: bytes | str) -> Json:
    """The JSON container in `raw`, or None when it is anything else."""
    stripped = raw.strip()
    if stripped[:1] not in (b"{", b"[", "{", "["):
        return None
    try:
        document: Json = msgspec.json.decode(stripped)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return document


def _is_marked(document: dict[str, Json]) -> bool:
    """Whether a transcript line or result calls itself an error: then its output is the error."""
    if document.get("type") == "tool_result":
        # The client's own error may be passed on as if it were a tool's result.
        content = document.get("content")
        if isinstance(content, list) and content:
            first = content[0]
            content = first.get("text") if isinstance(first, dict) else None
        return isinstance(content, str) and content.startswith("API Error")
    message = document.get("message")
    model = message.get("model") if isinstance(message, dict) else None
    return (
        document.get("isApiErrorMessage") is True
        or document.get("is_error") is True
        or document.get("isError") is True
        or model == "<synthetic>"
    )


def describe(exception: BaseException) -> str:
    """One line for rules: class names, names of error numbers, and messages of all causes.

    The exceptions of a group count as causes.
    """
    seen: set[int] = set()
    pending = [exception]
    parts = []
    while pending and len(seen) < _MAX_CAUSES:
        link = pending.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        names = [parent.__name__ for parent in type(link).__mro__[:-2] if parent is not Exception]
        number = getattr(link, "errno", None)
        symbol = errno.errorcode.get(number, "") if isinstance(number, int) else ""
        try:
            message = str(link)[:2000]
        except Exception:  # noqa: BLE001 -- a broken __str__ must not hide the failure it belongs to
            message = "(no message)"
        parts.append(f"{'/'.join(names[:4])}: {message} {f'({symbol})' if symbol else ''}".strip())
        if isinstance(link, BaseExceptionGroup):
            pending.extend(link.exceptions)
        cause = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if cause is not None:
            pending.append(cause)
    return " · ".join(parts)


@dataclass(frozen=True, slots=True)
class FailureSignals:
    """One observation, folded. `text` is lower case, `prose` has its case for zone names."""

    where: Where
    provider: str
    status: int | None
    outer_status: int | None
    headers: dict[str, str]
    payload: Payload
    codes: frozenset[str]
    text: str
    prose: str
    body_seen: bool

    @classmethod
    def of(cls, observation: Observation) -> FailureSignals:
        """The evidence in `observation`."""
        headers = {
            str(name).lower(): str(value).strip()
            for name, value in observation.headers.items()
            if len(value) <= _LONGEST_HEADER
        }
        payload = Payload()
        payload.add(observation.text)
        if observation.exception is not None:
            payload.add(describe(observation.exception))
        payload.add(observation.body)
        prose = fold(" · ".join(dict.fromkeys(payload.messages)))
        if len(prose) > 2 * _EITHER_END:
            prose = f"{prose[:_EITHER_END]} {prose[-_EITHER_END:]}"
        text = prose.lower()
        codes = {code for code in payload.codes if code}
        codes.update(_EXCEPTION_NAME.findall(text[:4000]))
        if "x-amzn-errortype" in headers:
            codes.add(headers["x-amzn-errortype"].split(":", 1)[0].lower())
        outer = observation.status
        return cls(
            where=observation.where,
            provider=(observation.provider or "").lower(),
            status=_status(outer, payload, text),
            outer_status=outer,
            headers=headers,
            payload=payload,
            codes=frozenset(codes),
            text=text,
            prose=prose,
            body_seen=observation.body is not None,
        )

    @property
    def failed_status(self) -> bool:
        """Whether the request failed by its status alone."""
        return self.status is not None and self.status >= 400

    @property
    def succeeded(self) -> bool:
        """Whether the answer itself has a status of success."""
        return self.outer_status is not None and 200 <= self.outer_status < 300


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
