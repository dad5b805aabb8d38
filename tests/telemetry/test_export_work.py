"""An export of any kind is read in short turns of the event loop: work is counted, not timed."""

from __future__ import annotations

import asyncio
import json
import sys
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from jackline.clock import VirtualClock
from jackline.control.http_handler import ServiceRequest
from jackline.control.observatory import Observatory
from jackline.telemetry.client_telemetry import ClientReports, OtlpReceiver
from jackline.telemetry.otlp_export import Forwarder, Tracing
from jackline.telemetry.settings import OtlpSettings

# Calls of functions, and objects made, between two turns of the loop: a tenth of what these
# exports took at once.
MOST_CALLS = 30_000
MOST_OBJECTS = 50_000


@dataclass
class Sent:
    """A request that remembers its answer."""

    path: bytes
    body: bytes
    headers: dict[bytes, bytes]
    method: bytes = b"POST"
    gone: bool = False
    status: int = 0
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def header(self, name: bytes) -> bytes | None:
        return self.headers.get(name)

    def respond(self, status: int, _headers: object, _body: bytes) -> None:
        self.status = status
        self.answered.set()


def attributes(number: int) -> list[dict[str, Any]]:
    names = {"session.id": "s1", "agent_id": "a1", "event.name": "tool_result", "tool_name": "Bash"}
    about = [{"key": name, "value": {"stringValue": value}} for name, value in names.items()]
    return about + [{"key": f"x{each}", "value": {"intValue": 1}} for each in range(number - 4)]


def export(signal: str, items: str, rows: list[Any]) -> dict[str, Any]:
    return {f"resource{signal}": [{f"scope{signal}": [{items: rows}]}]}


def metric(points: list[Any]) -> dict[str, Any]:
    return {"name": "claude_code.x", "sum": {"dataPoints": points}}


MANY = 1_500
POINTS: list[Any] = [{"asInt": "1", "attributes": attributes(25)}] * MANY
EXPORTS = {
    "records": ("logs", export("Logs", "logRecords", [{"attributes": attributes(25)}] * MANY)),
    "attributes of one record": (
        "logs",
        export("Logs", "logRecords", [{"attributes": attributes(45_000)}]),
    ),
    "short records": (
        "logs",
        export("Logs", "logRecords", [{"attributes": attributes(4)}] * 9_000),
    ),
    "groups": ("logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [{}]}]}] * 20_000}),
    "spans": ("traces", export("Spans", "spans", [{"attributes": attributes(25)}] * MANY)),
    "events of one span": (
        "traces",
        export("Spans", "spans", [{"events": [{"attributes": attributes(25)}] * MANY}]),
    ),
    "metrics": ("metrics", export("Metrics", "metrics", [metric([each]) for each in POINTS])),
    "points of one metric": ("metrics", export("Metrics", "metrics", [metric(POINTS)])),
    "buckets of one point": (
        "metrics",
        export("Metrics", "metrics", [metric([{"bucketCounts": ["1"] * 180_000}])]),
    ),
}


def most_work(sent: Sent, settings: OtlpSettings) -> tuple[int, int, int]:
    """The most calls and new objects in one turn of the loop, and how often a tool was reported."""
    calls = 0
    clock = VirtualClock(datetime(2026, 11, 15, tzinfo=UTC))
    tracing = Tracing(settings, list, Observatory(clock), clock)

    def count(*_event: object) -> None:
        nonlocal calls
        calls += 1

    async def main() -> tuple[int, int]:
        nonlocal calls
        receiver = OtlpReceiver(
            ClientReports(),
            lambda: settings,
            lambda _session, _agent: None,
            tracing,
            Forwarder(settings, clock),
        )
        turns: list[tuple[int, int]] = []
        objects = sys.getallocatedblocks()
        sys.setprofile(count)
        try:
            receiver.answer(cast("ServiceRequest", sent))
            while True:
                turns.append((calls, sys.getallocatedblocks() - objects))
                if sent.answered.is_set():
                    break
                calls, objects = 0, sys.getallocatedblocks()
                await asyncio.sleep(0)
        finally:
            sys.setprofile(None)
        return max(each for each, _ in turns), max(each for _, each in turns)

    most = asyncio.run(main())
    return *most, len(tracing.take())


@pytest.mark.parametrize("prompts", [False, True], ids=["redacted", "whole"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", EXPORTS)
def test_no_export_holds_the_loop_up(kind: str, packed: bool, prompts: bool) -> None:
    signal, document = EXPORTS[kind]
    body = json.dumps(document, separators=(",", ":")).encode()
    headers = {b"content-type": b"application/json"}
    if packed:
        # Compressed little: more than a hundredfold is refused as a bomb.
        packer = zlib.compressobj(wbits=31, strategy=zlib.Z_HUFFMAN_ONLY)
        body, headers[b"content-encoding"] = packer.compress(body) + packer.flush(), b"gzip"
    sent = Sent(f"/_jackline/otlp/v1/{signal}".encode(), body, headers)
    calls, objects, tools = most_work(sent, OtlpSettings("http://x", receive=True, prompts=prompts))
    assert sent.status == 200
    assert calls < MOST_CALLS
    assert objects < MOST_OBJECTS
    assert tools == {"records": MANY, "short records": 9_000}.get(kind, 0)


def test_waiting_exports_are_bounded_and_dropped_with_their_client() -> None:
    async def main() -> list[int]:
        settings = OtlpSettings(receive=True)
        receiver = OtlpReceiver(
            ClientReports(), lambda: settings, lambda _session, _agent: None, None, None
        )
        headers = {b"content-type": b"application/json"}
        many = [Sent(b"/_jackline/otlp/v1/logs", b"{}", headers) for _ in range(70)]
        many[1].gone = True
        for each in many:
            receiver.answer(cast("ServiceRequest", each))
        for number in (*range(2, 70), 0):
            await many[number].answered.wait()
        return [each.status for each in many]

    statuses = asyncio.run(main())
    assert statuses == [200, 0, *[200] * 62, *[503] * 6]
