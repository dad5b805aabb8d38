"""Drives the real Claude Code as an agent.

Laws: (1) `is_error` and what is missing decide whether a run failed, never `subtype`; (2) nothing
of a prompt stands in a command line; (3) Claude Code's own transcript is the conversation, and is
only read.
Not here: starting it for a person (cli/), reading transcripts for their causes (autopsy/).
"""
