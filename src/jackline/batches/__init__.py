"""Runs many tool calls side by side, each isolated and bound to its own id.

Laws: (1) every call gets its own result, whatever happens to the others; (2) nothing is cancelled
because a sibling failed; (3) the summary counts what failed, and names it.
Not here: who asked for the calls (agents/, the `batch` tool of the MCP server).
"""
