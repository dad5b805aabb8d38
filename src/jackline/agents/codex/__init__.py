"""Run the real Codex as an agent.

Rules: (1) a turn that did not complete is no answer; (2) no part of a prompt and no secret is in a
command line; (3) Codex's own rollout is the conversation, and is only read.
"""
