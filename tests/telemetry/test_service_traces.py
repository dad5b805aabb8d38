"""Spans of a whole service, as a collector on a loopback port gets them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from jackline.assembly import Service
from jackline.gateway.call_intake import TracedIntake
from jackline.telemetry.settings import OtlpSettings
from tests.assembly.world import (
    answered,
    ask,
    config_for,
    gateway,
    provider,
    question,
    request,
    run,
)
from tests.notifications.webhooks import Receiver, receiver
from tests.planted import ANSWER, KEY, PROMPT

THEIRS = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def collected(kept: Receiver) -> list[dict[str, Any]]:
    return [
        span
        for _, body in kept.got
        for resource in json.loads(body)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


async def one_call(folder: Path, collector: str, *headers: tuple[bytes, bytes]) -> None:
    otlp = OtlpSettings(collector.removesuffix("/hook"), "Bearer a-secret-of-theirs")
    async with provider(answered()) as (scripted, url):
        async with Service(replace(config_for(folder, url), otlp=otlp)) as service:
            got = await ask(service.url, request(b"POST", b"/v1/messages", question(), *headers))
            assert got.status == 200
        assert scripted.asked[0].header(b"traceparent") == dict(headers).get(b"traceparent")


def test_calls_are_sent_to_the_collector_within_the_clients_trace_and_without_texts(
    tmp_path: Path,
) -> None:
    with receiver() as kept:
        run(one_call(tmp_path, kept.url, (b"traceparent", THEIRS)))
    spans = collected(kept)
    chat = next(span for span in spans if span["name"] == "chat claude-opus-4-8")
    assert chat["traceId"] == "0af7651916cd43dd8448eb211c80319c"
    assert chat["parentSpanId"] == "b7ad6b7169203331"
    attempt = next(span for span in spans if span["name"] == "attempt")
    assert attempt["parentSpanId"] == chat["spanId"]
    headers, body = kept.got[0]
    assert headers["authorization"] == "Bearer a-secret-of-theirs"
    assert headers["content-type"] == "application/json"
    for secret in (PROMPT, ANSWER, KEY):
        assert secret.encode() not in body


def test_a_session_is_a_trace_of_its_own_where_the_client_has_none(tmp_path: Path) -> None:
    with receiver() as kept:
        run(one_call(tmp_path, kept.url, (b"x-claude-code-session-id", b"s1")))
    spans = {span["name"]: span for span in collected(kept)}
    agent = spans["invoke_agent"]
    assert spans["chat claude-opus-4-8"]["parentSpanId"] == agent["spanId"]
    assert "parentSpanId" not in agent


def test_a_collector_that_is_away_harms_no_call(tmp_path: Path) -> None:
    run(one_call(tmp_path, "http://127.0.0.1:9"))


def test_without_an_endpoint_the_plain_call_intake_is_used(tmp_path: Path) -> None:
    async def main() -> None:
        async with provider(answered()) as (_, url), gateway(tmp_path, url) as service:
            assert not isinstance(service.desk, TracedIntake)

    run(main())
