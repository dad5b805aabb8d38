"""Write spans as OTLP's JSON, which every collector takes at /v1/traces.

Laws: (1) pure; (2) by the mapping that OTLP prescribes: ids in hexadecimal, 64-bit numbers as
strings, enumerations as numbers.
Not here: what spans are made of (spans.py), sending (otlp_sending.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from jackline.telemetry import span_names as names
from jackline.telemetry.spans import Attribute, Span

_ERROR = 2


def encoded(spans: Iterable[Span], version: str) -> bytes:
    """The body of one export."""
    service = {names.SERVICE_NAME: "jackline", names.SERVICE_VERSION: version}
    scope = {"name": "jackline", "version": version}
    told = [_span(span) for span in spans]
    return msgspec.json.encode(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes(service)},
                    "scopeSpans": [{"scope": scope, "spans": told}],
                }
            ]
        }
    )


def _span(span: Span) -> dict[str, object]:
    told: dict[str, object] = {
        "traceId": span.trace,
        "spanId": span.span,
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": _nanoseconds(span.begins),
        "endTimeUnixNano": _nanoseconds(max(span.begins, span.ends)),
        "attributes": _attributes(span.attributes),
    }
    if span.parent:
        told["parentSpanId"] = span.parent
    if span.error:
        told["status"] = {"code": _ERROR, "message": span.error}
    return told


def _attributes(attributes: Mapping[str, Attribute]) -> list[dict[str, object]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Attribute) -> dict[str, object]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def _nanoseconds(moment: float) -> str:
    # Not through one multiplication: a float has no room for today's nanoseconds.
    whole = int(moment)
    return str(whole * 1_000_000_000 + round((moment - whole) * 1_000_000_000))
