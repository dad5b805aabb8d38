"""Rebuild an OTLP export from the parts that hold no prompt or answer, and drop the rest.

Rules: (1) a list of what may pass: a field that is not named here does not; (2) every value is
rebuilt from the one kind that was checked, so that nothing passes beside it; (3) of texts only
names, ids and kinds pass, each in its form and length, so that a prompt, an answer, a tool's input
or its output cannot; (4) an export is decoded and rebuilt object by object, so that the caller can
let others work in between; bytes that cannot be decoded raise one of `UNREADABLE`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import msgspec

from jackline.dialects.json_bounds import count_values

Document: TypeAlias = dict[str, Any]
_Check: TypeAlias = Callable[[object], object | None]
"""Returns the value as it may pass; None when it may not."""

# Sent by 2.1.325; each holds a name, an id or one of a few values.
_NAMES = frozenset(
    (
        "session.id", "agent_id", "agent.name", "agent.source", "agent_type", "event.name",
        "event.timestamp", "prompt.id", "message.uuid", "model", "final_model", "request_id",
        "tool_name", "tool_name_safe", "tool_use_id", "tool_source", "decision", "source",
        "success", "error_type", "error.type", "query_source", "query_source_safe", "speed",
        "effort", "terminal.type", "anthropic.provider", "permission_mode", "span.type",
        "stop_reason", "start_type", "type", "llm_request.context", "parent.source",
        "service.name", "service.version", "os.type", "host.arch", "user.id",
        "gen_ai.provider.name", "gen_ai.system", "gen_ai.operation.name",
        "gen_ai.conversation.id", "gen_ai.tool.name", "gen_ai.tool.call.id",
        "gen_ai.request.model", "gen_ai.response.id",
    )
)  # fmt: skip
# Names of models, agents and tools, ids, dates: no blank and no quote, so that nobody's words fit.
_NAME = re.compile(r"[A-Za-z0-9_.:/@+\[\]-]{0,200}\Z")
_NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,9})?\Z", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,20}\Z", re.ASCII)
_FIGURE = re.compile(r"-?(\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,3})?|Infinity)\Z|NaN\Z", re.ASCII)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,99}\Z")
_KIND = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,60}\Z")
_VERSION = re.compile(r"[A-Za-z0-9_.+-]{1,40}\Z")
_LIBRARY = re.compile(r"[@A-Za-z_][A-Za-z0-9_./@-]{0,99}\Z")
_UNIT = re.compile(r"[A-Za-z0-9_./{}%*-]{0,40}\Z")
_ID = re.compile(r"[0-9A-Fa-f]{0,32}\Z")
_SCHEMA = re.compile(r"https://opentelemetry\.io/schemas/[0-9.]{1,20}\Z")
_SENDERS = ("claude_code.", "gen_ai.")
_64_BITS = 1 << 64
# Of one field, which is decoded at once. A text may have many commas; what has more is dropped.
_MAX_VALUES = 20_000
# Attributes or numbers in one list; OpenTelemetry's own limits are 128 and 160.
_MAX_ITEMS = 512
# The work for an object, as if it had more bytes.
_PER_OBJECT = 100
_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items_of = msgspec.json.Decoder(list[msgspec.Raw]).decode


def fit_export(body: bytes, *, with_words: bool = False) -> Generator[int, None, Document]:
    """The export without prompts and answers; yields how many bytes the next step reads.

    `with_words` leaves all in: what is no object of OTLP remains as the bytes that came.
    """
    return _EXPORT.rebuild(body, with_words=with_words)


def fit_attributes(attributes: object) -> list[Document]:
    """The attributes whose values may be saved and forwarded, each with its one value."""
    found: list[Document] = []
    for each in islice(maps(attributes), _MAX_ITEMS):
        name, value = each.get("key"), each.get("value")
        if not isinstance(name, str) or not _KEY.match(name):
            continue
        if not isinstance(value, dict) or len(value) != 1:
            continue
        ((kind, inner),) = value.items()
        check = _NUMBER_KINDS.get(kind)
        if kind == "stringValue":
            check = _name if name in _NAMES else _numeric
        if check is not None and (fit := check(inner)) is not None:
            found.append({"key": name, "value": {kind: fit}})
    return found


def fit_integer(value: object) -> int | str | None:
    """A whole number of 64 bits, which OTLP's JSON writes as a string; None when it is none."""
    if isinstance(value, str):
        return value if _INTEGER.match(value) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -_64_BITS < value < _64_BITS else None


def maps(value: object) -> Iterator[Document]:
    """The objects in what should be a list of them."""
    return (
        (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())
    )


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _figure(value: object) -> float | str | None:
    if isinstance(value, str):
        return value if _FIGURE.match(value) else None
    return value if isinstance(value, float) else fit_integer(value)


def _matching(pattern: re.Pattern[str]) -> _Check:
    return lambda value: value if isinstance(value, str) and pattern.match(value) else None


def _sender_name(value: object) -> str | None:
    """The name of a span or a metric; "unknown" in place of one that may hold a text."""
    known = isinstance(value, str) and value.startswith(_SENDERS) and _KIND.match(value)
    return str(value) if known else "unknown"


def _body(value: object) -> Document | None:
    """A record's body, where it is no more than the event's name."""
    text = value.get("stringValue") if isinstance(value, dict) and len(value) == 1 else None
    return {"stringValue": text} if _sender_name(text) == text != "unknown" else None


def _code(value: object) -> object | None:
    """One of an enumeration, by its number or its name."""
    return _kind(value) if isinstance(value, str) else fit_integer(value)


_name = _matching(_NAME)
_numeric = _matching(_NUMBER)
_kind = _matching(_KIND)
_id = _matching(_ID)
_NUMBER_KINDS: Mapping[str, _Check] = {
    "intValue": fit_integer,
    "doubleValue": _figure,
    "boolValue": _flag,
}


class _Nested(NamedTuple):
    """An object, or a list of objects, with these fields."""

    fields: Mapping[str, _Check | _Nested]
    is_list: bool = False

    @classmethod
    def one(cls, **fields: _Check | _Nested) -> _Nested:
        return cls(fields)

    @classmethod
    def many(cls, **fields: _Check | _Nested) -> _Nested:
        return cls(fields, is_list=True)

    @classmethod
    def by_scope(cls, scopes: str, items: str, check: _Nested) -> _Nested:
        """Resources, each with its scopes, each with the items that it made."""
        url = _matching(_SCHEMA)
        inner = cls({"scope": _SCOPE, items: check, "schemaUrl": url}, is_list=True)
        return cls({"resource": _RESOURCE, scopes: inner, "schemaUrl": url}, is_list=True)

    def rebuild(
        self, data: bytes | msgspec.Raw, *, with_words: bool
    ) -> Generator[int, None, Document]:
        """One object with these fields, made of what fits them."""
        found = _fields_of(data)
        yield memoryview(data).nbytes + _PER_OBJECT
        made: Document = dict(found) if with_words else {}
        for name, check in self.fields.items():
            value = found.get(name)
            if value is None:
                continue
            fit: object = None
            begin = bytes(memoryview(value)[:1])
            if not isinstance(check, _Nested):
                if not with_words and count_values(bytes(value)) <= _MAX_VALUES:
                    fit = check(msgspec.json.decode(value))
            elif check.is_list and begin == b"[":
                yield memoryview(value).nbytes
                rows: list[Document] = []
                for each in _items_of(value):
                    if bytes(memoryview(each)[:1]) == b"{":
                        row = yield from check.rebuild(each, with_words=with_words)
                        rows.append(row)
                fit = rows
            elif not check.is_list and begin == b"{":
                fit = yield from check.rebuild(value, with_words=with_words)
            if fit is not None:
                made[name] = fit
        return made


def _list(check: _Check) -> _Check:
    """A list of numbers: all of it, or nothing."""

    def checked(value: object) -> list[object] | None:
        if not isinstance(value, list) or len(value) > _MAX_ITEMS:
            return None
        fit = [check(each) for each in value]
        return None if None in fit else fit

    return checked


_BETWEEN: Mapping[str, _Check | _Nested] = {
    "startTimeUnixNano": fit_integer,
    "timeUnixNano": fit_integer,
    "attributes": fit_attributes,
    "flags": fit_integer,
}
_WHERE: Mapping[str, _Check | _Nested] = {
    "traceId": _id,
    "spanId": _id,
    "attributes": fit_attributes,
    "droppedAttributesCount": fit_integer,
    "flags": fit_integer,
}
_BUCKETS = _Nested.one(offset=fit_integer, bucketCounts=_list(fit_integer))
_POINTS = _Nested.many(
    **_BETWEEN,
    asInt=fit_integer,
    asDouble=_figure,
    count=fit_integer,
    sum=_figure,
    min=_figure,
    max=_figure,
    bucketCounts=_list(fit_integer),
    explicitBounds=_list(_figure),
    scale=fit_integer,
    zeroCount=fit_integer,
    zeroThreshold=_figure,
    positive=_BUCKETS,
    negative=_BUCKETS,
    quantileValues=_Nested.many(quantile=_figure, value=_figure),
)
_DATA = _Nested.one(dataPoints=_POINTS, aggregationTemporality=_code, isMonotonic=_flag)
_RECORDS = _Nested.many(
    **_WHERE,
    timeUnixNano=fit_integer,
    observedTimeUnixNano=fit_integer,
    severityNumber=_code,
    severityText=_kind,
    eventName=_kind,
    body=_body,
)
_SPANS = _Nested.many(
    **_WHERE,
    parentSpanId=_id,
    name=_sender_name,
    kind=_code,
    startTimeUnixNano=fit_integer,
    endTimeUnixNano=fit_integer,
    events=_Nested.many(**_BETWEEN, name=_sender_name, droppedAttributesCount=fit_integer),
    droppedEventsCount=fit_integer,
    links=_Nested.many(**_WHERE),
    droppedLinksCount=fit_integer,
    status=_Nested.one(code=_code, message=_kind),
)
_METRICS = _Nested.many(
    name=_sender_name,
    unit=_matching(_UNIT),
    sum=_DATA,
    gauge=_DATA,
    histogram=_DATA,
    exponentialHistogram=_DATA,
    summary=_DATA,
)
_RESOURCE = _Nested.one(attributes=fit_attributes, droppedAttributesCount=fit_integer)
_SCOPE = _Nested.one(
    name=_matching(_LIBRARY),
    version=_matching(_VERSION),
    attributes=fit_attributes,
    droppedAttributesCount=fit_integer,
)


_EXPORT = _Nested.one(
    resourceLogs=_Nested.by_scope("scopeLogs", "logRecords", _RECORDS),
    resourceSpans=_Nested.by_scope("scopeSpans", "spans", _SPANS),
    resourceMetrics=_Nested.by_scope("scopeMetrics", "metrics", _METRICS),
)
