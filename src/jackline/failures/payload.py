"""Collect from any payload the few words and numbers that can tell what went wrong.

Rules: (1) never raises; builds and visits a bounded number of nodes; (2) what a model said
(content, deltas, arguments) is not evidence, unless the payload itself is marked as an error; (3)
JSON inside strings, one-element arrays and event streams are unwrapped. What the words mean is in
rules/, folding their look in wording.py.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import msgspec

from jackline.failures.observation import Json
from jackline.failures.wording import is_html, shorten, strip_tags

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
