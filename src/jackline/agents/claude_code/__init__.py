"""Run the real Claude Code as an agent.

Rules: (1) `is_error` and missing parts decide whether a run failed, never `subtype`; (2) no part of
a prompt is in a command line; (3) Claude Code's own transcript is the conversation, and is only
read.
"""
