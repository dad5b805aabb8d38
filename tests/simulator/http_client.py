"""Ask a simulated provider: over a socket as clients do, and in virtual time.

Not here: what is asserted (the tests).
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from jackline.simulator.exchange import ProviderEvent, SimRequest
from jackline.simulator.provider import ProviderModel

PATIENCE = 60.0  # only a test that fails ever waits so long


class HasPort(Protocol):
    @property
    def port(self) -> int: ...


@dataclass(frozen=True)
class Got:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self.body.decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


def document(prompt: str = "hello", **more: Any) -> dict[str, Any]:
    reminder = "<system-reminder>today</system-reminder>"
    content = [{"type": "text", "text": reminder}, {"type": "text", "text": prompt}]
    messages = [{"role": "user", "content": content}]
    return {"model": "claude-sonnet-4-6", "messages": messages, **more}


def ask(
    server: HasPort,
    prompt: str = "hello",
    *,
    path: str = "/v1/messages",
    headers: dict[str, str] | None = None,
    timeout: float = PATIENCE,
    **body: Any,
) -> Got:
    return send(server, "POST", path, document(prompt, **body), headers, timeout)


def send(
    server: HasPort,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
    timeout: float = PATIENCE,
) -> Got:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    with closing(connection):
        raw = None if body is None else json.dumps(body)
        connection.request(method, path, raw, headers or {})
        answer = connection.getresponse()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return Got(answer.status, fields, answer.read())


def play(
    provider: ProviderModel, arrivals: Iterable[tuple[float, SimRequest]], until: float = 1e7
) -> list[ProviderEvent]:
    """Everything that comes out when these requests arrive, in virtual time."""
    events: list[ProviderEvent] = []
    for at, request in arrivals:
        while (due := provider.next_at()) is not None and due <= at:
            events += provider.advance(due)
        provider.arrive(at, request)
    while (due := provider.next_at()) is not None and due <= until:
        events += provider.advance(due)
    return events


def kinds(events: Sequence[ProviderEvent]) -> list[str]:
    return [type(event).__name__ for event in events]
