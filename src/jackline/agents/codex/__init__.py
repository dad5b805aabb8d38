"""Drives the real Codex as an agent.

Laws: (1) a turn that did not complete is no answer, whatever was said in it; (2) nothing of a
prompt and no secret stands in a command line; (3) Codex's own rollout is the conversation, and is
only read.
Not here: reading rollouts for their causes (autopsy/).
"""
