"""Spans: what happened, in one trace with its client, its run and its siblings."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jackline.events import AttemptFailed, CallEnded
from jackline.lane_id import LaneId
from jackline.telemetry import spans as names
from jackline.telemetry.otlp_export import encode_spans
from jackline.telemetry.spans import SILENT, Span, SpanKind, Tracer, parent_of
from tests.telemetry.test_counters import ended

THEIRS = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def tracer() -> Tracer:
    return Tracer(lambda upstream: f"provider of {upstream}")


def call(**more: Any) -> CallEnded:
    return ended()._replace(call="c1", session="s1", agent="a1", tag="r1", **more)


def failed(at: float = 99.0) -> AttemptFailed:
    return AttemptFailed(
        at, "c1", LaneId("a", "m", "1"), "overloaded", None, 529, "req", 0.5, None, "busy"
    )


def test_flow_agent_call_and_attempts_hang_together() -> None:
    made = tracer()
    made.attempt_failed(failed())
    made.call_ended(call(attempts=2))
    spans = {span.name: span for span in made.take(0.0, all_of_them=True)}
    flow, agent = spans["flow"], spans["invoke_agent"]
    chat = spans["chat m"]
    assert (flow.parent, agent.parent, chat.parent) == ("", flow.span, agent.span)
    assert {span.trace for span in spans.values()} == {flow.trace}
    assert chat.kind is SpanKind.SERVER
    assert (chat.begins, chat.ends) == (98.0, 100.0)


def test_each_attempt_is_reported_with_its_failure_and_the_last_with_its_own_time() -> None:
    made = tracer()
    made.attempt_failed(failed())
    made.call_ended(call(attempts=2, waited=1.5))
    spans = made.take(0.0)
    chat = spans[0]
    broken, good = (span for span in spans if span.name == "attempt")
    assert broken.parent == good.parent == chat.span
    assert (broken.begins, broken.ends, broken.error) == (98.5, 99.0, "busy")
    assert broken.attributes[names.ERROR_TYPE] == "overloaded"
    assert (good.begins, good.ends, good.error) == (99.5, 100.0, "")


def test_a_clients_own_trace_is_joined() -> None:
    made = tracer()
    made.came_with("c1", THEIRS)
    made.call_ended(call())
    chat = made.take(0.0, all_of_them=True)[0]
    assert (chat.trace, chat.parent) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


@given(st.binary(max_size=80))
def test_what_is_no_traceparent_is_as_good_as_none(header: bytes) -> None:
    assert parent_of(header) is None


def test_a_traceparent_of_zeros_is_none() -> None:
    assert parent_of(b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01") is None
    assert parent_of(b"00-0af7651916cd43dd8448eb211c80319c-" + b"0" * 16 + b"-01") is None


def test_an_agent_is_reported_once_it_is_silent_and_calls_at_once() -> None:
    made = tracer()
    made.call_ended(call())
    assert {span.name for span in made.take(101.0)} == {"chat m", "attempt"}
    assert made.take(100.0 + SILENT - 1) == []
    made.call_ended(call(at=200.0))
    made.take(200.0)
    shown = {span.name: span for span in made.take(200.0 + SILENT)}
    assert shown.keys() == {"flow", "invoke_agent"}
    assert (shown["flow"].begins, shown["flow"].ends) == (98.0, 200.0)


def test_calls_of_one_session_share_a_trace_and_those_of_others_do_not() -> None:
    made = tracer()
    for session in ("s1", "s1", "s2"):
        made.call_ended(call()._replace(tag=None, session=session))
    chats = [span for span in made.take(0.0) if span.name == "chat m"]
    assert chats[0].trace == chats[1].trace != chats[2].trace


def test_tokens_are_reported_by_the_conventions() -> None:
    made = tracer()
    made.call_ended(call())
    shown = made.take(0.0)[0].attributes
    assert shown[names.INPUT_TOKENS] == 10 + 3 + 2
    assert shown[names.OUTPUT_TOKENS] == 5
    assert shown[names.PROVIDER] == "provider of a"
    assert shown[names.REQUEST_MODEL] == shown[names.RESPONSE_MODEL] == "m"


def test_ever_new_calls_do_not_grow_the_memory() -> None:
    made = tracer()
    for number in range(30_000):
        made.attempt_failed(replace(failed(), call=f"c{number}"))
        made.came_with(f"c{number}", THEIRS)
        made.call_ended(ended(number=number)._replace(call=f"d{number}"))
    assert made.dropped > 0
    assert len(made.take(0.0, all_of_them=True)) < 40_000
    assert len(made._parents) <= 20_000


def test_the_json_is_otlps_own_mapping() -> None:
    about: dict[str, str | int | float | bool] = {"text": "a", "count": 3, "share": 0.5, "is": True}
    span = Span(
        "ab" * 16, "cd" * 8, "", "x", SpanKind.CLIENT, 1794744000.25, 1794744001.5, about, "no"
    )
    shown = json.loads(encode_spans([span], "1.2.3"))
    (resource,) = shown["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    assert {"key": "service.name", "value": {"stringValue": "jackline"}} in resource["resource"][
        "attributes"
    ]
    assert scope["spans"] == [
        {
            "traceId": "ab" * 16,
            "spanId": "cd" * 8,
            "name": "x",
            "kind": 3,
            "startTimeUnixNano": "1794744000250000000",
            "endTimeUnixNano": "1794744001500000000",
            "attributes": [
                {"key": "text", "value": {"stringValue": "a"}},
                {"key": "count", "value": {"intValue": "3"}},
                {"key": "share", "value": {"doubleValue": 0.5}},
                {"key": "is", "value": {"boolValue": True}},
            ],
            "status": {"code": 2, "message": "no"},
        }
    ]


def test_a_traceparent_that_names_no_trace_is_not_saved() -> None:
    def kept(length: int) -> int:
        made = tracer()
        tracemalloc.start()
        try:
            for number in range(200):
                made.came_with(f"c{number}", b"x" * length)
                made.came_with(f"d{number}", b" " * length + THEIRS)
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert kept(40_000) < kept(10_000) + 100_000
