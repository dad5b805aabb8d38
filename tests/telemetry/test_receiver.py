"""Clients' own telemetry: what is received, what is refused, and that no prompt passes."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackline.assembly import Service
from jackline.outside_names import LONGEST_NAME
from jackline.telemetry.client_telemetry import (
    MOST_AGENTS,
    MOST_ROWS,
    MOST_VALUES,
    ClientEvent,
    ClientReports,
    ReadExport,
    read_export,
    telemetry_variables,
)
from jackline.telemetry.export_filter import fit_attributes
from jackline.telemetry.settings import OtlpSettings
from tests.assembly.world import Got, answered, ask, config_for, provider, question, request, run
from tests.notifications.webhooks import Receiver, receiver
from tests.telemetry.collector import attributes, exports, log_records, spans

SECRET = "PL4NTED"  # noqa: S105 -- words of a user, not a secret
JSON = (b"content-type", b"application/json")
LOGS = b"/_jackline/otlp/v1/logs"


def attribute(name: str, value: object) -> dict[str, object]:
    kind = {bool: "boolValue", int: "intValue", float: "doubleValue"}.get(type(value))
    return {"key": name, "value": {kind or "stringValue": value}}


def tool_result(**more: object) -> dict[str, Any]:
    """As 2.1.325 sends it, with what it adds when a user lets it log details."""
    about = {
        "session.id": "s1",
        "agent_id": "a1",
        "event.name": "tool_result",
        "tool_name": "Bash",
        "tool_use_id": "toolu_1",
        "success": "false",
        "error_type": "ShellError",
        "duration_ms": "250",
        "tool_input": f'{{"command": "cat {SECRET}"}}',
        "tool_parameters": SECRET,
        "user.email": f"{SECRET}@example.com",
        **more,
    }
    return {
        "timeUnixNano": "1794764900301000000",
        "body": {"stringValue": "claude_code.tool_result"},
        "attributes": [attribute(name, value) for name, value in about.items()],
    }


def logs(*records: dict[str, Any]) -> bytes:
    scope = {"scope": {"name": "events"}, "logRecords": list(records)}
    return json.dumps({"resourceLogs": [{"resource": {}, "scopeLogs": [scope]}]}).encode()


def otlp(kept: Receiver | None = None, *, prompts: bool = False) -> OtlpSettings:
    endpoint = None if kept is None else kept.url.removesuffix("/hook")
    return OtlpSettings(endpoint, receive=True, prompts=prompts)


def read(body: bytes) -> ReadExport:
    """The export, read in one go."""
    steps = read_export(body, lambda _session, _agent: ("t", "s"))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast("ReadExport", end.value)


async def post(service: Service, body: bytes, *headers: tuple[bytes, bytes]) -> Got:
    return await ask(service.url, request(b"POST", LOGS, body, *(headers or (JSON,))))


def play(folder: Path, settings: OtlpSettings, body: bytes, *headers: tuple[bytes, bytes]) -> Got:
    async def main() -> Got:
        async with Service(replace(config_for(folder, "http://127.0.0.1:9"), otlp=settings)) as one:
            return await post(one, body, *headers)

    return run(main())


@pytest.mark.parametrize(
    ("settings", "body", "headers", "status", "words"),
    [
        (OtlpSettings(), logs(), [JSON], 403, "[otlp] receive = true"),
        (otlp(), b"\x0a", [(b"content-type", b"application/x-protobuf")], 415, "http/json"),
        (otlp(), b"{", [JSON], 400, "no JSON"),
        (otlp(), b"[]", [JSON], 400, "no JSON object"),
        (otlp(), logs(), [JSON, (b"content-encoding", b"gzip")], 400, "no gzip data"),
        (otlp(), logs(), [JSON, (b"content-encoding", b"br")], 400, "not known here"),
        (otlp(), logs(), [JSON, (b"origin", b"https://evil.example")], 403, "other sites"),
    ],
)
def test_what_is_not_received_is_refused_with_what_to_do(
    tmp_path: Path,
    settings: OtlpSettings,
    body: bytes,
    headers: list[tuple[bytes, bytes]],
    status: int,
    words: str,
) -> None:
    got = play(tmp_path, settings, body, *headers)
    assert got.status == status
    assert words in got.body.decode()


def test_what_is_too_large_when_unpacked_is_refused(tmp_path: Path) -> None:
    bomb = gzip.compress(b" " * (8 << 20))
    got = play(tmp_path, otlp(), bomb, JSON, (b"content-encoding", b"gzip"))
    assert (got.status, "too large" in got.body.decode()) == (400, True)


def test_packed_exports_are_read(tmp_path: Path) -> None:
    packed = gzip.compress(logs(tool_result()))
    assert play(tmp_path, otlp(), packed, JSON, (b"content-encoding", b"gzip")).status == 200


def joined(folder: Path, kept: Receiver, *, prompts: bool = False) -> dict[str, Any]:
    """One call of an agent, then its client's report of a tool; what the page shows of it."""

    async def main() -> dict[str, Any]:
        async with provider(answered()) as (_, url):
            config = replace(config_for(folder, url), otlp=otlp(kept, prompts=prompts))
            async with Service(config) as service:
                who = ((b"x-claude-code-session-id", b"s1"), (b"x-claude-code-agent-id", b"a1"))
                asked = request(b"POST", b"/t/run-1/v1/messages", question(), *who)
                assert (await ask(service.url, asked)).status == 200
                assert (await post(service, logs(tool_result()))).status == 200
                page = b"/_jackline/agent?session=s1&agent=a1"
                got = await ask(service.url, request(b"GET", page))
                shown: dict[str, Any] = json.loads(got.body)["client"]
                return shown

    return run(main())


def test_the_page_of_an_agent_has_its_clients_report_and_the_tool_a_span_in_its_runs_trace(
    tmp_path: Path,
) -> None:
    with receiver() as kept:
        shown = joined(tmp_path, kept)
    assert shown["tools"] == {"Bash": {"ok": 0, "failed": 1, "seconds": 0.25}}
    found = {span["name"]: span for span in spans(kept)}
    agent, tool = found["invoke_agent"], found["execute_tool Bash"]
    assert (tool["traceId"], tool["parentSpanId"]) == (agent["traceId"], agent["spanId"])
    assert tool["traceId"] == found["flow"]["traceId"]
    assert attributes(tool)["error.type"] == "ShellError"
    (record,) = log_records(kept)
    assert (record["traceId"], record["spanId"]) == (agent["traceId"], agent["spanId"])
    assert SECRET.encode() not in b"".join(body for _, body in kept.got)


def test_texts_are_sent_on_when_the_user_asks_for_it(tmp_path: Path) -> None:
    with receiver() as kept:
        joined(tmp_path, kept, prompts=True)
    assert SECRET.encode() in json.dumps(exports(kept, "resourceLogs")).encode()
    assert SECRET.encode() not in json.dumps(exports(kept, "resourceSpans")).encode()


def test_a_client_with_spans_of_its_own_reports_its_tools_itself(tmp_path: Path) -> None:
    record = tool_result() | {"traceId": "c4e8c77ab839810cb37fb15461ad19d2"}
    with receiver() as kept:
        assert play(tmp_path, otlp(kept), logs(record)).status == 200
    assert spans(kept) == []
    assert log_records(kept)[0]["traceId"] == "c4e8c77ab839810cb37fb15461ad19d2"


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
)


NAMES = st.sampled_from(["session.id", "event.name", "agent_id", "cost_usd", "tool_name", "x"])
KINDS = st.sampled_from(["stringValue", "intValue", "boolValue", "doubleValue", "arrayValue"])
ATTRIBUTE = st.fixed_dictionaries({"key": NAMES, "value": st.dictionaries(KINDS, JSON_VALUES)})
ITEM = st.fixed_dictionaries(
    {"attributes": st.lists(ATTRIBUTE | JSON_VALUES, max_size=4)},
    optional=dict.fromkeys(
        ("timeUnixNano", "body", "name", "status", "events", "links", "sum", "traceId"), JSON_VALUES
    ),
)


@given(st.lists(ITEM | JSON_VALUES, max_size=4) | JSON_VALUES, JSON_VALUES)
def test_whatever_is_sent_is_read_or_passed_over(items: object, resource: object) -> None:
    groups = {
        "resourceLogs": ("scopeLogs", "logRecords"),
        "resourceSpans": ("scopeSpans", "spans"),
        "resourceMetrics": ("scopeMetrics", "metrics"),
    }
    shown = {
        group: [{"resource": resource, scope: [{name: items}]}, resource]
        for group, (scope, name) in groups.items()
    }
    body = json.dumps(shown).encode()
    book = ClientReports()
    export = read(body)
    for event in export.events:
        book.add(event)
    json.dumps([each.to_json() for each in book.of_session("").values()])
    json.dumps(export.document)


@given(st.text(max_size=30))
def test_texts_under_names_that_are_not_known_do_not_pass(name: str) -> None:
    about = [attribute(f"x.{name}", SECRET)]
    span = {
        "name": "claude_code.tool",
        "attributes": about,
        "events": [{"name": SECRET, "attributes": about}],
        "links": [{"attributes": about}],
        "status": {"code": 2, "message": f"it said {SECRET}"},
    }
    metric = {"name": "claude_code.x", "sum": {"dataPoints": [{"attributes": about}]}}
    record = {"body": {"stringValue": SECRET}, "attributes": about}
    shown = {
        "resourceLogs": [
            {"resource": {"attributes": about}, "scopeLogs": [{"logRecords": [record]}]}
        ],
        "resourceSpans": [{"scopeSpans": [{"spans": [span]}]}],
        "resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}],
    }
    assert SECRET not in passed_on(shown)


@pytest.mark.parametrize("figure", ["Infinity", "NaN", "-1e400", "1e400", "many", None])
def test_figures_that_are_none_count_as_nothing(figure: object) -> None:
    record = tool_result(**{"event.name": "api_request"})
    record["attributes"].append({"key": "input_tokens", "value": {"doubleValue": figure}})
    record["attributes"].append({"key": "output_tokens", "value": {"intValue": "7"}})
    book = ClientReports()
    for event in read(logs(record)).events:
        book.add(event)
    shown = book.of_agent("s1", "a1")
    assert shown is not None
    assert shown.tokens == 7


def test_what_is_saved_of_clients_is_bounded() -> None:
    book = ClientReports()
    for number in range(MOST_AGENTS + 5):
        book.add(ClientEvent(0.0, "api_request", f"s{number}", "", {}, traced=False))
    for number in range(200):
        about: dict[str, str | float | bool] = {"tool_name": f"t{number}", "success": True}
        book.add(ClientEvent(0.0, "tool_result", "s9", "", about, traced=False))
    assert len(book.of_session("")) == MOST_AGENTS
    shown = book.of_agent("s9", "")
    assert shown is not None
    assert len(shown.tools) == 65
    assert shown.tools["other-tools"].ok == 136


def test_who_has_telemetry_already_keeps_it_whole() -> None:
    url = "http://127.0.0.1:8766"
    assert telemetry_variables(url, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://mine"}) == {}
    assert telemetry_variables(url, {"CLAUDE_CODE_ENABLE_TELEMETRY": "1"}) == {}
    chosen = telemetry_variables(url, {}, "a b")
    assert chosen["OTEL_EXPORTER_OTLP_ENDPOINT"] == f"{url}/_jackline/otlp"
    assert chosen["OTEL_EXPORTER_OTLP_HEADERS"] == "x-jackline-token=a%20b"
    assert not any("PROMPT" in name or "DETAIL" in name for name in chosen)


HUGE = "9" * 400


@pytest.mark.parametrize(
    "number", [HUGE, f"-{HUGE}", "1e308", "-5", "1e400", "true"], ids=lambda each: each[:6]
)
@pytest.mark.parametrize("passed_on", [False, True], ids=["kept", "passed on"])
def test_any_number_is_received_or_refused(tmp_path: Path, number: str, passed_on: bool) -> None:
    body = logs(
        tool_result(),
        tool_result(**{"event.name": "api_request", "input_tokens": 77, "cost_usd": 77.0}),
    )
    odd = body.replace(b'"1794764900301000000"', number.encode()).replace(b"77.0", number.encode())
    odd = odd.replace(b"77", number.encode()).replace(b'"250"', f'"{number}"'.encode())

    async def main() -> None:
        with receiver() as kept:
            settings = otlp(kept if passed_on else None)
            config = replace(config_for(tmp_path, "http://127.0.0.1:9"), otlp=settings)
            async with Service(config) as service:
                assert (await post(service, odd)).status in (200, 400)
                assert (await post(service, body)).status == 200
                got = await ask(service.url, request(b"GET", b"/_jackline/clients"))
                assert got.status == 200
                (agent,) = got.json["agents"]
                shown = agent["reported"]
                assert 0 <= shown["tokens"] <= 10**13
                assert 0 <= shown["dollars"] <= 10**13
                assert 0 <= shown["last"] <= 2**33
                assert all(0 <= each["seconds"] <= 10**13 for each in shown["tools"].values())

    run(main())


LONG = f"{SECRET} " + "w" * 300
KINDS_OF_NUMBERS = {"intValue": 1, "doubleValue": 1.5, "boolValue": True}
WORDS: list[object] = [
    *({kind: figure, "stringValue": LONG} for kind, figure in KINDS_OF_NUMBERS.items()),
    *({kind: figure, "bytesValue": SECRET} for kind, figure in KINDS_OF_NUMBERS.items()),
    *({kind: LONG} for kind in KINDS_OF_NUMBERS),
    *({kind: [LONG]} for kind in KINDS_OF_NUMBERS),
    {"intValue": None, "stringValue": LONG},
    {"intValue": 1, "arrayValue": {"values": [{"stringValue": SECRET}]}},
    {"intValue": 1, "kvlistValue": {"values": [{"key": SECRET, "value": {"intValue": 1}}]}},
    {"arrayValue": {"values": [{"intValue": 1, "stringValue": SECRET}]}},
    {"kvlistValue": {"values": [{"key": SECRET, "value": {"intValue": 1}}]}},
    {"bytesValue": SECRET},
    {"intValue": 1, SECRET: 1},
]


def with_attributes(about: list[object]) -> dict[str, Any]:
    """An export of each signal, with these attributes wherever there may be some."""
    span = {
        "name": "claude_code.tool",
        "attributes": about,
        "events": [{"name": "claude_code.x", "attributes": about}],
        "links": [{"attributes": about}],
    }
    point = {"asInt": "1", "attributes": about, "exemplars": [{"filteredAttributes": about}]}
    metrics = [
        {"name": "claude_code.x", "metadata": about, kind: {"dataPoints": [point]}}
        for kind in ("sum", "gauge", "histogram", "exponentialHistogram", "summary")
    ]
    groups: dict[str, dict[str, Any]] = {
        "Logs": {"logRecords": [{"attributes": about}]},
        "Spans": {"spans": [span]},
        "Metrics": {"metrics": metrics},
    }
    return {
        f"resource{name}": [
            {
                "resource": {"attributes": about, "entityRefs": about},
                f"scope{name}": [{"scope": {"name": "events", "attributes": about}} | items],
            }
        ]
        for name, items in groups.items()
    }


def passed_on(shown: dict[str, Any]) -> str:
    return json.dumps(read(json.dumps(shown).encode()).document)


@pytest.mark.parametrize("value", WORDS, ids=lambda value: json.dumps(value)[:50])
@pytest.mark.parametrize("key", ["session.id", "tool_name", "x"])
def test_texts_beside_or_in_the_place_of_a_number_do_not_pass(key: str, value: object) -> None:
    shown = with_attributes([{"key": key, "value": value, "more": SECRET}])
    assert SECRET not in passed_on(shown)


def test_texts_do_not_pass_as_the_key_of_a_number() -> None:
    for key in (SECRET + " and more words", SECRET + "w" * 500):
        assert SECRET not in passed_on(with_attributes([attribute(key, 1)]))


def test_what_holds_no_texts_passes_as_it_came() -> None:
    about = [attribute("session.id", "s1"), attribute("x.tokens", 5), attribute("cost_usd", 0.5)]
    about += [
        attribute("ok", True),
        attribute("count", "12"),
        {"key": "n", "value": {"intValue": "7"}},
    ]
    span = {
        "traceId": "c4e8c77ab839810cb37fb15461ad19d2",
        "spanId": "c4e8c77ab839810c",
        "parentSpanId": "",
        "name": "claude_code.tool",
        "kind": 1,
        "startTimeUnixNano": "1794764900301000000",
        "endTimeUnixNano": "1794764900301000001",
        "attributes": about,
        "events": [{"timeUnixNano": "1", "name": "gen_ai.choice", "attributes": about}],
        "links": [{"traceId": "c4e8c77ab839810cb37fb15461ad19d2", "attributes": about}],
        "status": {"code": 2, "message": "timeout"},
    }
    point = {
        "attributes": about,
        "startTimeUnixNano": "1",
        "timeUnixNano": "2",
        "count": "3",
        "sum": 1.5,
        "min": 0.5,
        "max": 1.0,
        "bucketCounts": ["1", "2"],
        "explicitBounds": [0.5],
    }
    scope = {"name": "com.anthropic.claude_code.events", "version": "2.1.325"}
    metrics = [
        {"name": "claude_code.a", "unit": "USD", "sum": {
            "dataPoints": [{"attributes": about, "asDouble": 0.25}],
            "aggregationTemporality": 1,
            "isMonotonic": True,
        }},
        {"name": "claude_code.b", "unit": "{token}", "histogram": {"dataPoints": [point]}},
    ]  # fmt: skip
    record = {
        "timeUnixNano": "1794764900301000000",
        "observedTimeUnixNano": "1794764900301000000",
        "severityNumber": 9,
        "severityText": "INFO",
        "body": {"stringValue": "claude_code.tool_result"},
        "attributes": about,
        "traceId": "c4e8c77ab839810cb37fb15461ad19d2",
        "spanId": "c4e8c77ab839810c",
    }
    resource = {"attributes": [attribute("service.name", "claude-code")]}
    shown = {
        "resourceLogs": [
            {"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": [record]}]}
        ],
        "resourceSpans": [
            {"resource": resource, "scopeSpans": [{"scope": scope, "spans": [span]}]}
        ],
        "resourceMetrics": [
            {"resource": resource, "scopeMetrics": [{"scope": scope, "metrics": metrics}]}
        ],
    }
    assert json.loads(passed_on(shown)) == shown


PLACES: list[tuple[str, object]] = [
    ("name", f"claude_code.{SECRET} and more"),
    ("name", f"gen_ai.{SECRET}{'w' * 100}"),
    ("body", {"stringValue": "claude_code.x", "bytesValue": SECRET}),
    ("body", {"arrayValue": {"values": [{"stringValue": SECRET}]}}),
    ("eventName", f"{SECRET} and more"),
    ("severityText", f"{SECRET} and more"),
    ("traceState", SECRET),
    ("traceId", f"{SECRET} "),
    ("spanId", f"{SECRET} "),
    ("timeUnixNano", SECRET),
    ("status", {"code": SECRET + " ", "message": f"{SECRET} and more", "more": SECRET}),
    ("kind", f"{SECRET} and more"),
    ("description", SECRET),
    ("unit", f"{SECRET} and more"),
    ("sum", {"dataPoints": [{"asInt": SECRET, "more": SECRET}], "more": SECRET}),
    ("histogram", {"dataPoints": [{"bucketCounts": ["1", SECRET], "explicitBounds": [SECRET]}]}),
    ("exponentialHistogram", {"dataPoints": [{"positive": {"offset": SECRET}}]}),
    ("events", [{"name": f"claude_code.{SECRET} and more", "more": SECRET}]),
    ("links", [{"traceState": SECRET, "traceId": f"{SECRET} ", "more": SECRET}]),
    ("unheard-of", SECRET),
]


@pytest.mark.parametrize(("field", "value"), PLACES, ids=lambda each: str(each)[:30])
def test_texts_do_not_pass_in_any_field_of_an_item(field: str, value: object) -> None:
    shown = with_attributes([])
    for name, items in (("Logs", "logRecords"), ("Spans", "spans"), ("Metrics", "metrics")):
        for item in shown[f"resource{name}"][0][f"scope{name}"][0][items]:
            item[field] = value
    assert SECRET not in passed_on(shown)


def test_texts_do_not_pass_around_the_items() -> None:
    shown = with_attributes([]) | {SECRET: SECRET}
    for name in ("Logs", "Spans", "Metrics"):
        group = shown[f"resource{name}"][0]
        group |= {"schemaUrl": SECRET, "more": SECRET}
        group["resource"]["more"] = SECRET
        scope = group[f"scope{name}"][0]
        scope |= {"schemaUrl": SECRET, "more": SECRET}
        scope["scope"] = {"name": f"{SECRET} and", "version": f"{SECRET} and", "more": SECRET}
    assert SECRET not in passed_on(shown)


@pytest.mark.parametrize("key", ["session.id", "agent_id", "agent.name", "tool_name", "agent_type"])
@pytest.mark.parametrize("kind", KINDS_OF_NUMBERS)
def test_what_is_shown_beside_a_number_is_not_saved(key: str, kind: str) -> None:
    record = tool_result()
    odd = {"key": key, "value": {kind: KINDS_OF_NUMBERS[kind], "stringValue": LONG}}
    record["attributes"].append(odd)
    book = ClientReports()
    for event in read(logs(record)).events:
        book.add(event)
    kept = [[*key, each.to_json()] for key, each in book.of_session("").items()]
    assert SECRET not in json.dumps(kept)


def test_names_are_cut_before_they_are_saved() -> None:
    """The reports are bounded by the number of names: each must have a bound of its own."""
    book = ClientReports()
    long = "n" * 100_000
    about: dict[str, str | float | bool] = {"agent.name": long, "tool_name": long + "\x1b"}
    for _ in range(2):
        book.add(ClientEvent(0.0, "tool_result", long, long, about, traced=False))
    ((key, shown),) = book.of_session("").items()
    assert book.of_agent(long, long) is shown
    names = (*key, shown.name, *shown.tools)
    assert len(names) == 4
    assert all(len(each) <= LONGEST_NAME and each.isprintable() for each in names)


@pytest.mark.parametrize("unit", ["{},", "0,", "[[[[[[]]]]]],", '{"a":{"a":{}}},'])
def test_an_export_of_more_values_than_a_client_sends_is_not_decoded(unit: str) -> None:
    """Lists within lists have few commas; each is an object nevertheless."""
    many = unit * (MOST_VALUES // max(1, sum(map(unit.count, ",[{"))) + 1)
    body = f'{{"resourceLogs":[{many}0]}}'.encode()
    assert len(body) <= 4 << 20
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="values"):
            read(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        ("claude-opus-4-8[1m]", True),
        ("us.anthropic.claude-opus-4-8-v1:0", True),
        ("arn:aws:bedrock:eu-1:1:inference-profile/claude-opus-4@20260301", True),
        ("mcp__docs__search", True),
        ("agent:builtin:general-purpose", True),
        ("2026-03-01T12:00:00.000+01:00", True),
        ("", True),
        ("x" * 200, True),
        ("x" * 201, False),
        ("name\nlevel=error forged line", False),
        ("name\n", False),
        ("name\x1b[31m", False),
        ("please read my diary", False),
        ("caf\u202eexe", False),
        ('{"file":1}', False),
    ],
)
def test_a_name_has_the_characters_of_names_alone(value: str, passes: bool) -> None:
    told = [attribute("tool_name", value)]
    assert fit_attributes(told) == (told if passes else [])


def test_a_document_of_clients_lists_the_latest_within_a_bound(tmp_path: Path) -> None:
    """Anybody may request it: with 5,000 agents of 64 tools it took seconds and 31 MB."""
    tools = [
        [tool_result(tool_name=f"tool-{n}", agent_id=str(agent)) for n in range(64)]
        for agent in range(40)
    ]

    async def main() -> None:
        config = replace(config_for(tmp_path, "http://127.0.0.1:9"), otlp=otlp())
        async with Service(config) as service:
            for each in tools:
                assert (await post(service, logs(*each))).status == 200
            got = await ask(service.url, request(b"GET", b"/_jackline/clients"))
            shown = [each["agent"] for each in got.json["agents"]]
            assert shown == [str(agent) for agent in range(40)][-len(shown) :]
            assert len(shown) == MOST_ROWS // 65
            assert got.json["left_out"] == 40 - len(shown)

    run(main())
