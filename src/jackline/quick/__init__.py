"""Verbs that clients start on every tool call, so they must be quick: hook, statusline, mcp.

Rules: (1) nothing but the standard library is imported, and of it only what is needed; (2) they
fail open: a service that is down or slow never blocks or slows the client; (3) what they know of a
service is what it left in its state folder.
"""
