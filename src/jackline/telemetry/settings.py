"""Where spans are sent, and whether clients may send theirs here.

Rules: nothing is traced without an endpoint, and nothing received unless it is switched on.
"""

from __future__ import annotations

from dataclasses import dataclass

from jackline.settings import Form, setting


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """Where spans of flows, agents, calls, attempts and tools are sent, by OTLP over HTTP."""

    endpoint: str | None = setting(
        None,
        "Address of an OpenTelemetry collector, such as http://127.0.0.1:4318.",
        Form.URL,
        needs_restart=True,
    )
    authorization: str | None = setting(
        None,
        "Where the value of its authorization header is: env:NAME, file:PATH or cmd:COMMAND.",
        Form.REFERENCE,
        needs_restart=True,
    )
    receive: bool = setting(
        False,
        "Whether clients may send their own telemetry to the gateway's port; `jackline claude` then"
        " configures Claude Code to do so.",
    )
    prompts: bool = setting(
        False, "Whether clients' prompts, answers and tool inputs are forwarded, too."
    )
