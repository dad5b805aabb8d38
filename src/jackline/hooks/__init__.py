"""Answer the hooks of Claude Code: parents learn the truth about sub-agents that died.

Rules: (1) whatever is wrong here, the client goes on: an empty answer changes nothing; (2) a dead
sub-agent is reported once, with its cause, what it had finished and how to resume it; (3) nothing
of prompts or answers is saved.
"""
