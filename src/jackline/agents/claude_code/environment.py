"""The environment that Claude Code needs to wait at the gateway without giving up.

Rules: (1) variables that the user has set stay, except the address itself; (2) every variable is
here with its reason, and nowhere else; (3) the gateway's token is in it only when it is passed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

BASE_URL = "ANTHROPIC_BASE_URL"
CUSTOM_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
HOLD_HEADER = "x-jackline-hold"
TOKEN_HEADER = "x-jackline-token"  # noqa: S105 -- the header's name

# A day: longer than any session's wall, and well below the 24.8 days at which JavaScript's timers
# overflow and fire at once.
_DAY_MS = str(24 * 3600 * 1000)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@dataclass(frozen=True, slots=True)
class ClientVariable:
    """One setting of Claude Code, and what happens to waiting calls without it."""

    name: str
    value: str
    reason: str


CLIENT_VARIABLES = (
    ClientVariable(
        "API_FORCE_IDLE_TIMEOUT",
        "0",
        "without it a request that has no headers after 285 to 300 s is dropped and sent again",
    ),
    ClientVariable(
        "API_TIMEOUT_MS", _DAY_MS, "without it a request is given up 10 min after it was sent"
    ),
    ClientVariable(
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS",
        _DAY_MS,
        "without it 2.1.197 cuts a stream that brings only pings after 300 s",
    ),
    ClientVariable(
        "CLAUDE_ASYNC_AGENT_STALL_TIMEOUT_MS",
        _DAY_MS,
        "without it a sub-agent is killed after 600 s without progress",
    ),
    ClientVariable(
        "CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS",
        "0",
        "without it `claude -p` kills its background agents 600 s after its own end",
    ),
    ClientVariable(
        "ENABLE_TOOL_SEARCH", "true", "the client turns tool search off for any other address"
    ),
    ClientVariable(
        "CLAUDE_CODE_ENABLE_FINE_GRAINED_TOOL_STREAMING",
        "1",
        "the client turns it off for any other address; long tool inputs would come at once",
    ),
    ClientVariable(
        "CLAUDE_CODE_PROPAGATE_TRACEPARENT",
        "1",
        "the client sends its trace's id to no other address without it",
    ),
)


def client_environment(
    base_url: str, *, afk: bool, environ: Mapping[str, str], token: str | None = None
) -> dict[str, str]:
    """The variables to set beside `environ` for a client of the gateway at `base_url`.

    With `afk` the client asks to be held until any known reset, however far away; with `token` it
    shows that it may use a gateway that asks for one.
    """
    chosen = {BASE_URL: base_url}
    for variable in CLIENT_VARIABLES:
        if not environ.get(variable.name):
            chosen[variable.name] = variable.value
    wanted = {HOLD_HEADER: "until-reset"} if afk else {}
    if token is not None:
        wanted[TOKEN_HEADER] = token
    # The user's own headers, and those of ours that are not among them.
    lines = [line for line in environ.get(CUSTOM_HEADERS, "").splitlines() if line.strip()]
    theirs = {line.partition(":")[0].strip().lower() for line in lines}
    ours = [f"{name}: {value}" for name, value in wanted.items() if name not in theirs]
    if ours:
        chosen[CUSTOM_HEADERS] = "\n".join([*lines, *ours])
    if not any(environ.get(name) or environ.get(name.lower()) for name in _PROXIES):
        return chosen
    # A proxy could not reach this machine's loopback.
    direct = dict.fromkeys(["127.0.0.1", "localhost", urlsplit(base_url).hostname or "127.0.0.1"])
    for name in [name for name in ("NO_PROXY", "no_proxy") if environ.get(name)] or ["NO_PROXY"]:
        hosts = [host.strip() for host in environ.get(name, "").split(",") if host.strip()]
        missing = [host for host in direct if host not in hosts]
        if missing and "*" not in hosts:
            chosen[name] = ",".join([*hosts, *missing])
    return chosen
