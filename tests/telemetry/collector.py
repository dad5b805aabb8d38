"""What a collector on a loopback port was sent, read again."""

from __future__ import annotations

import json
from typing import Any

from tests.notifications.webhooks import Receiver


def exports(kept: Receiver, group: str) -> list[dict[str, Any]]:
    """All documents that hold this group, such as `resourceSpans`."""
    return [shown for _, body in kept.got if group in (shown := json.loads(body))]


def spans(kept: Receiver) -> list[dict[str, Any]]:
    return [
        span
        for shown in exports(kept, "resourceSpans")
        for resource in shown["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def log_records(kept: Receiver) -> list[dict[str, Any]]:
    return [
        record
        for shown in exports(kept, "resourceLogs")
        for resource in shown["resourceLogs"]
        for scope in resource["scopeLogs"]
        for record in scope["logRecords"]
    ]


def attributes(item: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in item["attributes"]}
