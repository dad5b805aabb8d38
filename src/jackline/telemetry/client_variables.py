"""The variables by which Claude Code sends its own telemetry to the gateway's port.

Laws: (1) who has set up telemetry already keeps it whole; (2) no variable asks for prompts, answers
or what tools were given.
Not here: what becomes of it (otlp_receiving.py), other variables (agents/claude_code/).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from jackline.telemetry.otlp_receiving import PREFIX

_SWITCH = "CLAUDE_CODE_ENABLE_TELEMETRY"
_THEIRS = "OTEL_"
_TOKEN_HEADER = "x-jackline-token"  # noqa: S105 -- the header's name


def telemetry_variables(
    base_url: str, environ: Mapping[str, str], token: str | None = None
) -> dict[str, str]:
    """What to set beside `environ`; nothing where the user has telemetry of their own."""
    if environ.get(_SWITCH) or any(name.startswith(_THEIRS) for name in environ):
        return {}
    chosen = {
        _SWITCH: "1",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"{base_url}{PREFIX.decode().rstrip('/')}",
    }
    if token is not None:
        chosen["OTEL_EXPORTER_OTLP_HEADERS"] = f"{_TOKEN_HEADER}={quote(token, safe='')}"
    return chosen
