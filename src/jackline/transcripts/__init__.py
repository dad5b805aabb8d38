"""Read the transcripts of agents: Claude Code, Codex and our own runner.

Rules: (1) a transcript is foreign: it is read with bounds and never executed; (2) a reader only
reads. Not here: judging what stopped an agent (autopsy/).
"""
