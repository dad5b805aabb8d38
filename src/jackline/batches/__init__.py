"""Run many tool calls side by side, each isolated and with its own id.

Rules: (1) every call gets its own result, whatever happens to the others; (2) nothing is cancelled
because a sibling failed; (3) the summary counts what failed, and names it.
"""
