"""The answer to `initialize`, the same from the service and from the stdio bridge.

Rules: (1) no import: the bridge answers with it before anything else is loaded; (2) it is what the
protocol's own package would answer, and nothing more: a test compares the two.
Not here: the protocol (server.py), the bridge (quick/mcp_bridge.py).
"""

NAME = "jackline"
INSTRUCTIONS = (
    "Jackline keeps agents working through rate limits, quota walls and outages. Ask `status`"
    " before starting much work: it says which limits are reached and when they reset. A result"
    " whose `terminated_by` is not `completion` is no result: resume it with the id it carries."
    " Several agents at once: `agents`, or `agent` with `background`; single calls of `agent` wait"
    " for each other in most clients."
)
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The protocols that open with `initialize`, the newest last."""


def initialize_result(params: object, version: str) -> dict[str, object] | None:
    """The answer to `initialize` with these params; None when they are not in order."""
    if not isinstance(params, dict):
        return None
    wanted, client = params.get("protocolVersion"), params.get("clientInfo")
    if not isinstance(wanted, str) or not isinstance(params.get("capabilities"), dict):
        return None
    if not isinstance(client, dict) or not all(
        isinstance(client.get(part), str) for part in ("name", "version")
    ):
        return None
    return {
        "capabilities": {"tools": {"listChanged": False}},
        "instructions": INSTRUCTIONS,
        "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[-1],
        "serverInfo": {"name": NAME, "version": version},
    }
