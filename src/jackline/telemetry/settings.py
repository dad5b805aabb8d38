"""Where spans are sent, and whether clients may send theirs here.

Rules: (1) frozen; (2) what may hold a secret is not shown by `repr`.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """Nothing is traced without an endpoint, and nothing received unless it is switched on."""

    endpoint: str | None = None
    """The address of a collector, such as http://127.0.0.1:4318."""
    authorization: str | None = field(default=None, repr=False)
    """The value of the authorization header, if it wants one."""
    receive: bool = False
    """Whether clients may send their own telemetry to the service's port."""
    prompts: bool = False
    """Whether clients' prompts, answers and tool inputs are forwarded, too."""
